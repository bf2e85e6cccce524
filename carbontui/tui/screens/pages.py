"""The pages that a dashboard opens. Each is loaded when its key is pressed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.message import Message
from textual.screen import Screen

from carbontui import link, protocol, units
from carbontui.text import figures
from carbontui.tui.model.feed import News
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.screens.overruling import JobPage

if TYPE_CHECKING:
    from carbontui.tui.screens.read import Read
    from carbontui.tui.widgets.cells import CellRow


FIRST_VIEW_S = 0.3
"""A snapshot comes within milliseconds: drawing an empty page before it would cost as much as the first paint."""


class Arrived(Message):
    """News of the job. A newer picture replaces one that was not drawn yet; all else counts."""

    def __init__(self, news: News) -> None:
        super().__init__()
        self.news = news

    def can_replace(self, message: Message) -> bool:
        return isinstance(self.news, ViewState) and isinstance(message, Arrived) and isinstance(message.news, ViewState)


class PaintsOnce(Screen[str | None]):
    """Nothing of it reaches the terminal until `first_view`, which a timer is to call if no data arrives."""

    waiting = True

    def first_view(self) -> None:
        if self.waiting:
            self.waiting = False
            self.refresh()

    def _compositor_refresh(self) -> None:
        if self.waiting:
            self._dirty_widgets.clear()  # their regions are noted
        else:
            super()._compositor_refresh()


class OpensPages(JobPage):
    """Names what the pages need of the dashboard besides."""

    from_table: bool
    _table: Callable[[], Screen[str | None]] | None

    age_s: Callable[[], float]
    """Age of the data shown, in seconds."""

    def action_log(self) -> None:
        from carbontui.tui.screens.log import LogScreen

        self.app.push_screen(LogScreen(self.feed, self.target.name or self.target.job))

    def action_plan(self) -> None:
        from carbontui.tui.screens.plan import PlanPage

        if self.view_state is not None:
            self.app.push_screen(PlanPage(self))

    def action_sources(self) -> None:
        from carbontui.tui.screens.page_rows import grid_rows, source_rows

        def rows(page: Read) -> list[CellRow]:
            now, known = self.newest(), page.reply if isinstance(page.reply, protocol.GridAnswer) else None
            return [*source_rows(now, self.age_s()), *grid_rows(now.status, known, page.fault, now.now_s)]

        shown = self.view_state
        last = units.from_iso(shown.plan.deadline) if shown and shown.plan else 0.0
        zone = f" · all times {figures.clock_names(shown.now_s, max(shown.now_s, last))}" if shown else ""
        self._read(f"where the numbers come from{zone}", rows, protocol.GridAsk(0))

    def action_abilities(self) -> None:
        from carbontui.tui.screens.page_rows import ability_rows, curve_rows
        from carbontui.tui.widgets import boards

        def rows(page: Read) -> list[CellRow]:
            view_state = self.newest()
            told = boards.rows(view_state.status.gpus, view_state.series.watts, self.app.size.width - 2)
            if isinstance(page.reply, protocol.AbilitiesAnswer):
                return [*told, *curve_rows(page.reply, view_state), *ability_rows(page.reply)]
            return [*told, [(f" {page.fault or 'asking the supervisor …'}", "fault" if page.fault else "dim")]]

        self._read("GPUs, and what can be measured and done here", rows, protocol.AbilitiesAsk(0), wide=True)

    def _read(
        self, title: str, rows: Callable[[Read], list[CellRow]], question: link.Request, *, wide: bool = False
    ) -> None:
        """Open the page before any answer arrives, else the next key would still go to the dashboard."""
        from carbontui.tui.screens.read import Read

        if self.view_state is not None:
            self.app.push_screen(Read(title, rows, partial(self.feed.request, question), wide=wide))

    def action_table(self) -> None:
        if self.from_table:
            self.dismiss(None)
        elif self._table is not None:
            self.app.push_screen(self._table())
