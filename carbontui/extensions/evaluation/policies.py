"""What decides in a backtest: carbontui's rolling plan and the simple rules, each on what is known at the time."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from carbontui.assumed.job import Grid
from carbontui.extensions.evaluation.issued import Predictor
from carbontui.plan.evaluation import evaluate, spelled_out
from carbontui.plan.graph import build
from carbontui.plan.problem import Problem
from carbontui.plan.results import Evaluation, Schedule
from carbontui.plan.rivals import baselines, evaluated, steady
from carbontui.plan.rolling import energy_kwh, patient, replan
from carbontui.units import J_PER_KWH

NEO_G = 300.0
NEO_WAIT_S = 24 * 3600.0
"""NEO starts at or below this intensity (gCO2/kWh), or after its longest wait."""
CATS_S = 48 * 3600.0
"""CATS looks this far ahead: as far as the British forecast it uses reaches."""


def rules(grid: Grid, known: Knowledge) -> dict[str, Policy]:
    """The rules by name. CarbonShift states two thresholds and leaves open what lies between: its state is kept."""
    return {
        "threshold, CarbonShift": by_quantiles(grid, 0.3, 0.7),
        "threshold, NEO": lambda case: threshold(grid, case, NEO_G, None, NEO_WAIT_S),
        "window, Let's Wait Awhile": lambda case: _start(case, known, lambda grams, wait_s, run_s, now: grams),
        "cheapest slots, Let's Wait Awhile": lambda case: window(case, known, "cheapest slots"),
        "window, CATS": lambda case: _start(
            case, known, lambda grams, wait_s, run_s, now: grams if wait_s + run_s <= CATS_S else math.inf
        ),
        "window, GAIA": lambda case: _start(
            case, known, lambda grams, wait_s, run_s, now: (grams - now) / (wait_s + run_s)
        ),
    }


def _start(case: Case, known: Knowledge, score: Callable[[float, float, float, float], float]) -> list[int]:
    """Wait at the initial level, then run at full speed: the start of the least `score(sum, wait_s, run_s, sum if
    started now)`, where a sum is gCO2/kWh times seconds of the window; at once where none fits."""
    problem, edges = case.problem, case.edges
    ci = known.intensity(edges)
    fast, first = problem.fastest, problem.initial_level
    into_s = problem.switch_s[first][fast] or 0.0
    run_s = problem.work_s / problem.levels[fast].speed + into_s

    def total(begin: int) -> float:
        end_s = edges[begin] + run_s
        return math.fsum(
            value * max(0.0, min(b, end_s) - a)
            for value, (a, b) in zip(ci[begin:], itertools.pairwise(edges[begin:]), strict=True)
        )

    starts = [k for k in range(len(ci)) if edges[k] + run_s <= edges[-1] + 1e-6] or [0]
    now = total(0)
    best = min(starts, key=lambda k: score(total(k), edges[k] - edges[0], run_s, now))
    return [first] * best + [fast] * (len(ci) - best)


WEEK_S = 7 * 86400.0
HIGH = 1.2816
"""Standard deviations to the upper end of an 80 % band."""


@dataclass(frozen=True, slots=True)
class Case:
    """One job: slot edges in epoch seconds and its problem on the realised grid."""

    edges: tuple[float, ...]
    problem: Problem


Policy = Callable[[Case], Sequence[int]]


class PolicyOutcome(NamedTuple):
    """The schedule of a policy in one case: the level index of each slot, and the figures of `evaluate`."""

    levels: tuple[int, ...]
    figures: Evaluation


def outcome(case: Case, policy: Policy) -> PolicyOutcome:
    """What a policy does in a case, on the realised grid."""
    levels = tuple(policy(case))
    figures = evaluate(replace(case.problem, price_of_time=0.0), levels)
    return PolicyOutcome(spelled_out(case.problem, levels, figures.finish_s), figures)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known at a time: expected intensities of the slots from then on, and prices where there are any."""

    grid: Grid
    intensity: Predictor
    price: Predictor | None = None

    def expected(self, rest: Problem, edges: Sequence[float]) -> tuple[Problem, list[float]]:
        """The problem as it is expected at `edges[0]`, and one standard deviation of its objective per kWh by slot."""
        seen = replace(rest, ci_g_per_kwh=tuple(self.intensity(edges)))
        spread = [rest.beta * sd for sd in self.intensity.spread(edges)]
        if self.price is not None:
            seen = replace(seen, price_per_kwh=tuple(self.price(edges)))
            money = [rest.alpha * sd for sd in self.price.spread(edges)]
            spread = [math.hypot(a, b) for a, b in zip(spread, money, strict=True)]
        return seen, spread


