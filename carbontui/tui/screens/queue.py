"""The queue of a cluster: the site's power against its budget, and every job or node; enter opens a job's dashboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import ScreenResume, ScreenSuspend
from textual.screen import Screen

from carbontui.tui.glyphs import Glyphs
from carbontui.tui.queue_list import SORTS, QueueList, QueueSeen
from carbontui.tui.target import Target
from carbontui.tui.widgets.key_line import KeyLine
from carbontui.tui.widgets.queue_table import QueueTable, SiteChart
from carbontui.tui.widgets.status_line import StatusLine

LOOK_EVERY_S = 5.0
ANSWER_SHOWN_S = 10.0


class Queue(Screen[str | None]):
    """`look` may block and raises nothing; `open_job` makes the page of a job, which returns here."""

    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", id="queue_help", key_display="?", tooltip="Every key of this page"),
        Binding("q", "leave", "leave", id="queue_leave", tooltip="Leave; every job goes on"),
        Binding("enter", "open", "open", id="queue_open", tooltip="The dashboard of the job, on its node"),
        Binding("n", "nodes", "nodes", id="queue_nodes", tooltip="Nodes instead of jobs, or jobs again"),
        Binding("slash", "filter", "filter", id="queue_filter", key_display="/", tooltip="Only rows with a word"),
        Binding("s", "sort", "sort", id="queue_sort", tooltip=f"Sort by the next of: {', '.join(SORTS)}"),
        Binding("escape", "back", "back", id="queue_back", show=False, tooltip="Take the filter away"),
        Binding("up,k", "move(-1)", "up", id="queue_up", show=False, tooltip="A row up"),
        Binding("down,j", "move(1)", "down", id="queue_down", show=False, tooltip="A row down"),
        Binding("pageup", "page(-1)", "page up", id="queue_page_up", show=False, tooltip="A page up"),
        Binding("pagedown", "page(1)", "page down", id="queue_page_down", show=False, tooltip="A page down"),
        Binding("home,g", "move(-1000000)", "first", id="queue_first", show=False, tooltip="The first row"),
        Binding("end,G", "move(1000000)", "last", id="queue_last", show=False, tooltip="The last row"),
    ]

    def __init__(
        self,
        look: Callable[[], QueueSeen],
        glyphs: Glyphs,
        open_job: Callable[[Target], Screen[Any]],
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.glyphs, self.listed = glyphs, QueueList()
        self._look, self._open, self._now, self._monotonic = look, open_job, now, monotonic
        self._covered = False

    def compose(self) -> ComposeResult:
        yield SiteChart(self.glyphs, id="site")
        yield QueueTable(self.glyphs, id="table")
        yield StatusLine(self.glyphs, id="told")
        yield KeyLine(self.glyphs, id="keys")

    def on_mount(self) -> None:
        self.run_worker(self._follow(), group="look", exclusive=True)

    async def _follow(self) -> None:
        while True:
            seen = await asyncio.to_thread(self._look)
            if seen.faults and not seen.jobs and self.listed.seen.jobs:
                self.answer(f"{seen.faults[0]}; shown as last seen", ok=False)
            else:
                self._change(self.listed.now(seen))
                if seen.faults:
                    self.answer(seen.faults[0], ok=False)
            await asyncio.sleep(LOOK_EVERY_S)

    def _change(self, listed: QueueList) -> None:
        self.listed = listed
        with self.app.batch_update():
            self.query_one(SiteChart).show(listed.seen, self._now())
            self.query_one(QueueTable).show(listed, self._now())
        self.query_one(StatusLine).expire(self._monotonic())

    def on_screen_suspend(self, _: ScreenSuspend) -> None:
        self._covered = True
        self.workers.cancel_group(self, "look")

    def on_screen_resume(self, _: ScreenResume) -> None:
        if self._covered:
            self._covered = False
            self.run_worker(self._follow(), group="look", exclusive=True)

    def action_move(self, rows: int) -> None:
        self._change(self.listed.moved(rows))

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.query_one(QueueTable).content_size.height - 2))

    def action_nodes(self) -> None:
        self._change(self.listed.toggled())

    def action_sort(self) -> None:
        self._change(self.listed.resorted())
        self.answer(f"sorted by {self.listed.sort}")

    async def action_filter(self) -> None:
        from carbontui.tui.widgets.prompt import AskText

        def typed(word: str) -> None:
            self._change(self.listed.filtered(word))

        hint = "a part of the name, the user, the node or the state; nothing for all"
        await self.mount(AskText("show only rows with", hint, self.listed.wanted, str, typed, typed))

    async def on_prompt_answered(self, message: Any) -> None:
        await message.prompt.close(message.value)

    def action_back(self) -> None:
        self._change(self.listed.filtered(""))

    def action_open(self) -> None:
        pointed = self.listed.pointed()
        if pointed is None:
            return
        if pointed.open is None:
            self.answer(
                f"{pointed.id}: carbontui does not run there" if not pointed.ours else f"{pointed.id}: not begun"
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

    def action_help(self) -> None:
        from carbontui.tui.screens.page_rows import help_rows
        from carbontui.tui.screens.read import Read

        self.app.push_screen(Read("keys and marks", help_rows(self, self.glyphs), self.glyphs))

    def action_leave(self) -> None:
        self.dismiss(None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not self.query("#prompt")  # the keys are the question's

    def answer(self, text: str, ok: bool = True) -> None:
        """Say something under the table for a while."""
        self.query_one(StatusLine).answer(text, ok, self._monotonic() + ANSWER_SHOWN_S)
