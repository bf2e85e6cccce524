"""The plan's stretches and the newest user commands, beside the output if the terminal is wide and tall enough."""

from __future__ import annotations

from carbontui.tui import plan_words
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, PictureCells


class PlanBrief(PictureCells):
    """The newest events keep a few rows."""

    TITLE = "the plan"

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        rows = plan_words.course_rows(picture, width)
        told = plan_words.event_rows(picture.status.events, picture, whole=False)
        room = height - 1 - min(len(told), 5)
        return [self.heading(width, self.TITLE, "w: all of it"), *rows[:room], *told][:height]
