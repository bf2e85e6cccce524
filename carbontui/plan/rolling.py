"""Planning again and again: every slot, on a new forecast, on drift of progress, on a person's word.

Dwell is carried by `initial.age_slots` of the new problem. A plan that is only better by less than its own
uncertainty is noise followed around the clock, so the kept schedule stays unless the new one wins by more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, groupby

from carbontui.plan.evaluation import evaluate
from carbontui.plan.graph import fixed_levels
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem
from carbontui.plan.results import Schedule, plan_of

BREAKS_MAX = 16
"""Each break is another solve; what is left beyond them is for whoever carries the plan out."""


def replan(
    problem: Problem,
    kept: Sequence[int | None] | None,
    uncertainty: float | Sequence[float] = 0.0,
    fixed: Mapping[int, int] | None = None,
    tol: float = 1e-3,
    max_pause_s: float = math.inf,
    still_s: float = 0.0,
    pausing: Collection[int] | None = None,
) -> tuple[Schedule, bool]:
    """The plan to follow from now on, and whether it differs from the kept one.

    `kept` is the rest of the schedule in force, from this problem's slot 0 on (None: there is none). `uncertainty` is
    either the relative standard error of a forecast difference (0.05 = 5 %) or one standard deviation per slot in
    gCO2/kWh; the kept schedule stays while it is on time, breaks no rule, obeys `fixed`, and the new one wins by no
    more than that error of the two plans' difference.

    No pause is longer than `max_pause_s` (of the one that lasts already, `still_s` are over; a pause is a slot at one
    of the levels `pausing`, by default at any that does not run): a longer one is broken by running in its cleanest
    slot, the rest planned anew around it or left as it was, whichever is better. That choice is a simple one, so the
    bound stays that of the plan without breaks. Raises as `solve` does.
    """
    rests = [j for j, level in enumerate(problem.levels) if not level.running] if pausing is None else pausing
    held = dict(fixed or {})
    plan, changed = _replan(problem, kept, uncertainty, held, tol)
    bound = plan.lower_bound
    shorter = broken(problem, plan.levels, max_pause_s, still_s, pausing, fixed)
    for _ in range(BREAKS_MAX):
        slot = _break(problem, plan.levels, rests, held, max_pause_s, still_s)
        if slot is None:
            break
        held[slot] = problem.fastest
        plan, changed = _replan(problem, kept, uncertainty, held, tol)
    if len(held) > len(fixed or {}):
        levels, figures = plan.levels, evaluate(problem, plan.levels)
        # each break planned anew moves the pauses about, and may end up worse than the first plan simply broken
        did = evaluate(problem, shorter)
        fair = (did.violations, did.late_s) == (figures.violations, figures.late_s)
        if fair and did.objective < figures.objective:
            begins = accumulate(problem.dur_s, initial=0.0)
            cut = (j if at < did.finish_s - 1e-9 else -1 for j, at in zip(shorter, begins, strict=False))
            levels, figures, changed = tuple(cut), did, True
        plan = plan_of(levels, figures, bound, plan.stage, tol, plan.baselines)
    return plan, changed


def broken(
    problem: Problem,
    levels: Sequence[int],
    max_pause_s: float = math.inf,
    still_s: float = 0.0,
    pausing: Collection[int] | None = None,
    fixed: Mapping[int, int] | None = None,
) -> tuple[int, ...]:
    """The schedule with its pauses broken as `replan` breaks them, and not planned anew: no optimum, but one that may
    be carried out. It may break a rule or be late where `levels` did not."""
    out = list(levels)
    rests = [j for j, level in enumerate(problem.levels) if not level.running] if pausing is None else pausing
    held = dict(fixed or {})
    while (slot := _break(problem, out, rests, held, max_pause_s, still_s)) is not None:
        out[slot] = held[slot] = problem.fastest
    return tuple(out)


def _break(
    problem: Problem,
    levels: Sequence[int],
    rests: Collection[int],
    held: Mapping[int, int],
    max_pause_s: float,
    still_s: float,
) -> int | None:
    """The slot that should run so that the first pause that is too long ends in time; None when none is too long.

    The cleanest slot of those that leave at most `max_pause_s` on both sides, else the last that leaves it before, else
    at once.
    """
    weight = [
        problem.beta * ci + problem.alpha * price
        for ci, price in zip(problem.ci_g_per_kwh, problem.price_per_kwh or (0.0,) * len(levels), strict=True)
    ]
    at = 0
    for still, group in groupby(levels, key=lambda level: level in rests):
        slots = range(at, at + len(list(group)))
        at = slots.stop
        before = still_s if slots.start == 0 else 0.0
        ends = list(accumulate((problem.dur_s[k] for k in slots), initial=before))
        if not still or ends[-1] <= max_pause_s + 1.0:
            continue
        reach = [(k, begin, ends[-1] - end) for k, begin, end in zip(slots, ends, ends[1:], strict=False)]
        free = [entry for entry in reach if entry[0] not in held]
        soon = [entry for entry in free if entry[1] <= max_pause_s + 1.0]
        both = [entry for entry in soon if entry[2] <= max_pause_s]
        if both:
            return min(both, key=lambda entry: weight[entry[0]])[0]
        if free:
            return (soon[-1] if soon else free[0])[0]
    return None


def _replan(
    problem: Problem,
    kept: Sequence[int | None] | None,
    uncertainty: float | Sequence[float],
    fixed: Mapping[int, int],
    tol: float,
) -> tuple[Schedule, bool]:
    plan = solve(problem, tol=tol, fixed=fixed or None)
    if kept is None:
        return plan, True
    held = fixed_levels(problem, fixed)
    schedule = tuple(-1 if level is None else level for level in kept)[: len(problem.dur_s)]
    schedule += (-1,) * (len(problem.dur_s) - len(schedule))
    if any(level >= len(problem.levels) for level in schedule):
        return plan, True
    figures = evaluate(problem, schedule)
    schedule = _outspoken(problem, schedule, figures.finish_s)
    obeys = all(_obeys(problem, want, have) for want, have in zip(held.tolist(), schedule, strict=True))
    if not obeys or figures.violations != plan.violations or figures.late_s > plan.late_s:
        return plan, True
    gain = figures.objective - plan.objective
    if gain > _noise(problem, schedule, plan.levels, uncertainty) + 1e-12 * abs(figures.objective):
        return plan, schedule != plan.levels
    return plan_of(schedule, figures, plan.lower_bound, plan.stage, tol, plan.baselines), False


def _obeys(problem: Problem, want: int, have: int) -> bool:
    """Whether a slot of a schedule is at the level it is held at; after the finish (-1) nothing runs any more."""
    if want == len(problem.levels):
        return have < 0 or not problem.levels[have].running
    return want < 0 or want == have


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
