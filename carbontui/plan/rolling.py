"""Re-planning: every slot, on a new forecast, when progress drifts, on a user's command.

Dwell carries over through `initial.age_slots` of the new problem. A plan is a bet on a forecast against what holds
without it: the schedule in force, or the best constant level on the same forecast, which is what a person would set
instead. It is followed only where it is expected to gain more than the error of that expectation. And while a job has
neither waited nor slowed yet, it does so only for `FLOOR` of the whole.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate, groupby

import numpy as np

from carbontui.plan.evaluation import evaluate, spelled_out
from carbontui.plan.graph import fixed_levels
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem
from carbontui.plan.results import Evaluation, PolicyResult, Schedule, plan_of, policy_result, walk
from carbontui.units import J_PER_KWH

BREAKS_MAX = 16
"""Each break is another solve; pauses still too long after these are left to the caller."""
SURE = STAYS = 1.0
"""Standard deviations of the difference between two schedules by which one must gain on the best constant level, and on
the one in force. What surer guards cost in the mean and win for the worst job: tests/bench/results/guard.md."""
ALIKE_S, LASTING_S, LASTING = 3 * 3600.0, 48 * 3600.0, 0.75
"""Forecast errors correlate by a half this far apart: the one part of their variance, and the share `LASTING`, which is
of the weather's days. Fitted to the errors of six recorded grids (tests/bench/results/guard.md)."""
FLOOR = 0.005
"""Share of the whole job that a plan is expected to save before it first lets the job wait or slow down."""
SHARES_OF_PRICE = (1.0, 0.7, 0.5, 0.3, 0.15, 0.0)


def replan(
    problem: Problem,
    kept: Sequence[int | None] | None,
    uncertainty: float | Sequence[float] = 0.0,
    fixed: Mapping[int, int] | None = None,
    tol: float = 1e-3,
    max_pause_s: float = math.inf,
    still_s: float = 0.0,
    pausing: Collection[int] | None = None,
    untouched: float | None = None,
) -> tuple[Schedule, bool]:
    """The plan to follow from now on, and whether it differs from the kept one.

    `kept` is the rest of the current schedule, from this problem's slot 0 on (None: there is none). `uncertainty` is
    either the relative standard error of a forecast difference (0.05 = 5 %) or one standard deviation per slot, in
    units of the objective per kWh. The kept schedule is in force while it is on time, breaks no rule and obeys `fixed`;
    it gives way to the best constant level, and whichever holds to the new plan, where that gains more than the error
    of their difference (`STAYS`, `SURE`). `untouched`: of a job that has neither waited nor slowed yet, what it has
    taken so far in units of the objective (None: it has, and is not asked about `FLOOR`).

    No pause is longer than `max_pause_s` (`still_s` of the current one have already passed; a pause is a slot at one of
    the levels `pausing`, by default any that does not run): a longer one is broken by running in its cleanest slot, and
    the rest is re-planned around it or kept, whichever is better. This is a heuristic, so the bound stays that of the
    plan without breaks. Raises as `solve` does.
    """
    rests = [j for j, level in enumerate(problem.levels) if not level.running] if pausing is None else pausing
    held = dict(fixed or {})
    plan, changed = _replan(problem, kept, uncertainty, held, tol)
    bound, rivals = plan.lower_bound, plan.baselines
    shorter = broken(problem, plan.levels, max_pause_s, still_s, pausing, fixed)
    for _ in range(BREAKS_MAX):
        slot = _break(problem, plan.levels, rests, held, max_pause_s, still_s)
        if slot is None:
            break
        held[slot] = problem.fastest
        plan, changed = _replan(problem, kept, uncertainty, held, tol)
    if len(held) > len(fixed or {}):
        levels, figures = plan.levels, evaluate(problem, plan.levels)
        # re-planning at each break moves the pauses, and may end up worse than the first plan with its pauses broken,
        # or than a simple rule without any
        for other in (shorter, *(rival.levels for rival in rivals)):
            did = evaluate(problem, other)
            fair = (did.violations, did.late_s) == (figures.violations, figures.late_s)
            short = _break(problem, other, rests, fixed or {}, max_pause_s, still_s) is None
            if fair and short and did.objective < figures.objective:
                levels, figures, changed = spelled_out(problem, other, did.finish_s), did, True
        plan = plan_of(levels, figures, bound, plan.stage, tol, plan.baselines)
    if untouched is not None and not fixed and (low := _too_little(problem, plan, rivals, untouched, tol)):
        return low, kept is None or tuple(kept) != low.levels
    return plan, changed


