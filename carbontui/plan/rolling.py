"""Planning again and again: every slot, on a new forecast, on drift of progress, on a person's word.

Dwell is carried by `initial.age_slots` of the new problem. A plan that is only better by less than its own
uncertainty is noise followed around the clock, so the kept schedule stays unless the new one wins by more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from carbontui.plan.evaluation import evaluate
from carbontui.plan.graph import Fixed, fixed_levels
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem
from carbontui.plan.results import Plan


def replan(
    problem: Problem,
    kept: Sequence[int | None] | None,
    uncertainty: float | Sequence[float] = 0.0,
    fixed: Fixed = None,
    tol: float = 1e-3,
) -> tuple[Plan, bool]:
    """The plan to follow from now on, and whether it differs from the kept one.

    `kept` is the rest of the schedule in force, from this problem's slot 0 on (None: there is none). `uncertainty` is
    either the relative standard error of a forecast difference (0.05 = 5 %) or one standard deviation per slot in
    gCO2/kWh; the kept schedule stays while it is on time, breaks no rule, obeys `fixed`, and the new one wins by no
    more than that error of the two plans' difference. Raises as `solve` does.
    """
    plan = solve(problem, tol=tol, fixed=fixed)
    if kept is None:
        return plan, True
    held = fixed_levels(problem, fixed)
    schedule = tuple(-1 if level is None else level for level in kept)[: len(problem.dur_s)]
    schedule += (-1,) * (len(problem.dur_s) - len(schedule))
    if any(level >= len(problem.levels) for level in schedule):
        return plan, True
    figures = evaluate(problem, schedule)
    schedule = _outspoken(problem, schedule, figures.finish_s)
    obeys = all(want < 0 or want == have for want, have in zip(held.tolist(), schedule, strict=True))
    if not obeys or figures.violations != plan.violations or figures.late_s > plan.late_s:
        return plan, True
    gain = figures.objective - plan.objective
    if gain > _noise(problem, schedule, plan.levels, uncertainty) + 1e-12 * abs(figures.objective):
        return plan, schedule != plan.levels
    size = abs(figures.objective)
    gap = (figures.objective - plan.lower_bound) / size if size else 0.0
    stay = Plan(
        levels=schedule,
        objective=figures.objective,
        gco2=figures.gco2,
        cost=figures.cost,
        kwh=figures.kwh,
        finish_s=figures.finish_s,
        late_s=figures.late_s,
        lower_bound=min(plan.lower_bound, figures.objective),
        gap=gap,
        stage=plan.stage,
        certified=gap <= tol,
        resumes=figures.resumes,
        violations=figures.violations,
        baselines=plan.baselines,
    )
    return stay, False


def _outspoken(problem: Problem, schedule: Sequence[int], finish_s: float) -> tuple[int, ...]:
    """The same schedule with 'flat out until the work is done' said slot by slot: a kept plan may end before this
    problem does (a longer budget), and who shows it must not take its silence for the end of the work."""
    begins = accumulate(problem.dur_s, initial=0.0)
    return tuple(
        problem.fastest if level < 0 and begin < finish_s else level
        for level, begin in zip(schedule, begins, strict=False)
    )


def _noise(problem: Problem, kept: Sequence[int], new: Sequence[int], uncertainty: float | Sequence[float]) -> float:
    """One standard deviation of the difference between two schedules: only slots in which they differ carry error.

    Errors of neighbouring hours go together, so they are added, not squared: the cautious end.
    """
    watts = [level.power_w + problem.host_w for level in problem.levels] + [0.0]
    differs = [
        abs(watts[a] - watts[b]) * d * problem.pue / 3.6e6 for a, b, d in zip(kept, new, problem.dur_s, strict=True)
    ]
    prices = problem.price_per_kwh or (0.0,) * len(problem.dur_s)
    if isinstance(uncertainty, int | float):
        weights = (
            abs(problem.alpha * price) + problem.beta * ci
            for price, ci in zip(prices, problem.ci_g_per_kwh, strict=True)
        )
        # a schedule that moves energy from one slot to another is wrong by the difference, hence half of both ends
        return 0.5 * float(uncertainty) * math.fsum(e * w for e, w in zip(differs, weights, strict=True))
    return 0.5 * problem.beta * math.fsum(e * s for e, s in zip(differs, uncertainty, strict=False))
