"""An assumed job: its levels and switches, combined with grid intensities into a planning problem, also within other
budgets."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Protocol

from msgspec import structs

from carbontui.account.boundary import Draw, Kind, Place, charged_w, counted
from carbontui.account.compare import Elsewhere, Work
from carbontui.grid import typical
from carbontui.grid.types import GridForecast, Series
from carbontui.plan.planner import solve
from carbontui.plan.problem import (
    Problem,
    ProblemError,
    ProblemLevel,
    Weight,
    price_of_time,
    problem_from_dict,
    weighed,
)
from carbontui.plan.results import Schedule
from carbontui.plan.rolling import replan
from carbontui.text import figures

PAUSE_S, RESUME_S, SWITCH_W = 20.0, 45.0, 300.0
"""Seconds to pause and to resume, and watts while switching (at 650 W at full speed); assumed, not measured."""
CURVE = ((1.0, 1.0, 1.0), (0.86, 0.785, 0.942), (0.72, 0.676, 0.875), (0.60, 0.577, 0.741))
"""Cap, watts and speed as shares of those at full speed: the expected values for any training on any board from public
measurements (`carbontui.power.curves.public`); single trainings differ by 2, 4 and 11 % in speed: calibrate your own
job."""
PARKED = 0.138
"""Share of the full watts that a paused job draws with its model in memory; assumed (90 W of 650 W)."""


@dataclass(frozen=True, slots=True)
class AssumedJob:
    """A problem without its slots and its work: levels, switches, dwell times, initial level, weights."""

    shape: Problem
    prices: Hours | None = None
    """Prices instead of intensities, currency per kWh; None: money is not counted."""
    weight: Weight | None = None
    patience_pct: float = 0.0
    """An hour of later finish must save so many percent of what an hour at full speed takes; 0: time has no price."""
    still_s: float = math.inf
    """It stands still for so long at a stretch at most."""

    def problem(self, edges: list[float], grid: Hours, work_s: float) -> Problem:
        """The problem of `work_s` seconds of full-speed work on the slots between the edges (epoch seconds). Raises
        ProblemError or ValueError where the grid does not cover them."""
        dur_s = tuple(b - a for a, b in pairwise(edges))
        return self.timed(replace(self.shape, dur_s=dur_s, ci_g_per_kwh=tuple(grid.slots(edges)), work_s=work_s))

    def timed(self, problem: Problem) -> Problem:
        """The problem with the price of time by its own slots and weights."""
        return replace(problem, price_of_time=price_of_time(problem, self.patience_pct))


class Hours(Protocol):
    """Where intensities come from: a recorded grid, typical days, a live source's outlook."""

    def slots(self, edges: list[float]) -> list[float]:
        """gCO2/kWh of each slot between the edges (epoch seconds). Raises ProblemError or ValueError."""


def on_hours(job: AssumedJob, grid: Hours, work_s: float, start_s: float, end_s: float) -> Problem:
    """The problem of `work_s` seconds of full-speed work from `start_s` to `end_s`. Raises ValueError."""
    edges = boundaries(start_s, end_s, slot_length_s(start_s, end_s))
    problem = job.problem(edges, grid, work_s)
    if job.prices is not None:
        problem = weighed(replace(problem, price_per_kwh=tuple(job.prices.slots(edges))), job.weight)
    return job.timed(problem)


def planned(
    job: AssumedJob, grid: Hours, work_s: float, start_s: float, deadline_s: float, *, tol: float
) -> tuple[Problem, Schedule]:
    """The problem and its plan, as a job makes it before it has begun (`plan.rolling.FLOOR`). Work that does not fit is
    done after the deadline, on the intensity of those hours, not on that of the last hour before it. Raises
    ValueError."""
    problem = on_hours(job, grid, work_s, start_s, deadline_s)
    found, _ = replan(problem, None, tol=tol, max_pause_s=job.still_s, untouched=0.0)
    if not found.late_s:
        return problem, found
    longer = on_hours(job, grid, work_s, start_s, deadline_s + found.late_s)
    plan, due_s = solve(longer, tol=tol), problem.deadline_s
    baselines = tuple(replace(rival, late_s=max(0.0, rival.finish_s - due_s)) for rival in plan.baselines)
    return longer, replace(plan, late_s=max(0.0, plan.finish_s - due_s), baselines=baselines)


