"""Results of planning: immutable, free of numpy, plain JSON by `asdict`."""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple

from msgspec import Struct

from carbontui.plan.problem import Problem
from carbontui.units import J_PER_KWH


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive slots at one level, in seconds from slot 0. `ci_g_per_kwh` is the time mean; `gco2` are its grams,
    including the switch into it.

    `gain` are the grams saved against the same work in run-now, at its mean grams per work: those of all windows sum to
    what the plan saves against run-now, and one that does no work costs what its boards draw.
    """

    level: int
    start_s: float
    end_s: float
    ci_g_per_kwh: float
    kwh: float
    gco2: float
    gain: float


def windows(problem: Problem, levels: Sequence[int], now_g: float) -> tuple[Window, ...]:
    """The windows of a schedule (-1 from the finish on), in order; run-now would take `now_g` grams."""
    kwh_per_j = problem.pue / J_PER_KWH
    found, works = [], []
    for level, group in groupby(walk(problem, levels), key=lambda slot: slot.level):
        slots = list(group)
        ci = [problem.ci_g_per_kwh[slot.number] for slot in slots]
        spent_s = [slot.switch_s + slot.use_s for slot in slots]
        kwh = [(slot.switch_j + slot.use_j) * kwh_per_j for slot in slots]
        weighted, seconds = _dot(spent_s, ci), max(math.fsum(spent_s), 1e-9)
        spans = slots[0].start_s, slots[-1].start_s + spent_s[-1]
        found.append(Window(level, *spans, weighted / seconds, math.fsum(kwh), _dot(kwh, ci), 0.0))
        works.append(problem.levels[level].speed * math.fsum(slot.use_s for slot in slots))
    per_work = now_g / (math.fsum(works) or 1.0)
    return tuple(replace(one, gain=per_work * work - one.gco2) for one, work in zip(found, works, strict=True))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, one, other))


class WalkedSlot(NamedTuple):
    """One slot of a schedule: its switch, then the time at its level, which ends with the work. Joules without PUE."""

    number: int
    level: int
    start_s: float
    switch_s: float
    switch_j: float
    use_s: float
    use_j: float


def walk(problem: Problem, levels: Sequence[int]) -> Iterator[WalkedSlot]:
    """The slots of a schedule up to its finish."""
    current, clock, done = problem.initial_level, 0.0, 0.0
    for number, (level, duration) in enumerate(zip(levels, problem.dur_s, strict=False)):
        if level < 0:
            return
        switch_s = 0.0 if level == current else min(problem.switch_s[current][level] or 0.0, duration)
        switch_j = switch_s * (problem.switch_w[current][level] + problem.host_w)
        speed, use_s = problem.levels[level].speed, duration - switch_s
        if speed > 0:
            use_s = min(use_s, max(0.0, problem.work_s - done) / speed)
            done += speed * use_s
        use_j = use_s * (problem.levels[level].power_w + problem.host_w)
        yield WalkedSlot(number, level, clock, switch_s, switch_j, use_s, use_j)
        current, clock = level, clock + duration


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule of a schedule: 'forbidden switch', 'switch longer than slot', 'min dwell' or 'max_resumes'."""

    kind: str
    slot: int
    from_level: int
    to_level: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of a schedule. A late or violating one has figures too: check both before comparing objectives."""

    objective: float
    gco2: float
    cost: float
    kwh: float
    finish_s: float
    late_s: float
    resumes: int
    violations: tuple[Violation, ...] = ()

    @property
    def feasible(self) -> bool:
        """On time and without a broken rule."""
        return self.late_s == 0 and not self.violations


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult(Evaluation):
    """A simple policy's schedule and its figures; `name` is 'run now', 'constant NAME', 'best window', ..."""

    name: str
    levels: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Evaluation):
    """A schedule with its figures and certificate: no schedule of this problem has an objective below `lower_bound`.

    `levels` has one entry per slot, -1 after the finish. `gap` = (objective - lower_bound) / |objective|. `stage` is
    the last one used: 0 nothing to choose, 1 dual, 2 buckets, 3 refined buckets. `certified` when gap <= the
    requested tolerance.
    """

    levels: tuple[int, ...]
    lower_bound: float
    gap: float
    stage: int
    certified: bool
    baselines: tuple[PolicyResult, ...] = ()
    forgone: float = 0.0
    """The share of the whole job that the best plan would save, where that is too little to wait or slow down for."""

    def gap_at_finish(self, price_of_time: float) -> float:
        """How far it can be above the least objective without the price of time (units per second) among all that
        finish no later: of those none is below the lower bound less the price of this finish."""
        own = self.objective - price_of_time * self.finish_s
        return (self.objective - self.lower_bound) / abs(own) if own else 0.0


