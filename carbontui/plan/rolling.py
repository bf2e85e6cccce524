"""Re-planning: every slot, on a new forecast, when progress drifts, on a user's command.

Dwell carries over through `initial.age_slots` of the new problem. Every simple rule is a rival of each new plan. A plan
better than the one in force by less than its own uncertainty only follows noise, so the kept schedule stays unless the
new one is better by more. Where the forecast's error is known by slot, no plan is followed with which the whole job may
well end far above running now; what has been lost or won until now counts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, groupby

import numpy as np
from msgspec.structs import replace

from carbontui.plan.evaluation import evaluate, spelled_out
from carbontui.plan.graph import fixed_levels
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, with_weight_added
from carbontui.plan.results import PolicyResult, Schedule, plan_of, policy_result
from carbontui.units import J_PER_KWH

BREAKS_MAX = 16
"""Each break is another solve; pauses still too long after these are left to the caller."""
SURE = 0.3
"""A new plan must gain more than this share of the standard deviation of its difference to what it replaces, where that
is known by slot. Measured, pauses alone, share of perfect foresight at 0, 0.3, 1 and 2: DE 8 h 93, 96, 96, 95 %."""
REGRET = 0.1
"""How far a job may end above having run at once, as a share of that."""
FEARS = (0.3, 1.0)
"""Shares of an error of `ERR` that a plan is made to fear for every hour in which running now draws nothing."""
ALIKE_S = 6 * 3600.0
"""Forecast errors this far apart correlate by a half."""
ERR = 0.84
"""Standard deviations: one in five errors is larger. Measured with own forecasts, pauses alone, 24 h of work in three
times the time: at 1.28, judged from now on alone, GB 2023 saves 13 % (the worst of 30 jobs +7), so 22 % (+9), of 32 %;
DE 2023 10 % (+7) and 12 % (+32), of 25 %; without any bound 24 (+7) and 16 % (+37), and 8 h of GB +36."""


@dataclasses.dataclass(frozen=True, slots=True)
class AtOnce:
    """Running at once from the job's start, as of now: its work left (reference seconds), what it would have cost so
    far and what the job has cost instead (units of the objective)."""

    left_s: float
    had: float = 0.0
    spent: float = 0.0


def replan(
    problem: Problem,
    kept: Sequence[int | None] | None,
    uncertainty: float | Sequence[float] = 0.0,
    fixed: Mapping[int, int] | None = None,
    tol: float = 1e-3,
    max_pause_s: float = math.inf,
    still_s: float = 0.0,
    pausing: Collection[int] | None = None,
    since: AtOnce | None = None,
) -> tuple[Schedule, bool]:
    """The plan to follow from now on, and whether it differs from the kept one.

    `kept` is the rest of the current schedule, from this problem's slot 0 on (None: there is none). `uncertainty` is
    either the relative standard error of a forecast difference (0.05 = 5 %) or one standard deviation per slot, in
    units of the objective per kWh; the kept schedule stays while it is on time, breaks no rule, obeys `fixed`, and the
    new one is better by no more than that error of the two plans' difference (by slot: a share of it, `SURE`). An error
    by slot also says whether the job may end too far above running now (`REGRET`): from now on, or `since` its start.

    No pause is longer than `max_pause_s` (`still_s` of the current one have already passed; a pause is a slot at one of
    the levels `pausing`, by default any that does not run): a longer one is broken by running in its cleanest slot, and
    the rest is re-planned around it or kept, whichever is better. This is a heuristic, so the bound stays that of the
    plan without breaks. Raises as `solve` does.
    """
    rests = [j for j, level in enumerate(problem.levels) if not level.running] if pausing is None else pausing
    held = dict(fixed or {})
    plan, changed = _replan(problem, kept, uncertainty, held, tol, since)
    bound = plan.lower_bound
    shorter = broken(problem, plan.levels, max_pause_s, still_s, pausing, fixed)
    for _ in range(BREAKS_MAX):
        slot = _break(problem, plan.levels, rests, held, max_pause_s, still_s)
        if slot is None:
            break
        held[slot] = problem.fastest
        plan, changed = _replan(problem, kept, uncertainty, held, tol, since)
    if len(held) > len(fixed or {}):
        levels, figures = plan.levels, evaluate(problem, plan.levels)
        # re-planning at each break moves the pauses, and may end up worse than the first plan with its pauses broken,
        # or than none at all
        for other in (shorter, solve(_restless(problem, rests), tol=tol, fixed=fixed or None, compare=False).levels):
            did = evaluate(problem, other)
            fair = (did.violations, did.late_s) == (figures.violations, figures.late_s)
            short = _break(problem, other, rests, fixed or {}, max_pause_s, still_s) is None
            if fair and short and did.objective < figures.objective:
                levels, figures, changed = spelled_out(problem, other, did.finish_s), did, True
        plan = plan_of(levels, figures, bound, plan.stage, tol, plan.baselines)
    return plan, changed


def _restless(problem: Problem, rests: Collection[int]) -> Problem:
    """The problem in which it does not pay to stand still at the levels `rests`."""
    levels = (
        replace(one, power_w=1e3 * (1.0 + one.power_w)) if j in rests else one for j, one in enumerate(problem.levels)
    )
    return dataclasses.replace(problem, levels=tuple(levels))


def broken(
    problem: Problem,
    levels: Sequence[int],
    max_pause_s: float = math.inf,
    still_s: float = 0.0,
    pausing: Collection[int] | None = None,
    fixed: Mapping[int, int] | None = None,
) -> tuple[int, ...]:
    """The schedule with its pauses broken as in `replan`, but not re-planned: not optimal, with no pause too long. It
    may break a rule or be late where `levels` did not."""
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
    fixed_levels: Mapping[int, int],
    max_pause_s: float,
    still_s: float,
) -> int | None:
    """The slot that should run so that the first overlong pause ends in time; None when no pause is too long.

    The cleanest slot that leaves at most `max_pause_s` on both sides, else the last with at most that before it, else
    the first free slot.
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
        free = [entry for entry in reach if entry[0] not in fixed_levels]
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
    since: AtOnce | None,
) -> tuple[Schedule, bool]:
    plan = solve(problem, tol=tol, fixed=fixed or None)
    before = None if kept is None else _in_force(problem, kept, plan, fixed)
    chosen = plan
    if before is not None:
        least = _noise(problem, before.levels, plan.levels, uncertainty) + 1e-12 * abs(before.objective)
        if before.objective - plan.objective <= least:
            chosen = plan_of(before.levels, before, plan.lower_bound, plan.stage, tol, plan.baselines)
    if not isinstance(uncertainty, int | float) and not fixed and not plan.late_s:
        chosen = _bounded(problem, chosen, uncertainty, tol, since)
    return chosen, before is None or chosen.levels != before.levels


