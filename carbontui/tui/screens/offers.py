"""A machine on which the rest of a job would emit less: a line at the foot of the page, and the key that moves it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from carbontui.tui.model.feed import BetterHost
from carbontui.tui.screens.overruling import JobPage
from carbontui.tui.widgets.bottom import StatusLine

POLL_EVERY_S = 900.0
"""No forecast is finer; each look asks every machine over ssh."""


class OffersMove(JobPage):
    """Nothing is asked on a read-only page, which could not move it."""

    better: BetterHost | None = None

    def begin_offers(self) -> None:
        """Look now and then."""
        if self.target.elsewhere is not None:
            self._other_machines()
            self.set_interval(POLL_EVERY_S, self._other_machines)

    def _other_machines(self) -> None:
        elsewhere = self.target.elsewhere
        if elsewhere is not None and self.view_state is not None and not self.view_state.over:
            self._beside(lambda: self._offer(elsewhere()))

    def _beside(self, work: Callable[[], Callable[[], None]]) -> None:
        """Do something that may block for long; the screen may be left meanwhile. What it returns is done here."""

        def run() -> None:
            then = work()
            with contextlib.suppress(RuntimeError):  # the screen was left
                self.app.call_from_thread(then)

        threading.Thread(target=run, name="other machines", daemon=True).start()

    def _offer(self, better: BetterHost | None) -> Callable[[], None]:
        def show() -> None:
            self.better = better
            self.query_one(StatusLine).offer = "" if better is None else f"{better.words}; M moves it"
            self.query_one(StatusLine).redraw()
            self.refresh_bindings()

        return show

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
