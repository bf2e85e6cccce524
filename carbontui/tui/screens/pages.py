"""The pages that a dashboard opens. Each is loaded when its key is pressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.screen import Screen

from carbontui import link, protocol
from carbontui.tui.feed import JobFeed
from carbontui.tui.picture import Picture
from carbontui.tui.target import Target
from carbontui.tui.widgets.levels import PastLevels

if TYPE_CHECKING:
    from carbontui.tui.screens.read import Read
    from carbontui.tui.widgets.cells import CellRow


class PageQuestion:
    """A request that is repeated while a page shows its answer."""

    def __init__(self, feed: JobFeed, question: link.Request) -> None:
        self._feed, self._question = feed, question
        self.answer: link.Answer | None = None
        self.fault = ""

    async def again(self) -> None:
        try:
            self.answer, self.fault = await self._feed.request(self._question), ""
        except link.LinkError as error:
            self.fault = str(error)


class OpensPages(Screen[str | None]):
    """Names what the pages need of the dashboard."""

    target: Target
    feed: JobFeed
    picture: Picture | None
    past: PastLevels | None
    readonly: bool
    from_table: bool
    _table: Callable[[], Screen[str | None]] | None

    def age_s(self) -> float:
        """Age of the data shown, in seconds."""
        raise NotImplementedError

    def action_log(self) -> None:
        from carbontui.tui.screens.log import LogScreen

        self.app.push_screen(LogScreen(self.feed, self.target.name or self.target.job))

    def action_plan(self) -> None:
        from carbontui.tui.screens.plan import PlanPage

        if self.picture is not None:
            page = PlanPage(self.feed, self._newest, lambda: self.past, readonly=self.readonly)
            self.app.push_screen(page)

    def _newest(self) -> Picture:
        assert self.picture is not None
        return self.picture

    def action_help(self) -> None:
        from carbontui.tui.screens.page_rows import help_rows

        self._read("keys and marks", help_rows(self))

    def action_sources(self) -> None:
        from carbontui.tui.screens.page_rows import source_rows

        self._read_live("where the numbers come from", lambda: source_rows(self._newest(), self.age_s()))

    def action_abilities(self) -> None:
        from carbontui.tui.screens.page_rows import ability_rows, board_rows

        asked = PageQuestion(self.feed, protocol.AbilitiesAsk(0))

        def rows() -> list[CellRow]:
            told: list[CellRow] = [
                [(f" {asked.fault or 'asking the supervisor …'}", "fault" if asked.fault else "dim")]
            ]
            if isinstance(asked.answer, protocol.AbilitiesAnswer):
                told = ability_rows(asked.answer)
            return [*board_rows(self._newest(), self.app.size.width), *told]

        self._read_live("boards, and what can be measured and done here", rows, asked)

    def action_grid(self) -> None:
        from carbontui.tui.screens.grid_rows import grid_rows

        asked = PageQuestion(self.feed, protocol.GridAsk(0))

        def rows() -> list[CellRow]:
            known = asked.answer if isinstance(asked.answer, protocol.GridAnswer) else None
            return grid_rows(self._newest(), known, asked.fault, self.app.size.width)

        self._read_live("the grid", rows, asked)

    def _read_live(self, title: str, rows: Callable[[], list[CellRow]], asked: PageQuestion | None = None) -> None:
        """Open the page before any answer arrives, else the next key would still go to the dashboard."""
        if self.picture is not None:
            page = self._read(title, rows())
            page.renew(rows, asked)

    def _read(self, title: str, rows: list[CellRow]) -> Read:
        from carbontui.tui.screens.read import Read

        page = Read(title, rows)
        self.app.push_screen(page)
        return page

    def action_table(self) -> None:
        if self.from_table:
            self.dismiss(None)
        elif self._table is not None:
            self.app.push_screen(self._table())
