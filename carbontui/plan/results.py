"""Results of planning: immutable, free of numpy, plain JSON by `asdict`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from msgspec import Struct


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
Runner = Literal["", "no_room", "parked_watts", "no_gain", "unbeaten", "would_save", "would_cost"]
"""Of the policies of the other kind: pausing does not fit, costs its parked watts, gains nothing; or, of those without
waiting, none beats `runner_name`, or that one would have saved or cost `runner_value`."""


class Explanation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be said of a plan, as figures; values in `unit`: grams, or a currency where money alone counts."""

    verdict: Verdict
    unit: str = "g"
    waits: bool = False
    late_s: float = 0.0
    saved: float = 0.0
    parked_kwh: float = 0.0
    parked: float = 0.0
    """Drawn while parked: kWh, and its grams or money."""
    switching: float = 0.0
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