def patient(
    whole: Problem,
    planned: Callable[[Problem, bool], tuple[Schedule, bool]],
    fits: Callable[[Schedule], bool] | None = None,
) -> tuple[Problem, Schedule, bool]:
    """The problem that was solved, its plan, and whether that differs from the kept one: by the price of time, or by
    the greatest share of it by which the plan `fits` (a budget of carbon, money or energy); without any price where
    none does. `planned` makes a plan, and is told whether `FLOOR` may be asked."""
    for share in SHARES_OF_PRICE if fits and whole.price_of_time else (1.0,):
        problem = dataclasses.replace(whole, price_of_time=share * whole.price_of_time)
        found, changed = planned(problem, share == 1.0)
        if fits is None or fits(found):
            break
    return problem, found, changed


def _too_little(
    problem: Problem, plan: Schedule, rivals: Sequence[PolicyResult], before: float, tol: float
) -> Schedule | None:
    """Running now instead, where the plan saves less than `FLOOR` of the whole; None where it saves more."""
    now = next((rival for rival in rivals if rival.name == "run now" and rival.feasible), None)
    if now is None:
        return None
    whole = before + now.objective - problem.price_of_time * now.finish_s
    saved = now.objective - plan.objective + problem.price_of_time * (plan.finish_s - now.finish_s)
    if saved >= FLOOR * whole or whole <= 0:
        return None
    low = plan_of(spelled_out(problem, now.levels, now.finish_s), now, plan.lower_bound, plan.stage, tol)
    return dataclasses.replace(low, forgone=max(0.0, saved / whole), baselines=plan.baselines)


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
    weight = problem.worth_per_kwh
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
) -> tuple[Schedule, bool]:
    plan = solve(problem, tol=tol, fixed=fixed or None)
    before = None if kept is None else _in_force(problem, kept, plan, fixed)
    steady = [one for one in plan.baselines if one.feasible and one.name.startswith(("run now", "constant"))]
    rivals: list[PolicyResult | Schedule] = [*sorted(steady, key=lambda one: one.objective)[:1], plan]
    held: Evaluation = before or rivals[0]
    levels = before.levels if before else spelled_out(problem, rivals[0].levels, held.finish_s)
    for rival in rivals:
        which = spelled_out(problem, rival.levels, rival.finish_s)
        # how far a schedule is to be doubted beside the best constant level, is only known of a forecast with a band
        doubt = 0.0 if held is not before and isinstance(uncertainty, int | float) else uncertainty
        least = (STAYS if held is before else SURE) * _error(problem, levels, which, doubt)
        if held.objective - rival.objective > least:
            held, levels = rival, which
    chosen = plan if held is plan else plan_of(levels, held, plan.lower_bound, plan.stage, tol, plan.baselines)
    return chosen, before is None or levels != before.levels


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
    still = [j for j, level in enumerate(problem.levels) if not level.running]
    # after the finish (-1) there is nothing to fix
    obeys = all(
        have < 0 or want in (-1, have) or (want == len(problem.levels) and have in still)
        for want, have in zip(held, schedule, strict=True)
    )
    if not obeys or figures.violations != plan.violations or figures.late_s > plan.late_s:
        return None
    return policy_result("kept", schedule, figures)


def _error(problem: Problem, one: Sequence[int], other: Sequence[int], uncertainty: float | Sequence[float]) -> float:
    """One standard deviation of the difference between two schedules, and what sums round to. Of a relative error of
    slots' differences all is added, half in either slot."""
    more = np.subtract(energy_kwh(problem, one), energy_kwh(problem, other))
    moved = float(np.abs(more) @ np.abs(problem.worth_per_kwh))
    if isinstance(uncertainty, int | float):
        return (1e-12 + 0.5 * uncertainty) * moved
    own, at = more * np.array(uncertainty), np.cumsum(problem.dur_s)
    apart_s = np.abs(at[:, None] - at[None, :])
    alike = LASTING * 0.5 ** (apart_s / LASTING_S) + (1 - LASTING) * 0.5 ** (apart_s / ALIKE_S)
    return 1e-12 * moved + float(np.sqrt(max(0.0, own @ alike @ own)))


def energy_kwh(problem: Problem, levels: Sequence[int]) -> list[float]:
    """[T] at the wall."""
    out = [0.0] * len(problem.dur_s)
    for slot in walk(problem, levels):
        out[slot.number] = (slot.switch_j + slot.use_j) * problem.pue / J_PER_KWH
    return out
