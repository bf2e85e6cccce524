"""The budget: one row to move along, and beneath it what the budget looked at would give against the one in force."""

from __future__ import annotations

from carbontui import protocol, units
from carbontui.tui import words
from carbontui.tui.picture import Choice, Picture
from carbontui.tui.widgets.cells import CellRow, spread, width_of
from carbontui.tui.widgets.frontier_chart import FrontierChart


class BudgetSlider(FrontierChart):
    """`show_choice(picture, choice)`; drag or the screen's arrow keys move it, enter commits, escape returns."""

    picture: Picture | None = None
    choice: Choice | None = None

    def show_choice(self, picture: Picture, choice: Choice | None) -> None:
        self.picture, self.choice = picture, choice
        self.show(picture.frontier, choice.index if choice else None)

    def draw(self, width: int, height: int) -> list[CellRow]:
        picture, frontier = self.picture, self.frontier
        if picture is None or frontier is None or len(frontier.points) < 2:
            return [self._fixed(width)]
        chosen = frontier.chosen
        index = self.choice.index if self.choice else chosen if chosen is not None else 0
        word = words.multiple(frontier.points[index].finish_s, frontier)
        if self.choice is None and picture.status.budget and picture.status.budget.factor:
            word = f"{picture.status.budget.factor:.2f}×"
        columns = width - 10
        cells: CellRow = []
        knob, mark = self._x(index, columns), self._x(chosen, columns) if chosen is not None else None
        looking = self.choice is not None and index != chosen
        ink = "preview" if looking else "strong"
        for x in range(columns):
            if x == knob:
                cells.append((self.glyphs.knob, ink))
            elif x == mark:
                cells.append((self.glyphs.mark, "strong"))
            else:
                cells.append((self.glyphs.track, "dim" if x < knob else "faint"))
        rows: list[CellRow] = [[(" ", "text"), *cells, (f" {word:>8}", ink)]]
        return [*rows, *self._told(picture, frontier, index, width)][:height]

    def _fixed(self, width: int) -> CellRow:
        budget = self.picture.status.budget if self.picture else None
        if budget is None or not budget.work_known:
            return [(" work unknown: say --steps or --work", "dim")]
        factor = f"{budget.factor:.2f}×" if budget.factor else ""
        return spread(width, [(f" budget {factor}", "dim")], self._deadline())

    def _deadline(self) -> CellRow:
        picture = self.picture
        if picture is None or picture.status.budget is None or not picture.status.budget.deadline:
            return []
        at = words.clock_iso(picture.status.budget.deadline, picture.now_s)
        return [("deadline ", "dim"), (f"{at} ", "text")]

    def _x(self, index: int | None, columns: int) -> int:
        last = len(self.frontier.points) - 1 if self.frontier else 1
        return round((index or 0) / max(1, last) * (columns - 1))

    def nearest(self, x: int) -> int | None:
        if self.frontier is None or len(self.frontier.points) < 2:
            return None
        last = len(self.frontier.points) - 1
        columns = max(2, self.content_size.width - 10)
        return min(last, max(0, round((x - 1) / (columns - 1) * last)))

    def _told(self, picture: Picture, frontier: protocol.Frontier, index: int, width: int) -> list[CellRow]:
        choice, now = self.choice, picture.now_s
        budget = picture.status.budget
        point = choice.point if choice else frontier.points[index]
        start = units.from_iso(budget.start) if budget else now
        finish = start + point.finish_s
        if choice is None or frontier.chosen is None or index == frontier.chosen:
            # of the plan in force, which the frontier's own point may differ from: a plan is kept for a small gain
            done: CellRow = [(" finish ", "dim"), (words.finish(picture.status, now), "text")]
            limit = self._deadline()
            if width_of([*done, *limit]) + 2 > width:
                limit = [("due ", "dim"), *limit[1:]]
            return [spread(width, done, limit), [(" ", "dim"), *self._keys(width)]]
        if choice.error:
            return [[(f" {choice.error}", "warning")]]
        base = frontier.points[frontier.chosen]
        later = point.finish_s - base.finish_s
        less = point.gco2_g - base.gco2_g
        told: CellRow = [
            (" CO₂ ", "dim"),
            (_signed(less, units.fmt_grams(abs(less))), "running" if less <= 0 else "warning"),
            ("  finish ", "dim"),
            (_signed(later, units.fmt_duration(abs(later))), "text"),
        ]
        currency = picture.status.cost.currency if picture.status.cost else ""
        money = point.cost - base.cost
        second: CellRow = [(" ends ", "dim"), (words.clock(finish, now), "preview")]
        if currency:
            second += [("  cost ", "dim"), (_signed(money, units.fmt_money(abs(money), currency)), "text")]
        return [told, second]

    def _keys(self, width: int) -> CellRow:
        return [("← → move the budget", "faint")] if width >= 30 else []


def _signed(value: float, size: str) -> str:
    """'−1.2 kg' or '+3 h 05'; a true minus reads better beside digits, and ASCII turns it back."""
    return ("-" if value < 0 else "+") + size
