"""The budget slider: one row to move along, and beneath it the chosen budget's effect against the one in force."""

from carbontui import units
from carbontui.protocol import FrontierPoint
from carbontui.text import figures, situation
from carbontui.text.plan import same_course, unused
from carbontui.tui.model import budget, state_text
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, StyleName, spread, width_of
from carbontui.tui.widgets.frontier_chart import FrontierChart


class BudgetSlider(FrontierChart):
    """`show_choice(picture, choice)`; drag or the screen's arrow keys move it, enter commits, escape returns."""

    TITLE = ""

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        frontier = view_state.frontier
        if frontier is None or len(frontier.points) < 2:
            return [self._fixed(view_state, width), *self._shown(view_state, width)][:height]
        chosen, choice = frontier.chosen, self.choice
        current = budget.position(view_state)
        index = current if current is not None else 0
        if choice is not None:
            index = choice.index if choice.index is not None else budget.nearest_to(view_state, choice, index)
        due_s = budget.in_force(view_state) if choice is None else choice.due_s()
        finish_s = frontier.points[index].finish_s if due_s is None else due_s - view_state.start_s
        factor = finish_s / frontier.reference_s if frontier.reference_s else None
        if choice is None and view_state.status.budget is not None:
            factor = view_state.status.budget.factor or factor  # the reference is by the work as it is known now
        word = f"{factor:.2f}×" if factor else figures.duration(finish_s)
        if choice is not None and choice.index is None:
            word = choice.budget[:8]
        columns = width - 11
        cells_each = (columns - 1) / (len(frontier.points) - 1)
        knob, mark = round(index * cells_each), None if chosen is None else round(chosen * cells_each)
        style_name = "strong" if choice is None else "preview"
        marks = {mark: (palette.MARK, "strong"), knob: (palette.KNOB, style_name)}
        cells = [marks.get(x) or (palette.TRACK, "dim" if x < knob else "faint") for x in range(columns)]
        rows: list[CellRow] = [[(" ", "text"), *cells, (f" {word:>8} ", style_name)]]
        return [*rows, *self._text_rows(view_state, width)][:height]

    def _fixed(self, view_state: ViewState, width: int) -> CellRow:
        current = view_state.status.budget
        if current is None or not current.work_known:
            return [(" total steps unknown", "dim")]
        factor = f"{current.factor:.2f}×" if current.factor else ""
        told: CellRow = [(f" budget {factor}", "dim")]
        return spread(width, told, self._deadline(view_state, told, width))

    def _deadline(self, view_state: ViewState, beside: CellRow, width: int) -> CellRow:
        """The deadline considered, else the one in force, as far as there is room for it."""
        choice = self.choice
        due_s = budget.in_force(view_state) if choice is None else choice.due_s()
        if due_s is None:
            return []
        at, style_name = state_text.clock(due_s, view_state.now_s), "text" if choice is None else "preview"
        for name in ("deadline ", "due "):
            told: CellRow = [(name, "dim"), (f"{at} ", style_name)]
            if width_of([*beside, *told]) + 2 <= width:
                return told
        return []

    def nearest(self, x: int) -> int | None:
        frontier = self.view_state.frontier if self.view_state else None
        if frontier is None or len(frontier.points) < 2:
            return None
        last = len(frontier.points) - 1
        columns = max(2, self.content_size.width - 11)
        return min(last, max(0, round((x - 1) / (columns - 1) * last)))

    def _text_rows(self, view_state: ViewState, width: int) -> list[CellRow]:
        now = view_state.now_s
        if self.choice is None:
            # from the plan in force, which may differ from the frontier's point: small gains do not replace a plan
            done: CellRow = [(" finish ", "dim"), (situation.finish(view_state.status, now), "text")]
            keys = "← → move it · e types it" if width >= 30 else ""
            return [spread(width, done, self._deadline(view_state, done, width)), [(f" {keys}", "dim")]]
        return self._shown(view_state, width)

    def _shown(self, view_state: ViewState, width: int) -> list[CellRow]:
        """The chosen budget's effect against the one in force; all of it from one answer."""
        choice = self.choice
        if choice is None:
            return []
        if choice.error:
            return [[(f" {choice.error}", "warning")]]
        finish = choice.finish_s(view_state.start_s)
        if finish is None:
            return [[(f" {choice.budget}: asking …", "dim")]]
        answer, held, at_s = choice.previewed, view_state.status.finish_expected, finish
        now = None if answer is None else answer.instead
        if answer is not None and answer.finish and now is not None and held is not None:
            # by what it differs from the end that the headline says: reckoned apart, they would be minutes askew
            at_s += units.from_iso(held) - units.from_iso(now.finish)
        ends: CellRow = [(" ends ", "dim"), (state_text.clock(at_s, view_state.now_s), "preview")]
        second = spread(width, ends, self._deadline(view_state, ends, width))
        if answer is not None and now is not None and same_course(answer.plan, now.plan):
            return [[(f" {unused(choice.point, state_text.in_force(view_state))}", "text")], second]
        # an answer is compared with what was solved beside it, a point of the frontier with the frontier's own
        current = now if answer is not None else state_text.in_force(view_state)
        if current is None:
            return [[], second]
        changes: list[tuple[str, str, StyleName]] = []
        grams, money, spent = choice.gco2_g(), choice.cost(), view_state.status.cost
        if grams is not None:
            less = grams - current.gco2_g
            changes.append(("CO₂ ", figures.change(less), "running" if less <= 0 else "warning"))
        if isinstance(current, FrontierPoint):
            ends_s = view_state.start_s + current.finish_s
        else:
            ends_s = units.from_iso(current.finish)
        changes.append(("finish ", figures.signed(finish - ends_s, figures.duration), "text"))
        if money is not None and spent is not None:
            more = figures.signed(money - current.cost, lambda size: figures.money(size, spent.currency))
            changes.append(("cost ", more, "text"))
        return [_beside(changes, width), second]


def _beside(changes: list[tuple[str, str, StyleName]], width: int) -> CellRow:
    """The changes in one row; the last ones go without their names where there is no room, as their units tell them
    apart."""
    row: CellRow = []
    for named in range(len(changes), 0, -1):
        row = []
        for i, (name, value, style_name) in enumerate(changes):
            row += [(f"{'  ' if i else ' '}{name if i < named else ''}", "dim"), (value, style_name)]
        if width_of(row) <= width:
            break
    return row
