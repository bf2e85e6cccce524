"""The deadline that a position of the budget slider stands for: the finish predicted there, with slack.

A deadline at the predicted finish itself would be missed as soon as the prediction moves, which it does by minutes.
What is previewed, commanded and shown is this one deadline; a typed budget is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from carbontui import units
from carbontui.tui.picture import Picture

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


def deadlines(picture: Picture) -> list[float]:
    """The deadline of each point of the frontier."""
    points = picture.frontier.points if picture.frontier else ()
    return [with_slack(picture.start_s + point.finish_s, picture.now_s) for point in points]


def moved(due: Sequence[float], index: int, held_s: float, steps: int) -> int | None:
    """The position `steps` later (earlier where negative) than `index` with a deadline of `held_s`, or the last one
    there; positions that stand for one deadline count once. None where there is none."""
    side = 1 if steps > 0 else -1
    beyond = {at for i, at in enumerate(due) if (i - index) * side > 0 and (at - held_s) * side > 0}
    return due.index(sorted(beyond, reverse=side < 0)[min(abs(steps), len(beyond)) - 1]) if beyond else None


def in_force(picture: Picture) -> float | None:
    """The deadline in force; None without one."""
    budget = picture.status.budget
    return units.from_iso(budget.deadline) if budget is not None and budget.deadline else None


def position(picture: Picture) -> int | None:
    """The position of the budget in force; the plan's own where they lie side by side.

    A plan that would gain too little by waiting ends long before.
    """
    frontier, held_s = picture.frontier, in_force(picture)
    if frontier is None or frontier.chosen is None or held_s is None:
        return frontier.chosen if frontier else None
    last = max((i for i, at in enumerate(deadlines(picture)) if at <= held_s), default=0)
    return last if last > frontier.chosen + 1 else frontier.chosen