def _in_force(
    problem: Problem, kept: Sequence[int | None], plan: Schedule, fixed: Mapping[int, int]
) -> PolicyResult | None:
    """The kept schedule, spelled out; None where it does not obey `fixed`, or breaks a rule or is late where the new
    plan is not."""
    if any(level is not None and level >= len(problem.levels) for level in kept):
        return None
    figures = evaluate(problem, kept)
    # a kept plan may end before this problem does (a longer budget): what it implies then is written as well
    schedule = spelled_out(problem, kept, figures.finish_s)
    held = fixed_levels(problem, fixed).tolist()
    obeys = all(_feasible(problem, want, have) for want, have in zip(held, schedule, strict=True))
    if not obeys or figures.violations != plan.violations or figures.late_s > plan.late_s:
        return None
    return policy_result("kept", schedule, figures)


def _bounded(problem: Problem, plan: Schedule, spread: Sequence[float], tol: float, since: AtOnce | None) -> Schedule:
    """The plan, unless the job may well end more than `REGRET` above running at once: then one that fears what is to
    come, as little as it takes; where nothing is enough, the one with the least to fear."""
    now = next((rival for rival in plan.baselines if rival.name == "run now" and rival.feasible), None)
    if now is None or now.objective <= 0:
        return plan
    since = since or AtOnce(problem.work_s)
    course = _energy_kwh(dataclasses.replace(problem, work_s=since.left_s), ())
    price = problem.price_per_kwh or (0.0,) * len(course)
    rest = (
        e * (problem.alpha * money + problem.beta * ci)
        for e, money, ci in zip(course, price, problem.ci_g_per_kwh, strict=True)
    )
    most = (1 + REGRET) * (since.had + math.fsum(rest)) - since.spent

    def feared(levels: Sequence[int], objective: float) -> float:
        more = [a - b for a, b in zip(_energy_kwh(problem, levels), course, strict=True)]
        return objective + ERR * _error(problem, more, spread)

    chosen, least = plan, feared(plan.levels, plan.objective)
    if least <= most:
        return plan
    full = problem.levels[problem.fastest].power_w + problem.host_w
    whole = (full * d * problem.pue / J_PER_KWH for d in problem.dur_s)
    waits = [1 - min(1.0, b / w) for b, w in zip(_energy_kwh(problem, now.levels), whole, strict=True)]
    for fear in (*FEARS, None):
        levels = spelled_out(problem, now.levels, now.finish_s)
        if fear is not None:
            added = [fear * ERR * s * wait for s, wait in zip(spread, waits, strict=True)]
            levels = solve(with_weight_added(problem, added), tol=tol, compare=False).levels
        did = evaluate(problem, levels)
        worst = feared(levels, did.objective)
        if worst < least:
            chosen, least = plan_of(levels, did, plan.lower_bound, plan.stage, tol, plan.baselines), worst
        if worst <= most:
            break
    return chosen


