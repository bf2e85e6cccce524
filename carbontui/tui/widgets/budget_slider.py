"""The budget slider: one row to move along, and beneath it the chosen budget's effect against the one in force."""

from __future__ import annotations

from carbontui import units
from carbontui.protocol import FrontierPoint
from carbontui.text import figures, situation
from carbontui.text.plan import same_course
from carbontui.tui.model import budget, words
from carbontui.tui.model.picture import Picture
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, Ink, spread, width_of
from carbontui.tui.widgets.frontier_chart import FrontierChart


class BudgetSlider(FrontierChart):
    """`show_choice(picture, choice)`; drag or the screen's arrow keys move it, enter commits, escape returns."""

    TITLE = ""

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        frontier = picture.frontier
        if frontier is None or len(frontier.points) < 2:
            return [self._fixed(picture, width), *self._looked_at(picture, width)][:height]
        chosen, choice = frontier.chosen, self.choice
        held = budget.position(picture)
        index = held if held is not None else 0
        if choice is not None:
            index = choice.index if choice.index is not None else budget.nearest_to(picture, choice, index)
        due_s = budget.in_force(picture) if choice is None else choice.due_s()
        word = words.multiple(frontier.points[index].finish_s if due_s is None else due_s - picture.start_s, frontier)
        if choice is not None and choice.index is None:
            word = choice.budget[:8]
        columns = width - 11
        cells: CellRow = []
        cells_each = (columns - 1) / (len(frontier.points) - 1)
        knob, mark = round(index * cells_each), None if chosen is None else round(chosen * cells_each)
        ink = "strong" if choice is None else "preview"
        for x in range(columns):
            if x == knob:
                cells.append((palette.KNOB, ink))
            elif x == mark:
                cells.append((palette.MARK, "strong"))
            else:
                cells.append((palette.TRACK, "dim" if x < knob else "faint"))
        rows: list[CellRow] = [[(" ", "text"), *cells, (f" {word:>8} ", ink)]]
        return [*rows, *self._told(picture, width)][:height]

    def _fixed(self, picture: Picture, width: int) -> CellRow:
        held = picture.status.budget
        if held is None or not held.work_known:
            return [(" amount of work not known", "dim")]
        factor = f"{held.factor:.2f}×" if held.factor else ""
        told: CellRow = [(f" budget {factor}", "dim")]
        return spread(width, told, self._deadline(picture, told, width))

    def _deadline(self, picture: Picture, beside: CellRow, width: int) -> CellRow:
        """The deadline considered, else the one in force, as far as there is room for it."""
        choice = self.choice
        due_s = budget.in_force(picture) if choice is None else choice.due_s()
        if due_s is None:
            return []
        at, ink = words.clock(due_s, picture.now_s), "text" if choice is None else "preview"
        for name in ("deadline ", "due "):
            told: CellRow = [(name, "dim"), (f"{at} ", ink)]
            if width_of([*beside, *told]) + 2 <= width:
                return told
        return []

    def nearest(self, x: int) -> int | None:
        frontier = self.picture.frontier if self.picture else None
        if frontier is None or len(frontier.points) < 2:
            return None
        last = len(frontier.points) - 1
        columns = max(2, self.content_size.width - 11)
        return min(last, max(0, round((x - 1) / (columns - 1) * last)))

    def _told(self, picture: Picture, width: int) -> list[CellRow]:
        now = picture.now_s
        if self.choice is None:
            # from the plan in force, which may differ from the frontier's point: small gains do not replace a plan
            done: CellRow = [(" finish ", "dim"), (situation.finish(picture.status, now), "text")]
            keys = "← → move it · e types it" if width >= 30 else ""
            return [spread(width, done, self._deadline(picture, done, width)), [(f" {keys}", "dim")]]
        return self._looked_at(picture, width)

    def _looked_at(self, picture: Picture, width: int) -> list[CellRow]:
        """The chosen budget's effect against the one in force; all of it from one answer."""
        choice = self.choice
        if choice is None:
            return []
        if choice.error:
            return [[(f" {choice.error}", "warning")]]
        finish = choice.finish_s(picture.start_s)
        if finish is None:
            return [[(f" {choice.budget}: asking …", "dim")]]
        now = choice.previewed.instead if choice.previewed is not None else None
        ends: CellRow = [(" ends ", "dim"), (words.clock(finish, picture.now_s), "preview")]
        second = spread(width, ends, self._deadline(picture, ends, width))
        if choice.previewed is not None and now is not None and same_course(choice.previewed.plan, now.plan):
            return [[(" the same plan", "text")], second]
        # an answer is compared with what was solved beside it, a point of the frontier with the frontier's own
        held = now if choice.previewed is not None else words.in_force(picture)
        if held is None:
            return [[], second]
        changes: list[tuple[str, str, Ink]] = []
        grams, money, spent = choice.gco2_g(), choice.cost(), picture.status.cost
        if grams is not None:
            less = grams - held.gco2_g
            changes.append(("CO₂ ", figures.signed(less, figures.grams), "running" if less <= 0 else "warning"))
        ends_s = picture.start_s + held.finish_s if isinstance(held, FrontierPoint) else units.from_iso(held.finish)
        changes.append(("finish ", figures.signed(finish - ends_s, figures.duration), "text"))
        if money is not None and spent is not None:
            more = figures.signed(money - held.cost, lambda size: figures.money(size, spent.currency))
            changes.append(("cost ", more, "text"))
        return [_beside(changes, width), second]


def _beside(changes: list[tuple[str, str, Ink]], width: int) -> CellRow:
    """The changes in one row; the last ones go without their names where there is no room, as their units tell them
    apart."""
    row: CellRow = []
    for named in range(len(changes), 0, -1):
        row = []
        for i, (name, value, ink) in enumerate(changes):
            row += [(f"{'  ' if i else ' '}{name if i < named else ''}", "dim"), (value, ink)]
        if width_of(row) <= width:
            break
    return row
