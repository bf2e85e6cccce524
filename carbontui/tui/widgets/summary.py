"""The summary of a finished job."""

from __future__ import annotations

import textwrap

from carbontui.text.account import summary
from carbontui.tui import words
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, PictureCells

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