def _error(problem: Problem, energy_kwh: Sequence[float], spread: Sequence[float]) -> float:
    """One standard deviation of the objective of `energy_kwh` by slot (less than 0: spared), in which errors an
    interval apart are alike by `ALIKE_S`."""
    own = np.array([e * s for e, s in zip(energy_kwh, spread, strict=True)])
    at = np.cumsum(problem.dur_s)
    return float(np.sqrt(max(0.0, own @ (0.5 ** (np.abs(at[:, None] - at[None, :]) / ALIKE_S)) @ own)))


def _energy_kwh(problem: Problem, levels: Sequence[int]) -> list[float]:
    """Energy of each slot, switches left out."""
    out, left = [], problem.work_s
    for level, duration in zip((*levels, *(-1,) * len(problem.dur_s)), problem.dur_s, strict=False):
        held = problem.levels[problem.fastest if level < 0 else level]
        use = (
            0.0 if left <= problem.finish_tolerance else min(duration, left / held.speed) if held.running else duration
        )
        left -= held.speed * use
        out.append((held.power_w + problem.host_w) * use * problem.pue / J_PER_KWH)
    return out


def _feasible(problem: Problem, want: int, have: int) -> bool:
    """Whether a slot's level `have` is the one it is fixed to; after the finish (-1) there is nothing to fix."""
    stands = want == len(problem.levels) and not problem.levels[have].running
    return have < 0 or stands or want in (-1, have)


def _noise(problem: Problem, kept: Sequence[int], new: Sequence[int], uncertainty: float | Sequence[float]) -> float:
    """One standard deviation of the difference between two schedules: only slots in which they differ carry error.

    Errors of neighbouring hours are correlated, so they are added, not squared: the conservative choice.
    """
    watts = [level.power_w + problem.host_w for level in problem.levels] + [0.0]
    differs = [
        abs(watts[a] - watts[b]) * d * problem.pue / J_PER_KWH for a, b, d in zip(kept, new, problem.dur_s, strict=True)
    ]
    prices = problem.price_per_kwh or (0.0,) * len(problem.dur_s)
    if isinstance(uncertainty, int | float):
        weights = (
            abs(problem.alpha * price) + problem.beta * ci
            for price, ci in zip(prices, problem.ci_g_per_kwh, strict=True)
        )
        # moving energy from one slot to another counts it in both, but the error is of their difference: hence half
        return 0.5 * float(uncertainty) * math.fsum(e * w for e, w in zip(differs, weights, strict=True))
    return 0.5 * SURE * math.fsum(e * s for e, s in zip(differs, uncertainty, strict=False))
