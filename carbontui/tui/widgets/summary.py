"""What stays on the screen when the job is over."""

from __future__ import annotations

from carbontui.tui.account_words import summary
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, Cells


class Summary(Cells):
    """`show(picture)` once the job is over."""

    picture: Picture | None = None

    def show(self, picture: Picture) -> None:
        self.picture = picture
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        if self.picture is None:
            return []
        rows: list[CellRow] = [self.heading(width, "the job is over", "q leaves")]
        inks = {"avoided": "running"}
        for label, told in summary(self.picture):
            rows.append([(f" {label:<9} ", "dim"), (told, inks.get(label, "text"))])
        return rows
