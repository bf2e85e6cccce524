"""The foot of the dashboard: the end of the output, the plan in brief, and the summary of a job that is over."""

from __future__ import annotations

import textwrap

from carbontui.text.account import summary
from carbontui.tui.model import words
from carbontui.tui.model.feed import LogPiece
from carbontui.tui.model.loglines import LogLines, LogRow
from carbontui.tui.model.picture import Picture
from carbontui.tui.widgets import plan_words
from carbontui.tui.widgets.cells import CellRow, Cells, PictureCells, folded


class LogTail(Cells):
    """`redraw()` after it has been fed. A stderr that is apart, with its progress bar, stands below the output."""

    over = False

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id)
        self.lines, self.errors = LogLines(keep=200), LogLines(keep=200)

    def feed(self, piece: LogPiece) -> None:
        of = "errors" if piece.err else "lines"
        if piece.fresh:
            setattr(self, of, LogLines(keep=200))
        getattr(self, of).feed(piece.text)

    def rows(self, most: int) -> list[LogRow]:
        """The newest rows: of stderr a third at most, unless there is no other output."""
        output, errors = self.lines.rows(most), self.errors.rows(most)
        below = errors[-max(1, most // 3, most - len(output)) :]
        return [*output[-max(1, most - len(below)) :], *below]

    def draw(self, width: int, height: int) -> list[CellRow]:
        rows: list[CellRow] = [self.heading(width, "output", "l: all of it")]
        newest = self.rows(height - 1)
        if not newest:
            return [*rows, [(" no output was written" if self.over else " no output yet", "dim")]]
        for row in newest:
            rows.append([(" ", "text"), *row])
        return rows


class PlanBrief(PictureCells):
    """The newest events keep a few rows."""

    TITLE = "the plan"

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        rows = [line for row in plan_words.course_rows(picture, width) for line in folded(row, width)]
        told = plan_words.event_rows(picture.status.events, picture, whole=False)
        room = height - 1 - min(len(told), 5)
        return [self.heading(width, self.TITLE, "w: all of it"), *rows[:room], *told][:height]


_LABEL = 12
_LEAST_OF_ALL = ("emitted", "avoided", "finish", "at")
"""Rows kept where space is scarce: how it ended is shown above, its last output below."""


class Summary(PictureCells):
    """Shown once the job is over; `brief`: only the most important rows."""

    brief = False
    added: tuple[tuple[str, str], ...] = ()
    """(label, text) that the job's report adds."""
    has_receipt = False

    def wanted(self, picture: Picture, width: int) -> int:
        """Rows that it needs, heading included."""
        return 1 + sum(len(self._folded(told, width)) for _, told in self._said(picture))

    def _said(self, picture: Picture) -> list[tuple[str, str]]:
        def of(field: str) -> str:
            return words.marked("", words.mark(picture.status, field))

        status = picture.status
        least = () if self.added else _LEAST_OF_ALL
        rows = [*(row for row in summary(status, of) if not self.brief or row[0] in least), *self.added]
        yours = "carbontui run ... -- python train.py"
        return [*rows, ("now yours", yours)] if status.replayed and status.state == "done" else rows

    @staticmethod
    def _folded(text: str, width: int) -> list[str]:
        return textwrap.wrap(text, max(8, width - _LABEL)) or [""]

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        keys = "y copies the receipt · m Markdown · v SVG" if self.has_receipt else ""
        rows: list[CellRow] = [self.heading(width, "the job is over", keys)]
        saved = (picture.status.avoided_g or 0.0) > 0
        inks = {"avoided": "running"} if saved else {}
        for label, told in self._said(picture):
            for index, line in enumerate(self._folded(told, width)):
                shown = label if index == 0 else ""
                rows.append([(f" {shown:<10} ", "dim"), (line, inks.get(label, "text"))])
        return rows