def policy_result(name: str, levels: tuple[int, ...], figures: Evaluation) -> PolicyResult:
    """A policy's schedule with its figures."""
    return PolicyResult(*_figures(figures), name=name, levels=levels)


def _figures(of: Evaluation) -> tuple[float, float, float, float, float, float, int, tuple[Violation, ...]]:
    return of.objective, of.gco2, of.cost, of.kwh, of.finish_s, of.late_s, of.resumes, of.violations


def plan_of(
    levels: tuple[int, ...],
    figures: Evaluation,
    lower: float,
    stage: int,
    tol: float,
    compared: tuple[PolicyResult, ...] = (),
) -> Schedule:
    """A schedule with its figures and the bound `lower` as a Schedule; `tol` is the gap up to which it is certified."""
    lower = min(lower, figures.objective)
    size = abs(figures.objective)
    gap = (figures.objective - lower) / size if size > 0 else 0.0
    return Schedule(
        *_figures(figures),
        levels=levels,
        lower_bound=lower,
        gap=gap,
        stage=stage,
        certified=gap <= tol,
        baselines=compared,
    )


def run_lengths(levels: tuple[int, ...] | list[int]) -> tuple[tuple[int, int], ...]:
    """[(level index, slots)]; the -1 after the finish is left out."""
    return tuple((level, len(list(run))) for level, run in groupby(levels) if level >= 0)


@dataclass(frozen=True, slots=True)
class PlanFrontierPoint:
    """The best schedule for a deadline: `finish_s` seconds from the start of slot 0, `levels` run-length coded."""

    finish_s: float
    gco2_g: float
    cost: float
    kwh: float
    objective: float
    levels: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlanFrontier:
    """Objective against deadline: `points` by rising finish and falling objective; for the deadline at the end of
    slot k the best is points[at[k]], -1 where no schedule finishes by then. Each point is within the planner's
    quantisation (0.1 %) of the optimum, not certified; solve the chosen one."""

    points: tuple[PlanFrontierPoint, ...]
    at: tuple[int, ...]

    def __iter__(self) -> Iterator[PlanFrontierPoint]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)


Verdict = Literal["nothing_left", "late", "saves", "needs_watts", "best", "unknown"]
"""Against running now: it saves, it only spares watts that other jobs need, nothing is gained, or not comparable."""
Runner = Literal["", "no_room", "too_late", "parked_watts", "no_gain", "unbeaten", "would_save", "would_cost"]
"""Of the policies of the other kind: pausing does not fit, saves less than its time is worth, costs its parked watts,
gains nothing; or, of those without waiting, none beats `runner_name`, or that one would have saved or cost
`runner_value`."""


class Explanation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be said of a plan, as figures; values in `unit`: grams, or the currency of money that it gains."""

    verdict: Verdict
    unit: str = "g"
    waits: bool = False
    late_s: float = 0.0
    saved: float = 0.0
    parked_kwh: float = 0.0
    parked: float = 0.0
    """Drawn while parked: kWh, and its grams or money."""
    switching: float = 0.0
    forgone: float = 0.0
    """The share of the whole job that waiting or slowing down would save, where that is too little."""
    runner: Runner = ""
    runner_name: str = ""
    runner_value: float = 0.0
    runner_w: float = 0.0
    """Watts while parked."""
    rented_s: float = 0.0
    """Seconds that it stands still while rent is due, and below what they cost and save, against running now."""
    rent: float = 0.0
    power: float = 0.0
    grams: float = 0.0
    currency: str = ""


def earliest_within(points: Sequence[tuple[float, float]]) -> list[dict[str, float]]:
    """Of a frontier's (finish_s, gco2_g), soonest first: the earliest with each of `SHARES` of the saving that its end
    has over its beginning."""
    if not points:
        return []
    now_g, least_g = points[0][1], min(gco2_g for _, gco2_g in points)
    found = []
    for share in SHARES:
        most_g = now_g - share * (now_g - least_g) + 1e-9 * abs(now_g)
        finish_s, gco2_g = next(point for point in points if point[1] <= most_g)
        found.append({"share_of_saving": share, "finish_s": finish_s, "gco2_g": gco2_g})
    return found


SHARES = (0.9, 0.95, 0.99)