def load_job(path: str | Path) -> AssumedJob:
    """Read a JSON file in the problem format; `slots` and `work_s` are not needed and ignored. Raises ProblemError."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ProblemError("levels", f"{path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ProblemError("levels", f"{path} is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ProblemError("levels", f"{path} is not a JSON object")
    placeholder = {"slots": {"dur_s": [1.0], "ci_g_per_kwh": [0.0]}, "work_s": 0.0}
    return AssumedJob(problem_from_dict(data | placeholder))


def assumed(full_w: float, caps: bool, running: bool, parked: float = PARKED) -> AssumedJob:
    """Off, pause, full and (with `caps`) three caps of a board that draws `full_w` at full speed; `running`: the
    job has started already."""
    levels = [ProblemLevel("off", 0.0, 0.0), ProblemLevel("pause", parked * full_w, 0.0)]
    levels += [
        ProblemLevel("full" if speed == 1 else f"cap {cap * full_w:.0f} W", share * full_w, speed)
        for cap, share, speed in (CURVE if caps else CURVE[:1])
    ]
    count = len(levels)
    time: list[list[float | None]] = [[0.0] * count for _ in range(count)]
    for i in range(count):
        for j in range(count):
            if j == 0 or (i == 0 and j == 1):
                time[i][j] = None  # a started job never returns to off, and off leads only to running
            elif i == 1 and j > 1:
                time[i][j] = RESUME_S
            elif i > 1 and j == 1:
                time[i][j] = PAUSE_S
        time[i][i] = 0.0
    watts = SWITCH_W / 650.0 * full_w
    return AssumedJob(
        Problem(
            dur_s=(1.0,),
            ci_g_per_kwh=(0.0,),
            levels=tuple(levels),
            switch_s=tuple(map(tuple, time)),
            switch_w=tuple((watts,) * count for _ in range(count)),
            work_s=0.0,
            initial_level=2 if running else 0,
        )
    )


def boundaries(start_s: float, deadline_s: float, slot_s: float) -> list[float]:
    """Slot edges from `start_s` to `deadline_s`: at multiples of `slot_s` since 1970 (UTC); the first and last slot
    may be partial."""
    edges = [start_s]
    mark = (math.floor(start_s / slot_s) + 1) * slot_s
    while mark < deadline_s - 1e-6:
        if mark > edges[-1] + 1e-6:
            edges.append(mark)
        mark += slot_s
    return [*edges, deadline_s]


def slot_length_s(start_s: float, end_s: float) -> float:
    """Slot length in seconds: 15 min for plans of up to ten days, else an hour."""
    return 900.0 if end_s - start_s <= 10 * 86400 else 3600.0


class ExpectedSignal:
    """A live source's outlook (gCO2/kWh of equal slots) instead of a recorded grid."""

    def __init__(self, outlook: GridForecast) -> None:
        self._outlook = outlook
        self.source = outlook.source

    def slots(self, edges: list[float]) -> list[float]:
        """gCO2/kWh of each slot between the edges (epoch seconds). Raises ProblemError where one is unknown."""
        known = self._outlook.at(edges)
        if known is None:
            hours = sum(value is not None for value in self._outlook.mean) * self._outlook.step_s / 3600
            raise ProblemError("grid", f"{self.source} is known for {hours:.0f} h; shorten --budget")
        return known


