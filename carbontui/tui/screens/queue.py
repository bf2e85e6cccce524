"""A cluster's queue: the site's power against its budget, and every job or node; enter opens a job's dashboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from carbontui.tui.model.lists import QueueList, QueueSeen
from carbontui.tui.model.target import Target
from carbontui.tui.screens.list_page import MOVES, ListPage
from carbontui.tui.terminal import keys
from carbontui.tui.widgets.lines import KeyLine, StatusLine
from carbontui.tui.widgets.site_chart import SiteChart
from carbontui.tui.widgets.tables import QueueTable

LOOK_EVERY_S = 5.0


class Queue(ListPage[QueueList]):
    """`look` may block and raises nothing."""

    SHOWN_WITH = "show only rows with", "a part of the name, the user, the node or the state; nothing for all"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-medium")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", id="queue_help", key_display="?", tooltip="Every key of this page"),
        Binding("q", "dismiss", "leave", id="queue_leave", tooltip="Leave; every job goes on"),
        Binding("enter", "open", "open", id="queue_open", tooltip="The dashboard of the job, on its node"),
        Binding("n", "nodes", "nodes", id="queue_nodes", tooltip="Nodes instead of jobs, or jobs again"),
        keys.FILTER,
        Binding("s", "sort", "sort", id="queue_sort", tooltip=f"Sort by the next of: {', '.join(QueueList.ORDERS)}"),
        *MOVES,
    ]

    def __init__(
        self,
        look: Callable[[], QueueSeen],
        open_job: Callable[[Target], Screen[Any]],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(QueueList(), open_job, now)
        self._look = look

    def compose(self) -> ComposeResult:
        yield SiteChart(id="site")
        yield QueueTable(id="table")
        yield StatusLine(id="told")
        yield KeyLine(id="keys")

    async def follow(self) -> None:
        while True:
            seen = await asyncio.to_thread(self._look)
            if seen.faults and not seen.jobs and self.listed.listing.jobs:
                self.answer(f"{seen.faults[0]}; shown as last seen", ok=False)
            else:
                self.change(self.listed.looked(seen))
                if seen.faults:
                    self.answer(seen.faults[0], ok=False)
            await asyncio.sleep(LOOK_EVERY_S)

    def draw_rows(self) -> None:
        with self.app.batch_update():
            self.query_one(SiteChart).show(self.listed.listing, self._now())
            self.query_one(QueueTable).show(self.listed, self._now())
        self.query_one(StatusLine).expire(self._monotonic())

    def action_nodes(self) -> None:
        self.change(self.listed.turned())

    def action_sort(self) -> None:
        super().action_sort()
        self.answer(f"sorted by {self.listed.sort}")

    def action_open(self) -> None:
        pointed = self.listed.pointed()
        if pointed is None:
            return
        if pointed.open is None:
            self.answer(
                f"{pointed.id}: carbontui does not run there" if not pointed.ours else f"{pointed.id}: not started"
            )
            return
        opening = pointed.open
        self.answer(f"{pointed.id}: opening …")
        self.run_worker(self._opened(opening), group="open", exclusive=True)

    async def _opened(self, opening: Callable[[], Target]) -> None:
        try:
            target = await asyncio.to_thread(opening)
        except OSError as error:
            self.answer(str(error), ok=False)
            return
        self.app.push_screen(self._open(target))
