"""The foot of the dashboard: the end of the output, the plan in brief, and the summary of a job that is over."""

from __future__ import annotations

import textwrap

from carbontui.text.account import summary
from carbontui.tui import plan_words, words
from carbontui.tui.loglines import LogLines
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, Cells, PictureCells


class LogTail(Cells):
    """`redraw()` after its `lines` have been fed."""

    over = False

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id)
        self.begin()

    def begin(self) -> None:
        """Forget what was read: the next piece does not continue it."""
        self.lines = LogLines(keep=200)

    def draw(self, width: int, height: int) -> list[CellRow]:
        rows: list[CellRow] = [self.heading(width, "output", "l: all of it")]
        newest = self.lines.rows(height - 1)
        if not newest:
            return [*rows, [(" no output was written" if self.over else " no output yet", "dim")]]
        for row in newest:
            rows.append([(" ", "text"), *row])
        return rows


class PlanBrief(PictureCells):
    """The newest events keep a few rows."""

    TITLE = "the plan"

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        rows = plan_words.course_rows(picture, width)
        told = plan_words.event_rows(picture.status.events, picture, whole=False)
        room = height - 1 - min(len(told), 5)
        return [self.heading(width, self.TITLE, "w: all of it"), *rows[:room], *told][:height]


_LABEL = 11
_LEAST_OF_ALL = ("emitted", "avoided", "finish", "at")
"""Rows kept where space is scarce: how it ended is shown above, its last output below."""


class Summary(PictureCells):
    """Shown once the job is over; `brief`: only the most important rows."""

    brief = False

    def wanted(self, picture: Picture, width: int) -> int:
        """Rows that it needs, heading included."""
        return 1 + sum(len(self._folded(told, width)) for _, told in self._said(picture))

    def _said(self, picture: Picture) -> list[tuple[str, str]]:
        def of(field: str) -> str:
            return words.marked("", words.mark(picture.status, field))

        return [row for row in summary(picture.status, of) if not self.brief or row[0] in _LEAST_OF_ALL]

    @staticmethod
    def _folded(text: str, width: int) -> list[str]:
        return textwrap.wrap(text, max(8, width - _LABEL)) or [""]

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        rows: list[CellRow] = [self.heading(width, "the job is over", "q leaves")]
        saved = (picture.status.avoided_g or 0.0) > 0
        inks = {"avoided": "running"} if saved else {}
        for label, told in self._said(picture):
            for index, line in enumerate(self._folded(told, width)):
                shown = label if index == 0 else ""
                rows.append([(f" {shown:<9} ", "dim"), (line, inks.get(label, "text"))])
        return rows
