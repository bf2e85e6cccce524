"""A page of rows with a cursor: the base of the job table's page and the queue's page."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.events import ScreenResume, ScreenSuspend
from textual.screen import Screen

from carbontui.tui.model.lists import RowList
from carbontui.tui.model.target import Target
from carbontui.tui.screens.overruling import Answers
from carbontui.tui.terminal import keys
from carbontui.tui.widgets.tables import RowTable

MOVES: list[BindingType] = [
    Binding("escape", "back", "back", id="list_back", show=False, tooltip="Clear marks and filter"),
    Binding("up,k", "move(-1)", "up", id="list_up", show=False, tooltip="A row up"),
    Binding("down,j", "move(1)", "down", id="list_down", show=False, tooltip="A row down"),
    Binding("pageup", "page(-1)", "page up", id="list_page_up", show=False, tooltip="A page up"),
    Binding("pagedown", "page(1)", "page down", id="list_page_down", show=False, tooltip="A page down"),
    Binding("home,g", "move(-1000000)", "first", id="list_first", show=False, tooltip="The first row"),
    Binding("end,G", "move(1000000)", "last", id="list_last", show=False, tooltip="The last row"),
]

Listed = TypeVar("Listed", bound=RowList[Any])


class ListPage(Answers, Generic[Listed]):
    """`open_job` makes the page of a job, which returns here when it is left. While another page is on top this one
    requests nothing: that page requests what it shows."""

    AUTO_FOCUS = None
    SHOWN_WITH: ClassVar[tuple[str, str]]
    """The filter's prompt, and its hint."""

    def __init__(
        self,
        listed: Listed,
        open_job: Callable[[Target], Screen[Any]],
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.listed = listed
        self._open, self._now = open_job, now
        self._covered = False

    def follow(self) -> Coroutine[Any, Any, None]:
        """Keeps the rows up to date while the page is visible."""
        raise NotImplementedError

    def draw_rows(self) -> None:
        """Draw `listed` and what surrounds it."""
        raise NotImplementedError

    def change(self, listed: Listed) -> None:
        self.listed = listed
        self.draw_rows()

    def on_mount(self) -> None:
        self.run_worker(self.follow(), group="feed", exclusive=True)

    def on_screen_suspend(self, _: ScreenSuspend) -> None:
        self._covered = True
        self.workers.cancel_group(self, "feed")

    def on_screen_resume(self, _: ScreenResume) -> None:
        if self._covered:
            self._covered = False
            self.run_worker(self.follow(), group="feed", exclusive=True)

    # --- keys ---

    def action_move(self, rows: int) -> None:
        self.change(self.listed.moved(rows))

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.query_one(RowTable).content_size.height - 2))

    def action_sort(self) -> None:
        self.change(self.listed.resorted())

    async def action_filter(self) -> None:
        from carbontui.tui.widgets.prompt import AskText

        def typed(word: str) -> None:
            self.change(self.listed.filtered(word))

        await self.mount(AskText(*self.SHOWN_WITH, self.listed.wanted, str, typed, typed))

    def action_back(self) -> None:
        unmarked = replace(self.listed, marked=frozenset())
        self.change(unmarked if self.listed.marked else self.listed.filtered(""))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not keys.asking(self)  # an open prompt takes the keys
