"""The newest rows of run.log, a progress bar held at the bottom."""

from __future__ import annotations

from carbontui.tui.loglines import LogLines
from carbontui.tui.widgets.cells import CellRow, Cells


class LogTail(Cells):
    """`show()` after its `lines` have been fed."""

    over = False

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id)
        self.lines = LogLines(keep=200)

    def begin(self) -> None:
        """Forget what was read: the next piece does not continue it."""
        self.lines = LogLines(keep=200)

    def show(self) -> None:
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        rows: list[CellRow] = [self.heading(width, "output", "l: all of it")]
        newest = self.lines.rows(height - 1)
        if not newest:
            return [*rows, [(" no output was written" if self.over else " no output yet", "dim")]]
        for row in newest:
            rows.append([(" ", "text"), *row])
        return rows
