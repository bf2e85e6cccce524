"""A table of rows with a cursor: the base of the job table and the queue table."""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from carbontui.tui import glyphs
from carbontui.tui.row_list import RowList
from carbontui.tui.widgets.cells import CellRow, Cells


class TableColumn(NamedTuple):
    """`order` is the sort order the column belongs to, `least` the table width from which it is shown."""

    title: str
    cells: int
    least: int = 0
    order: str = ""


class RowTable(Cells):
    """`show(listed, now_s)`; as many rows as fit, always including the one under the cursor."""

    listed: RowList[Any] = RowList()
    now_s = 0.0
    _top = 0

    def show(self, listed: RowList[Any], now_s: float) -> None:
        self.listed, self.now_s = listed, now_s
        self.redraw()

    def visible_rows(self, room: int) -> range:
        """The rows that fit."""
        count, place = len(self.listed.shown), self.listed.place
        self._top = max(0, min(self._top, place, count - room), place - room + 1)
        return range(self._top, min(count, self._top + room))

    def position(self) -> str:
        """'3 of 50' if not all rows fit; else ''."""
        count = len(self.listed.shown)
        return f"{self.listed.place + 1} of {count}" if count > max(1, self.content_size.height - 1) else ""

    def head(self, lead: str, columns: list[TableColumn], tail: str) -> CellRow:
        """Titles; the column the rows are sorted by is highlighted."""
        row: CellRow = [("    ", "dim"), (lead, "dim")]
        for column in columns:
            chosen = column.order == self.listed.sort
            row.append((f"{column.title:>{column.cells}}", "strong" if chosen else "dim"))
        return [*row, (f"  {tail}", "dim")] if tail else row

    def under_cursor(self, row: CellRow, width: int) -> CellRow:
        """Highlight the whole row, so that the cursor is visible without colour and from a distance."""
        painted: CellRow = [
            (text, f"{how}/cursor" if isinstance(how, str) and "/" not in how else how) for text, how in row
        ]
        return [*painted, (" " * width, "text/cursor")]

    def cut(self, text: str, cells: int, *, right: bool = False) -> str:
        """The text in exactly this many cells, right-aligned if `right`, with an ellipsis if truncated."""
        if cells < 1 or cell_len(text) > cells:
            return set_cell_size(text, max(0, cells - 1)) + glyphs.ELLIPSIS if cells > 0 else ""
        fill = " " * (cells - cell_len(text))
        return fill + text if right else text + fill


def fitting(columns: tuple[TableColumn, ...], width: int) -> list[TableColumn]:
    return [column for column in columns if width >= column.least]
