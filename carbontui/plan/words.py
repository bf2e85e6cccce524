"""A plan in one or two sentences, made from its own numbers alone: the same plan gives the same text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import groupby

from carbontui.plan.course import StretchWords, course
from carbontui.plan.problem import Problem
from carbontui.plan.results import Baseline, Schedule
from carbontui.plan.rivals import baselines
from carbontui.units import J_PER_KWH, fmt_duration, fmt_grams, fmt_kwh, fmt_money

_DOING = {"pause": "pausing", "paused": "pausing", "unload": "unloading", "off": "waiting"}


@dataclass(frozen=True)
class Waste:
    """Energy drawn without doing work: kWh and its grams or money while parked, and while switching."""

    parked_kwh: float
    parked_value: float
    switch_value: float


def explain(
    problem: Problem,
    plan: Schedule,
    names: Sequence[str] | None = None,
    start_s: float | None = None,
    tz: tzinfo | None = None,
    currency: str | None = None,
) -> str:
    """The next switches, what waiting costs, what the plan saves, and the runner-up.

    `names` replaces the levels' own names. With `start_s` (epoch seconds of slot 0) times are clock times in `tz`
    (default: local), else durations from now. Amounts are grams, or money when the objective is money alone.
    """
    if problem.work_s <= problem.finish_tolerance:
        return "Nothing is left to do."
    labels = list(names) if names is not None else [level.name for level in problem.levels]
    when = _clock(start_s, tz)
    money = problem.beta == 0 and problem.alpha > 0

    def amount(value: float) -> str:
        return fmt_money(abs(value), currency or "in the price's currency") if money else fmt_grams(abs(value))

    if plan.late_s > 0:
        return (
            f"The work does not fit before the deadline: flat out it finishes {fmt_duration(plan.late_s)} late, "
            f"{when(plan.finish_s)}."
        )
    rivals = plan.baselines or baselines(problem)
    now = next((r for r in rivals if r.name == "run now"), None)
    shared = any(map(any, problem.shadow_per_h or ()))
    course = _course(problem, plan, labels, when)
    waste = _waste(problem, plan.levels, money)
    first = f"{course[0].upper()}{course[1:]}"
    if now is not None and now.evaluation.feasible:
        saved = _value(now, money) - (plan.cost if money else plan.gco2)
        if saved > 1e-9 * abs(_value(now, money)):
            first += f" saves {amount(saved)} against running now"
        elif shared and now.evaluation.objective > plan.objective * (1 + 1e-6):
            first += ": running now would emit no more, but use watts that other jobs need"
        else:
            first += ": running now is already the best"
    if waste.parked_kwh > 0:
        first += f", after {amount(waste.parked_value)} ({fmt_kwh(waste.parked_kwh)}) drawn while parked"
        if waste.switch_value > 0:
            first += f" and {amount(waste.switch_value)} for switching"
    sentences = [first]
    if now is not None and not shared:  # the next best by grams alone is not a runner-up
        sentences += _runner_up(problem, plan, rivals, now, labels, money, amount)
    return "; ".join(sentences) + "."


def _course(problem: Problem, plan: Schedule, labels: Sequence[str], when: Callable[[float], str]) -> str:
    clock, runs = 0.0, []
    for level, group in groupby(zip(plan.levels, problem.dur_s, strict=True), key=lambda pair: pair[0]):
        clock += sum(duration for _, duration in group)
        runs.append((level, min(clock, plan.finish_s)))
    runs = [(level, end) for level, end in runs if level >= 0]
    return course(
        [
            StretchWords(_doing(problem, level, labels), problem.levels[level].speed <= 0, when(end))
            for level, end in runs
        ]
    )


def _doing(problem: Problem, level: int, labels: Sequence[str]) -> str:
    if problem.levels[level].running:
        return f"running at {labels[level]}"
    return _DOING.get(labels[level].lower(), f"holding at {labels[level]}")


def _runner_up(
    problem: Problem,
    plan: Schedule,
    rivals: Sequence[Baseline],
    now: Baseline,
    labels: Sequence[str],
    money: bool,
    amount: Callable[[float], str],
) -> list[str]:
    """The best policy of the other kind: one without waiting when the plan waits, one that waits when it does not."""
    waits = _waits(problem, plan.levels)
    others = [r for r in rivals if r.evaluation.feasible and _waits(problem, r.levels) != waits]
    can_wait = any(not level.running for level in problem.levels)
    if not others:
        return [] if waits or not can_wait else ["pausing does not fit in this budget"]
    best = min(others, key=lambda r: r.evaluation.objective)
    figure = _value(best, money)
    if not waits:
        more = figure - (plan.cost if money else plan.gco2)
        watts = max(problem.levels[j].power_w + problem.host_w for j in best.levels if not problem.levels[j].running)
        if more < 0:
            return []
        if more <= 1e-3 * abs(figure):
            return ["waiting gains nothing here"]
        word = "cost" if money else "emit"
        how = f"pausing does not pay here: at {watts:.0f} W parked" if watts >= 1 else "waiting does not pay here:"
        return [f"{how} the best such policy would {word} {amount(more)} more"]
    saved = _value(now, money) - figure
    name = best.name.removeprefix("constant ")
    for level, label in zip(problem.levels, labels, strict=True):
        name = label if name == level.name else name
    what = "running now" if best.name == "run now" else f"{name} throughout"
    if abs(saved) <= 1e-9 * abs(_value(now, money)):
        return [f"without waiting nothing beats {'running now' if what == 'running now' else what}"]
    return [f"{what} would have {'saved' if saved > 0 else 'cost'} {amount(saved)}{'' if saved > 0 else ' more'}"]


def _waits(problem: Problem, levels: Sequence[int]) -> bool:
    return any(level >= 0 and not problem.levels[level].running for level in levels)


def _value(baseline: Baseline, money: bool) -> float:
    return baseline.evaluation.cost if money else baseline.evaluation.gco2


def _waste(problem: Problem, levels: Sequence[int], money: bool) -> Waste:
    prices = problem.price_per_kwh or (0.0,) * len(problem.dur_s)
    parked_kwh = parked = switching = 0.0
    current = problem.initial_level
    for level, duration, ci, price in zip(levels, problem.dur_s, problem.ci_g_per_kwh, prices, strict=True):
        if level < 0:
            break
        weight = price if money else ci
        time = 0.0 if level == current else min(problem.switch_s[current][level] or 0.0, duration)
        watts = problem.switch_w[current][level] + problem.host_w
        switching += time * watts * problem.pue / J_PER_KWH * weight
        if not problem.levels[level].running:
            kwh = (duration - time) * (problem.levels[level].power_w + problem.host_w) * problem.pue / J_PER_KWH
            parked_kwh, parked = parked_kwh + kwh, parked + kwh * weight
        current = level
    return Waste(parked_kwh, parked, switching)


def _clock(start_s: float | None, tz: tzinfo | None) -> Callable[[float], str]:
    """Formats seconds from now as a clock time, with the weekday from 20 h on; without `start_s` as a duration."""
    if start_s is None:
        return lambda seconds: f"{fmt_duration(seconds)} from now"
    start = datetime.fromtimestamp(start_s, tz=timezone.utc).astimezone(tz)

    def text(seconds: float) -> str:
        # added in UTC, then shown: local clocks jump twice a year
        moment = (start.astimezone(timezone.utc) + timedelta(seconds=seconds)).astimezone(
            start.tzinfo if tz is None else tz
        )
        return f"{moment:%H:%M}" if seconds < 20 * 3600 else f"{moment:%a %H:%M}"

    return text
