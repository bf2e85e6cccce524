"""The pages that a dashboard opens. Each is loaded when its key asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.screen import Screen

from carbontui import link, protocol
from carbontui.tui.feed import JobFeed
from carbontui.tui.glyphs import Glyphs
from carbontui.tui.picture import Picture
from carbontui.tui.target import Target
from carbontui.tui.widgets.levels import PastLevels

if TYPE_CHECKING:
    from carbontui.tui.screens.read import Read
    from carbontui.tui.widgets.cells import CellRow


class OpensPages(Screen[str | None]):
    """What the pages need of the dashboard is named here."""

    target: Target
    feed: JobFeed
    glyphs: Glyphs
    picture: Picture | None
    past: PastLevels | None
    readonly: bool
    from_table: bool
    _table: Callable[[], Screen[str | None]] | None

    def age_s(self) -> float:
        """How old what is shown is."""
        raise NotImplementedError

    def action_log(self) -> None:
        from carbontui.tui.screens.log import LogScreen

        self.app.push_screen(LogScreen(self.feed, self.glyphs, self.target.name or self.target.job))

    def action_plan(self) -> None:
        from carbontui.tui.screens.plan import PlanPage

        if self.picture is not None:
            page = PlanPage(self.feed, self._newest, lambda: self.past, self.glyphs, readonly=self.readonly)
            self.app.push_screen(page)

    def _newest(self) -> Picture:
        assert self.picture is not None
        return self.picture

    def action_help(self) -> None:
        from carbontui.tui.screens.page_rows import help_rows

        self._read("keys and marks", help_rows(self, self.glyphs))

    def action_sources(self) -> None:
        from carbontui.tui.screens.page_rows import source_rows

        if self.picture is not None:
            self._read("where the numbers come from", source_rows(self.picture, self.age_s()))

    def action_abilities(self) -> None:
        # open before the answer is there, or the next key would still be the dashboard's
        page = self._read("boards, and what can be measured and done here", [[(" asking the supervisor …", "dim")]])
        page.run_worker(self._fill_abilities(page))

    async def _fill_abilities(self, page: Read) -> None:
        from carbontui.tui.screens.page_rows import ability_rows, board_rows

        try:
            answer = await self.feed.request(protocol.AbilitiesAsk(0))
        except link.LinkError as error:
            page.fill([[(f" {error}", "fault")]])
            return
        assert isinstance(answer, protocol.AbilitiesAnswer)
        boards = board_rows(self.picture, self.glyphs) if self.picture is not None else []
        page.fill([*boards, *ability_rows(answer)])

    def _read(self, title: str, rows: list[CellRow]) -> Read:
        from carbontui.tui.screens.read import Read

        page = Read(title, rows, self.glyphs)
        self.app.push_screen(page)
        return page

    def action_table(self) -> None:
        if self.from_table:
            self.dismiss(None)
        elif self._table is not None:
            self.app.push_screen(self._table())
