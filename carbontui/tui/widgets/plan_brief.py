"""The plan's stretches and the newest user commands, beside the output if the terminal is wide and tall enough."""

from __future__ import annotations

from carbontui.tui import plan_words
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, Cells


class PlanBrief(Cells):
    """`show(picture)`."""

    picture: Picture | None = None

    def show(self, picture: Picture) -> None:
        self.picture = picture
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        head = self.heading(width, "the plan", "w: all of it")
        if self.picture is None:
            return [head]
        rows = plan_words.course_rows(self.picture, width)
        told = plan_words.event_rows(self.picture.status.events, self.picture, whole=False)
        room = height - 1 - (min(len(told), 5) if told else 0)
        return [head, *rows[:room], *told][:height]
