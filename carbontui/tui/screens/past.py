"""What a dashboard asks for besides the present: the levels that held, and the ending of a job that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from carbontui import link, protocol
from carbontui.tui.model.feed import PAST_BUCKETS
from carbontui.tui.model.loglines import error_in
from carbontui.tui.model.view_state import PastLevels, ViewState, offline
from carbontui.tui.screens.overruling import JobPage
from carbontui.tui.widgets.bottom import Summary
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
