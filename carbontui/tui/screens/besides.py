"""What a dashboard asks for besides the present: the levels that held, the ending of a job that is over, and a machine
where the rest of one would emit less."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial

from carbontui import link, protocol
from carbontui.tui.model.feed import PAST_BUCKETS, BetterHost
from carbontui.tui.model.loglines import error_in
from carbontui.tui.model.view_state import PastLevels, ViewState, offline
from carbontui.tui.screens.overruling import JobPage
from carbontui.tui.widgets.bottom import StatusLine, Summary
from carbontui.tui.widgets.state_bar import StateBar


class LearnsPast(JobPage):
    """Names what it needs of the dashboard besides."""

    _covered: bool
    _show: Callable[[ViewState], None]
    _draw: Callable[..., None]
    _show_charts: Callable[[], None]

    async def _learn_ending(self) -> None:
        """What its report and its output say of a job that is over."""
        summary, read = self.query_one(Summary), self.target.read_log
        if self.view_state is not None and self.view_state.status.state == "failed" and read is not None:
            self.query_one(StateBar).error = await asyncio.to_thread(error_in, read)
        if not self.target.over:
            await self._learn_past()
        if self.target.ending is not None:
            summary.added = await asyncio.to_thread(self.target.ending)
        if self.view_state is not None and not self._covered:
            self._draw(self.view_state, anew=True)

    async def _learn_past(self) -> None:
        """Of a job that is over: from its files."""
        try:
            answer = await self.feed.request(protocol.HistoryAsk(0, 1.0, PAST_BUCKETS))
        except link.RequestRefused as error:
            self.answer(str(error), ok=False)  # an empty past must not pass for a job that did nothing
            return
        except link.LinkError:
            return
        assert isinstance(answer, protocol.HistoryAnswer)
        self.past = PastLevels.of(answer) if any(answer.kind) else self.past
        if self.target.over and self.target.status is not None:
            self._show(offline(self.target.status, answer))
        self._show_charts()


POLL_EVERY_S = 900.0
"""No forecast is finer; each look asks every machine over ssh."""


class OffersMove(JobPage):
    """A line at the foot of the page, and the key that moves it. Nothing is asked on a read-only page, which could not
    move it."""

    better: BetterHost | None = None

    def begin_offers(self) -> None:
        """Look now and then."""
        if self.target.elsewhere is not None:
            self._other_machines()
            self.set_interval(POLL_EVERY_S, self._other_machines)

    def _other_machines(self) -> None:
        elsewhere = self.target.elsewhere
        if elsewhere is not None and self.view_state is not None and not self.view_state.over:
            self._beside(lambda: partial(self._offer, elsewhere()))

    def _beside(self, work: Callable[[], Callable[[], None]]) -> None:
        """Do something that may block for long; the screen may be left meanwhile. What it returns is done here."""

        def run() -> None:
            then = work()
            with contextlib.suppress(RuntimeError):  # the screen was left
                self.app.call_from_thread(then)

        threading.Thread(target=run, name="other machines", daemon=True).start()

    def _offer(self, better: BetterHost | None) -> None:
        self.better = better
        self.query_one(StatusLine).offer = "" if better is None else f"{better.words}; M moves it"
        self.query_one(StatusLine).redraw()
        self.refresh_bindings()

    async def action_move(self) -> None:
        from carbontui.tui.widgets.prompt import AskYes

        better, move = self.better, self.target.move
        if better is None or move is None:
            return

        def answered(_: str) -> None:
            self.answer(f"moving it to {better.host}; it goes on here if that fails …")
            self._beside(lambda: self._moved(*move(better.host)))

        await self.mount(AskYes(f"Move it now to {better.words}? It is unloaded at a step", answered))

    def _moved(self, ok: bool, text: str) -> Callable[[], None]:
        return lambda: self.answer(text, ok)
