"""What is to be said of a plan, as figures: what it saves, what waiting costs, and the best policy of the other
kind."""

import dataclasses
from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from carbontui.plan.evaluation import evaluate
from carbontui.plan.problem import Problem
from carbontui.plan.results import Explanation, PolicyResult, Runner, Schedule, Verdict, walk
from carbontui.plan.rivals import baselines
from carbontui.units import J_PER_KWH


def stretches(problem: Problem, plan: Schedule) -> tuple[tuple[str, bool, float], ...]:
    """(level, whether it stands still, end in seconds from slot 0) of each stretch."""
    clock, found = 0.0, []
    for level, group in groupby(zip(plan.levels, problem.dur_s, strict=True), key=lambda pair: pair[0]):
        clock += sum(duration for _, duration in group)
        if level >= 0:
            one = problem.levels[level]
            found.append((one.name, not one.running, min(clock, plan.finish_s)))
    return tuple(found)


def explain(problem: Problem, plan: Schedule, currency: str | None = None) -> Explanation:
    """What the plan saves, what waiting costs in it, and the runner-up."""
    if problem.work_s <= problem.finish_tolerance:
        return Explanation(verdict="nothing_left")
    if plan.late_s > 0:
        return Explanation(verdict="late", late_s=plan.late_s)
    rivals = plan.baselines or baselines(problem)
    now = next((r for r in rivals if r.name == "run now"), None)
    # where both count, what the plan gains: money, if it is no grams
    money = problem.alpha > 0 and (problem.beta == 0 or (now is not None and plan.gco2 >= now.gco2))
    shared = any(map(any, problem.shadow_per_h or ()))
    beside = shared or any(level.embodied_g_per_h for level in problem.levels)
    parked_kwh, parked, switching = _waste(problem, plan.levels, money)
    verdict: Verdict = "unknown"
    saved = 0.0
    if now is not None and now.feasible:
        saved = _value(now, money) - (plan.cost if money else plan.gco2)
        verdict = "best"
        if saved > 1e-9 * abs(_value(now, money)):
            verdict = "saves"
        elif shared and now.objective > plan.objective * (1 + 1e-6):
            verdict = "needs_watts"
    found = Explanation(
        verdict=verdict,
        unit=(currency or "") if money else "g",
        waits=_waits(problem, plan.levels),
        saved=saved,
        parked_kwh=parked_kwh,
        parked=parked,
        switching=switching,
        forgone=plan.forgone,
    )
    if currency and now is not None:
        found = _with_rent(found, problem, plan, now, currency)
    if now is None or beside:  # the next best by grams alone is not a runner-up
        return found
    return _with_runner_up(found, problem, rivals, now, money)


def _with_rent(
    explanation: Explanation, problem: Problem, plan: Schedule, now: PolicyResult, currency: str
) -> Explanation:
    """With what standing still costs where rent is due meanwhile, and what it saves of power and CO2."""
    rented_s = rent = 0.0
    for slot in walk(problem, plan.levels):
        level = problem.levels[slot.level]
        if not level.running and level.rent_per_h > 0:
            rented_s += slot.use_s
            rent += level.rent_per_h * slot.use_s / 3600.0
    if rented_s <= 0:
        return explanation
    unrented = dataclasses.replace(problem, levels=tuple(replace(level, rent_per_h=0.0) for level in problem.levels))
    power = evaluate(unrented, now.levels).cost - evaluate(unrented, plan.levels).cost
    grams = now.gco2 - plan.gco2
    return replace(explanation, rented_s=rented_s, rent=rent, power=power, grams=grams, currency=currency)


def _with_runner_up(
    explanation: Explanation, problem: Problem, rivals: Sequence[PolicyResult], now: PolicyResult, money: bool
) -> Explanation:
    """With the best policy without waiting where the plan waits. Where it does not, no simple policy that waits is the
    best one of its kind, so no figure is given: only why no pause pays."""
    if not explanation.waits and not explanation.forgone:
        still = [level for level in problem.levels if not level.running]
        if not still:
            return explanation
        others = [r for r in rivals if r.feasible and _waits(problem, r.levels)]
        gain: Runner = "too_late" if problem.price_of_time else "no_gain"
        watts = min(level.power_w + problem.host_w for level in still)
        runner: Runner = "no_room" if not others else "parked_watts" if watts >= 1 else gain
        return replace(explanation, runner=runner, runner_w=watts)
    others = [r for r in rivals if r.feasible and not _waits(problem, r.levels)]
    if not others:
        return explanation
    best = min(others, key=lambda r: r.objective)
    saved = _value(now, money) - _value(best, money)
    level = problem.levels[best.levels[-1] if best.levels[-1] >= 0 else best.levels[0]]
    name = "" if best.name == "run now" else level.name
    if abs(saved) <= 1e-9 * abs(_value(now, money)):
        return replace(explanation, runner="unbeaten", runner_name=name)
    return replace(
        explanation, runner="would_save" if saved > 0 else "would_cost", runner_name=name, runner_value=abs(saved)
    )


def _waits(problem: Problem, levels: Sequence[int]) -> bool:
    return any(level >= 0 and not problem.levels[level].running for level in levels)


def _value(baseline: PolicyResult, money: bool) -> float:
    return baseline.cost if money else baseline.gco2


def _waste(problem: Problem, levels: Sequence[int], money: bool) -> tuple[float, float, float]:
    """Drawn without doing work: kWh parked, their grams or money, and those of the switches."""
    weights = (problem.price_per_kwh or (0.0,) * len(problem.dur_s)) if money else problem.ci_g_per_kwh
    parked_kwh = parked = switching = 0.0
    for slot in walk(problem, levels):
        weight, kwh_per_j = weights[slot.number], problem.pue / J_PER_KWH
        switching += slot.switch_j * kwh_per_j * weight
        if not problem.levels[slot.level].running:
            parked_kwh += slot.use_j * kwh_per_j
            parked += slot.use_j * kwh_per_j * weight
    return parked_kwh, parked, switching