def rolling(
    case: Case, known: Knowledge, *, work: float = 1.0, speed: float = 1.0, most_g: float = math.inf
) -> list[int]:
    """As a job does it: plan the rest whenever a new value of the grid is known, keep the plan in force unless another
    gains more than noise, and execute the first slot. `work` and `speed` are what is taken for true, as shares of the
    truth: of the work that is left, until half of it is done, and of the speed under every cap. `most_g` is its carbon
    budget: the band's upper end of what it emits is to keep within it."""
    whole = case.problem
    fastest = whole.levels[whole.fastest].speed
    levels_taken = tuple(
        structs.replace(level, speed=min(fastest, level.speed * speed)) if level.speed < fastest else level
        for level in whole.levels
    )
    used_g = 0.0
    levels: list[int] = []
    untouched: float | None = 0.0
    worth = [per_kwh * whole.pue / J_PER_KWH for per_kwh in whole.worth_per_kwh]
    current, age, done, resumes = whole.initial_level, whole.initial_age_slots, 0.0, 0
    plan: tuple[int, ...] = ()
    looked_s = -math.inf
    for k, duration in enumerate(whole.dur_s):
        if case.edges[k] >= looked_s:
            looked_s = known.grid.end_of_step(case.edges[k])
            left = None if whole.max_resumes is None else whole.max_resumes - resumes
            share = work if done < whole.work_s / 2 else 1.0
            rest = replace(
                whole,
                dur_s=whole.dur_s[k:],
                ci_g_per_kwh=whole.ci_g_per_kwh[k:],
                price_per_kwh=whole.price_per_kwh and whole.price_per_kwh[k:],
                levels=levels_taken,
                work_s=share * (whole.work_s - done),
                initial_level=current,
                initial_age_slots=age,
                max_resumes=left,
            )
            seen, spread = known.expected(rest, case.edges[k:])
            plan = _planned(seen, plan or None, spread, untouched, most_g - used_g)
        level, plan = plan[0], plan[1:]
        if level < 0:
            break
        levels.append(level)
        held, running = whole.levels[level], whole.levels[level].running
        lost = 0.0 if level == current else min(whole.switch_s[current][level] or 0.0, duration)
        joules = held.power_w * (duration - lost) + whole.switch_w[current][level] * lost + whole.host_w * duration
        used_g += joules * whole.pue / J_PER_KWH * whole.ci_g_per_kwh[k]
        untouched = None if untouched is None or level != whole.fastest else untouched + worth[k] * joules
        if running != whole.levels[current].running:
            age, resumes = 0, resumes + running
        current, age = level, age + 1
        done += held.speed * (duration - lost)
        if done >= whole.work_s - whole.finish_tolerance:
            break
    return levels


def _planned(
    expected: Problem, kept: tuple[int, ...] | None, spread: list[float], untouched: float | None, left_g: float
) -> tuple[int, ...]:
    def made(problem: Problem, floor: bool) -> tuple[Schedule, bool]:
        return replan(problem, kept, spread, untouched=untouched if floor else None)

    def fits(one: Schedule) -> bool:
        return one.gco2 + HIGH * math.fsum(map(operator.mul, energy_kwh(expected, one.levels), spread)) <= left_g

    return patient(expected, made, fits if left_g < math.inf else None)[1].levels


def best_constant(case: Case) -> tuple[int, ...]:
    """The best level to hold throughout, chosen in hindsight."""
    _, *constant = evaluated(case.problem, steady(build(case.problem)))
    held = [b for b in constant if b.feasible]
    return min(held, key=lambda b: b.objective).levels if held else ()


def window(case: Case, known: Knowledge, name: str = "best window") -> tuple[int, ...]:
    """The best start by the forecast at the beginning; runs without a break from there."""
    expected, _ = known.expected(case.problem, case.edges)
    return next((b.levels for b in baselines(expected) if b.name == name and b.feasible), ())


def by_quantiles(grid: Grid, resume: float, suspend: float | None) -> Policy:
    """`threshold` at quantiles of the week before the start."""

    def policy(case: Case) -> list[int]:
        week = sorted(grid.values_of(case.edges[0] - WEEK_S, case.edges[0])) or [0.0]
        low, high = (week[min(len(week) - 1, int(q * len(week)))] for q in (resume, suspend or 1.0))
        return threshold(grid, case, low, None if suspend is None else high)

    return policy


def threshold(grid: Grid, case: Case, resume: float, suspend: float | None, max_wait_s: float = math.inf) -> list[int]:
    """Start at or below `resume`, or after `max_wait_s`; stop above `suspend` (None: never); run when the remaining
    work no longer fits."""
    problem = case.problem
    fast = problem.fastest
    rests = [
        (time, j)
        for j, level in enumerate(problem.levels)
        if not level.running and problem.switch_s[fast][j] is not None
        for time in [problem.switch_s[j][fast]]
        if time is not None
    ]
    current, done = problem.initial_level, 0.0
    running = problem.levels[current].running
    levels = []
    for k, duration in enumerate(problem.dur_s):
        value = grid.at(case.edges[k])
        want = value <= resume if not running else suspend is None or value <= suspend
        waited = case.edges[k] - case.edges[0] >= max_wait_s
        rest = current if not running else min(rests)[1] if rests else fast
        back = problem.switch_s[rest][fast] or 0.0
        fits = (problem.work_s - done) / problem.levels[fast].speed + back <= case.edges[-1] - case.edges[k + 1] + 1e-6
        level = fast if want or waited or not fits else rest
        lost = 0.0 if level == current else min(problem.switch_s[current][level] or 0.0, duration)
        done += problem.levels[level].speed * (duration - lost)
        current, running = level, problem.levels[level].running
        levels.append(level)
    return levels
