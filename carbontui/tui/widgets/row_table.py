"""A table of rows with a cursor: the base of the job table and the queue table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len, set_cell_size

from carbontui.tui import glyphs, words
from carbontui.tui.row_list import RowList
from carbontui.tui.widgets.cells import CellRow, Cells, Span

MESSAGE_LEAST = 15
"""With room for fewer cells than this, a row's message is not shown."""
MARKED = 4
"""Cells of the marks before a row."""


class TableColumn(NamedTuple):
    """`order` is the sort order the column belongs to, `least` the table width from which it is shown."""

    title: str
    cells: int
    least: int = 0
    order: str = ""


class RowTable(Cells):
    """`show(listed, now_s)`; as many rows as fit, always including the one under the cursor."""

    COLUMNS: ClassVar[tuple[TableColumn, ...]] = ()
    MESSAGE: ClassVar[str]
    """The title of the messages."""

    listed: RowList[Any] = RowList()
    now_s = 0.0
    has_messages = True
    """Whether there was room for the rows' messages."""
    _top = 0

    def why_empty(self) -> str:
        """What is said in place of rows."""
        raise NotImplementedError

    def names(self, left: int) -> tuple[str, Callable[[Any, bool], CellRow]]:
        """The title of the names, as wide as they are with `left` cells for names and messages; and what writes a
        row's name, given whether the cursor is there."""
        raise NotImplementedError

    def value(self, title: str, row: Any) -> Span:
        """The content of a column."""
        raise NotImplementedError

    def message(self, row: Any) -> Span:
        raise NotImplementedError

    def show(self, listed: RowList[Any], now_s: float) -> None:
        self.listed, self.now_s = listed, now_s
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        listed = self.listed
        if not listed.shown:
            return [[(f"  {self.why_empty()}", "dim")]]
        columns = [column for column in self.COLUMNS if width >= column.least]
        left = width - MARKED - sum(column.cells for column in columns)
        title, named = self.names(left)
        room = left - cell_len(title) - 2
        self.has_messages = room >= MESSAGE_LEAST
        head: CellRow = [(" " * MARKED, "dim"), (title, "dim")]
        for column in columns:
            # the column the rows are sorted by is highlighted
            head.append((f"{column.title:>{column.cells}}", "strong" if column.order == listed.sort else "dim"))
        rows = [[*head, (f"  {self.MESSAGE}" if self.has_messages else "", "dim")]]
        for at in self.visible_rows(height - 1):
            row, pointed = listed.shown[at], at == listed.place
            mark = glyphs.POINT if row.id in listed.marked else glyphs.NOW if pointed else " "
            cells: CellRow = [(mark, "preview"), (f" {glyphs.STATES[row.state]} ", words.STATE_STYLE[row.state])]
            cells += named(row, pointed)
            for column in columns:
                text, ink = self.value(column.title, row)
                cells.append((" " + cut(text, column.cells - 1, right=True), "dim" if text == "–" else ink))
            if self.has_messages:
                text, ink = self.message(row)
                cells.append((f"  {cut(text, room)}", ink))
            rows.append(under_cursor(cells, width) if pointed else cells)
        return rows

    def visible_rows(self, room: int) -> range:
        """The rows that fit."""
        count, place = len(self.listed.shown), self.listed.place
        self._top = max(0, min(self._top, place, count - room), place - room + 1)
        return range(self._top, min(count, self._top + room))

    def position(self) -> str:
        """'3 of 50' if not all rows fit; else ''."""
        count = len(self.listed.shown)
        return f"{self.listed.place + 1} of {count}" if count > max(1, self.content_size.height - 1) else ""


def under_cursor(row: CellRow, width: int) -> CellRow:
    """Highlight the whole row, so that the cursor is visible without colour and from a distance."""
    painted: CellRow = [
        (text, f"{how}/cursor" if isinstance(how, str) and "/" not in how else how) for text, how in row
    ]
    return [*painted, (" " * width, "text/cursor")]


def cut(text: str, cells: int, *, right: bool = False) -> str:
    """The text in exactly this many cells, right-aligned if `right`, with an ellipsis if truncated."""
    if cells < 1 or cell_len(text) > cells:
        return set_cell_size(text, max(0, cells - 1)) + glyphs.ELLIPSIS if cells > 0 else ""
    fill = " " * (cells - cell_len(text))
    return fill + text if right else text + fill