class TypicalDays:
    """The typical days of a zone instead of a recorded grid: available for any time, of no particular year."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self.source = f"typical days of {zone}, not live"

    def slots(self, edges: list[float]) -> list[float]:
        """gCO2/kWh of each slot between the edges (epoch seconds). Raises ValueError for an unknown zone."""
        step_s = slot_length_s(edges[0], edges[-1])
        outlook = typical.outlook(self.zone, edges[0] // step_s * step_s, step_s, len(edges))
        self.source = f"{outlook.source}, not live"
        return ExpectedSignal(outlook).slots(edges)


class Grid:
    """A recorded series (gCO2/kWh, epoch seconds), averaged over any interval; a row holds for its length.
    `lateness_s`: how long after a step has ended its value is known; 0: already when it begins."""

    def __init__(self, series: Series, lateness_s: float = 0.0) -> None:
        self.series, self.lateness_s = series, lateness_s
        self.starts = [row.start_s for row in series.rows]
        self.values = [row.value for row in series.rows]
        self.ends = [row.start_s + row.dur_s for row in series.rows]
        self.total = [*accumulate((row.value * row.dur_s for row in series.rows), initial=0.0)]
        self.source, self.step_s = series.source, series.rows[0].dur_s
        self.start_s, self.end_s = self.starts[0], self.ends[-1]

    def at(self, moment: float) -> float:
        """The value of the row that contains `moment`."""
        return self.values[max(0, bisect_right(self.starts, moment) - 1)]

    def values_of(self, start_s: float, end_s: float) -> list[float]:
        """The values of the rows that begin in the interval."""
        return self.values[bisect_left(self.starts, start_s) : bisect_left(self.starts, end_s)]

    def end_of_step(self, moment: float) -> float:
        """The end of the data's step in which `moment` lies."""
        return (moment // self.step_s + 1) * self.step_s

    def newest_s(self, moment: float) -> float:
        """A time in the newest step whose value is known at `moment`: its start, where that is over."""
        late = self.lateness_s
        return ((moment - late) // self.step_s - 1) * self.step_s if late else moment

    def delayed(self) -> Grid:
        """The grid as it is known: at any moment, the newest value known then."""
        back_s = self.lateness_s and self.lateness_s + self.step_s
        rows = tuple(row._replace(start_s=row.start_s + back_s) for row in self.series.rows)
        return Grid(replace(self.series, rows=rows))

    def covers(self, start_s: float, end_s: float) -> bool:
        """Whether the series covers the whole interval."""
        first, last = bisect_right(self.starts, start_s) - 1, bisect_right(self.starts, end_s - 1e-6) - 1
        if first < 0 or self.ends[last] < end_s - 1e-6:
            return False
        return all(self.ends[i] >= self.starts[i + 1] - 1e-6 for i in range(first, last))

    def mean(self, start_s: float, end_s: float) -> float:
        """Time average over a covered interval, gCO2/kWh."""
        return (self._integral(end_s) - self._integral(start_s)) / (end_s - start_s)

    def slots(self, edges: list[float]) -> list[float]:
        """Mean of each slot between the edges. Raises ProblemError when the series does not cover them."""
        if not self.covers(edges[0], edges[-1]):
            raise ProblemError("grid", f"{self.series.source} does not cover the whole time to be planned")
        return [self.mean(a, b) for a, b in pairwise(edges)]

    def _integral(self, moment: float) -> float:
        index = bisect_right(self.starts, moment) - 1
        if index < 0:
            return 0.0
        return self.total[index] + self.values[index] * (min(moment, self.ends[index]) - self.starts[index])


IDLE = 0.1
"""Share of the full watts that a board without a process draws; assumed (70 W of 700 W)."""


def bounded(job: AssumedJob, kind: Kind, *, host_w: float | None = None, idle_w: float | None = None) -> AssumedJob:
    """The job, whose levels are watts of boards, with all that counts: `host_w` beside them, and `idle_w` of the boards
    without a process (None: a tenth of the highest level), which levels named off or unload stand for."""
    shape, rest_w = job.shape, host_w or 0.0
    bare_w = IDLE * max(level.power_w for level in shape.levels) if idle_w is None else idle_w

    def level_of(level: ProblemLevel) -> ProblemLevel:
        place: Place = "off" if level.name == "off" else "unload" if level.name == "unload" else "here"
        how, drawn_w = counted(kind, place), bare_w if place != "here" else level.power_w
        share = 0.0 if how == "nothing" else 1.0
        return structs.replace(
            level,
            power_w=charged_w(how, Draw(drawn_w, 0.0, rest_w), Draw(bare_w)),
            rent_per_h=share * level.rent_per_h,
            embodied_g_per_h=share * level.embodied_g_per_h,
        )

    def switch(watts: float) -> float:
        return charged_w(counted(kind, "here"), Draw(watts, 0.0, rest_w), Draw(bare_w))

    levels = tuple(map(level_of, shape.levels))
    switch_w = tuple(tuple(map(switch, row)) for row in shape.switch_w)
    return replace(job, shape=replace(shape, levels=levels, switch_w=switch_w))


def stated(
    levels_file: str | None, watts: float, boundary: Kind | None, *, caps: bool, **counts: float | None
) -> AssumedJob:
    """The job that options state: of a file of levels, else a board of `watts` at full speed, with `caps` or without;
    `counts` as of `bounded`. Raises ProblemError."""
    job = load_job(levels_file) if levels_file else assumed(watts, caps=caps, running=False)
    return bounded(job, boundary or "given-back", **counts)


def within_budgets(
    job: AssumedJob, work: Work, outlook: GridForecast, factors: Iterable[float], now_s: float
) -> list[Elsewhere]:
    """The plan of the work, started now or later, within each multiple of its time at full speed; at the work's watts.
    Raises ProblemError where the forecast is too short."""
    shape = job.shape
    scale = (work.boards_w + work.rest_w) / (shape.pue * shape.levels[shape.fastest].power_w)
    levels = tuple(structs.replace(level, power_w=scale * level.power_w) for level in shape.levels)
    watts = tuple(tuple(scale * one for one in row) for row in shape.switch_w)
    job, found = replace(job, shape=replace(shape, levels=levels, switch_w=watts)), []
    for factor in factors:
        _, plan = planned(job, ExpectedSignal(outlook), work.work_s, now_s, now_s + factor * work.work_s, tol=1e-3)
        how = f"certified within {figures.percent(plan.gap, 2)}; {outlook.how}: {outlook.source}"
        found.append(Elsewhere(f"{factor:g}x", work.work_s / plan.finish_s, plan.finish_s, plan.kwh, plan.gco2, how))
    return found
