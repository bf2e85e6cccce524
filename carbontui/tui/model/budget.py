"""The budget under consideration before it is committed: from the slider or typed, with the supervisor's preview.

A position of the slider stands for the finish predicted there, with slack: a deadline at the predicted finish itself
would be missed as soon as the prediction moves, which it does by minutes. What is previewed, commanded and shown is
this one deadline; a typed budget is taken as it is.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from carbontui import link, protocol, units
from carbontui.tui.model.view_state import Choice, ViewState

SLACK_SHARE = 0.02
"""Of the time still to go: predictions err in proportion to what lies ahead."""
SLACK_LEAST_S = 300.0
CLOCK_STEP_S = 300.0
"""A deadline is a time that people would name: 11:35, not 11:31:42."""


def with_slack(finish_s: float, now_s: float) -> float:
    """The deadline for work predicted to be done at `finish_s`, both epoch seconds."""
    slack_s = max(SLACK_LEAST_S, SLACK_SHARE * (finish_s - now_s))
    return math.ceil((finish_s + slack_s) / CLOCK_STEP_S) * CLOCK_STEP_S


def as_budget(deadline_s: float) -> str:
    """The deadline as `budget` takes it: with its zone, since the supervisor may be in another."""
    return f"{units.iso(deadline_s)[:16]}Z"


def deadlines(view_state: ViewState) -> list[float]:
    """The deadline of each point of the frontier."""
    points = view_state.frontier.points if view_state.frontier else ()
    return [with_slack(view_state.start_s + point.finish_s, view_state.now_s) for point in points]


def moved(due: Sequence[float], index: int, held_s: float, steps: int) -> int | None:
    """The position `steps` later (earlier where negative) than `index` with a deadline of `held_s`, or the last one
    there; positions that stand for one deadline count once. None where there is none."""
    side = 1 if steps > 0 else -1
    beyond = {at for i, at in enumerate(due) if (i - index) * side > 0 and (at - held_s) * side > 0}
    return due.index(sorted(beyond, reverse=side < 0)[min(abs(steps), len(beyond)) - 1]) if beyond else None


def in_force(view_state: ViewState) -> float | None:
    """The deadline in force; None without one."""
    budget = view_state.status.budget
    return units.from_iso(budget.deadline) if budget is not None and budget.deadline else None


def position(view_state: ViewState) -> int | None:
    """The position of the budget in force; the plan's own where they lie side by side.

    A plan that would gain too little by waiting ends long before.
    """
    frontier, held_s = view_state.frontier, in_force(view_state)
    if frontier is None or frontier.chosen is None or held_s is None:
        return frontier.chosen if frontier else None
    last = max((i for i, at in enumerate(deadlines(view_state)) if at <= held_s), default=0)
    return last if last > frontier.chosen + 1 else frontier.chosen


def nearest_to(view_state: ViewState, choice: Choice, otherwise: int) -> int:
    """The frontier point nearest to a typed budget."""
    finish, frontier = choice.finish_s(view_state.start_s), view_state.frontier
    if finish is None or frontier is None:
        return otherwise
    points = frontier.points
    return min(range(len(points)), key=lambda i: abs(view_state.start_s + points[i].finish_s - finish))


PREVIEW_PAUSE_S = 0.06
"""A held arrow key asks for a preview once it rests, not at every step."""

AskPreview = Callable[[protocol.Preview], Awaitable[link.Answer]]


class BudgetChoice:
    """`choice` is the budget considered; None: the budget in force. `changed` is called whenever it changes."""

    def __init__(self, request: AskPreview, changed: Callable[[], None]) -> None:
        self._request, self._changed = request, changed
        self._asking: asyncio.Task[None] | None = None
        self.choice: Choice | None = None

    def step(self, view_state: ViewState, steps: int) -> None:
        """Move along the frontier from the choice, or from the budget in force."""
        choice, due = self.choice, deadlines(view_state)
        at, held_s = position(view_state) or 0, in_force(view_state)
        if choice is not None and choice.index is not None:
            at, held_s = choice.index, choice.deadline_s
        if steps < 0 and (end := view_state.status.finish_expected):
            # a point made before the plan in force may end later than it: tighter is sooner than what is expected
            sooner = [i for i, p in enumerate(view_state.frontier.points if view_state.frontier else ()) if
                      view_state.start_s + p.finish_s < units.from_iso(end)]  # fmt: skip
            due, at = due[: len(sooner)], min(at, len(sooner))
        index = None if held_s is None else moved(due, at, held_s, steps)
        if index is not None:
            self.preview_at(view_state, index)

    def preview_at(self, view_state: ViewState, index: int) -> None:
        frontier = view_state.frontier
        held = position(view_state) if self.choice is None else self.choice.index
        if frontier is not None and index < len(frontier.points) and index != held:
            due_s = deadlines(view_state)[index]
            self._preview(Choice(as_budget(due_s), index, frontier.points[index], due_s))

    def type(self, text: str) -> None:
        """Preview a budget as it is typed; empty text clears the choice."""
        if text.strip():
            self._preview(Choice(text.strip()))
        else:
            self.let_go()

    def let_go(self) -> None:
        if self.choice is not None:
            self.choice = None
            self.stop()
            self._changed()

    def replanned(self, view_state: ViewState) -> None:
        """A new plan is in force: the chosen budget stays the same, its preview is requested again.

        The preview for the old plan is used until then: in the text, on the chart and in what enter commits alike.
        """
        choice = self.choice
        if choice is None:
            return
        index = point = None
        if view_state.frontier is not None and len(view_state.frontier.points) >= 2 and choice.index is not None:
            index = nearest_to(view_state, choice, choice.index)
            point = view_state.frontier.points[index]
        self._preview(replace(choice, index=index, point=point))

    def _preview(self, choice: Choice) -> None:
        self.choice = choice
        self._changed()
        self.stop()
        self._asking = asyncio.create_task(self._ask(choice), name="preview")

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, choice: Choice) -> None:
        await asyncio.sleep(PREVIEW_PAUSE_S)
        try:
            answer = await self._request(protocol.Preview(0, choice.budget))
        except link.LinkError as error:
            found = replace(choice, error=str(error))
        else:
            assert isinstance(answer, protocol.Previewed)
            found = replace(choice, previewed=answer if answer.plan else choice.previewed, error=answer.error or "")
        if self.choice is choice:
            self.choice = found
            self._changed()
