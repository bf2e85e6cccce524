"""An evaluation that anybody can repeat: policies on grids that are shipped or generated from shipped tables by a seed.

In every zone the same starts serve every length, slack, boundary and set of levels, so that groups can be compared.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import multiprocessing
import os
import random
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from carbontui import hooks
from carbontui.assumed.job import AssumedJob, Grid, assumed, boundaries
from carbontui.config import PATIENCE_PCT
from carbontui.extensions.evaluation.generated import generated
from carbontui.extensions.evaluation.issued import OwnForecast
from carbontui.extensions.evaluation.policies import Case, Knowledge, Policy, best_constant, outcome, rolling, rules
from carbontui.grid import choose, recorded
from carbontui.grid.types import Series
from carbontui.plan.planner import solve
from carbontui.plan.results import run_lengths
from carbontui.system import isolation
from carbontui.units import iso

SCHEMA = "carbontui.evaluation/1"
ZONES = ("DE", "ES", "GB", "PL", "US-CAL-CISO", "US-MIDA-PJM", "US-NY-NYIS", "US-TEX-ERCO")
RECORDED = "DE recorded"
FULL_W = 650.0
SLOT_S = {4: 1800.0, 8: 1800.0, 24: 3600.0, 72: 7200.0}
"""Seconds of a plan's slot by hours of work."""
HISTORY_S = {False: 90 * 86400.0, True: 7 * 86400.0}
"""Grid before the first start, of a generated year and of the recorded fortnight."""


_Key: TypeAlias = tuple[int, float, float | None, bool]


@dataclass(frozen=True, slots=True)
class EvaluationScope:
    """What is evaluated: hours of work, slacks, host watts while the job holds its machine, starts per zone."""

    hours: tuple[int, ...] = (4, 8, 24, 72)
    slacks: tuple[float, ...] = (1.2, 1.5, 2.0, 3.0)
    held_w: tuple[float | None, ...] = (None, 60.0, 250.0)
    """None: the machine is given back while the job waits."""
    starts: int = 4
    zones: tuple[str, ...] = (*ZONES, RECORDED)
    lateness_s: float | None = None
    """How late intensities are known; None: as late as each zone's source."""
    patience_pct: float = PATIENCE_PCT


QUICK = EvaluationScope(hours=(4, 24), slacks=(1.5, 3.0), starts=1)


def boundary_name(held_w: float | None) -> str:
    return "given-back" if held_w is None else f"held {held_w:g} W"


def evaluation(
    scope: EvaluationScope, seed: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Any]:
    """Everything of `evaluation.json` but who ran it: the same for a seed on every machine."""
    os.environ.update(isolation.ONE_THREAD)  # each zone has a process of its own; set before numpy is loaded there
    found: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(zone_evaluated, zone, scope, seed): zone for zone in scope.zones}
        for done, future in enumerate(as_completed(waiting), start=1):
            found[waiting[future]] = future.result()
            progress(done, len(waiting))
    zones = [found[zone] for zone in scope.zones]
    groups = [group for one in zones for group in one["groups"]]
    return {
        "schema": SCHEMA,
        "seed": seed,
        "policies": list(groups[0]["summary"]),
        "data": {one["data"]: {"file": one["file"], "sha256": one["sha256"]} for one in zones},
        "groups": groups,
        "csv": {one["file"]: one["csv"] for one in zones if one["csv"]},
    }


def zone_evaluated(zone: str, scope: EvaluationScope, seed: int) -> dict[str, Any]:
    """All groups of one zone, and its grid as CSV ('' where it is shipped)."""
    series, issues = (recorded.example(), []) if zone == RECORDED else generated(zone, seed)
    grid = Grid(series, choose.lateness(series.zone)[0] if scope.lateness_s is None else scope.lateness_s)
    known = Knowledge(grid, OwnForecast(grid, issues))
    text = csv_of(series) if issues else recorded.example_path().read_text(encoding="utf-8")
    file = f"grid-{zone}.csv" if issues else recorded.EXAMPLE_NAME
    longest_s = max(scope.hours) * 3600 * max(scope.slacks)
    first = grid.start_s + HISTORY_S[not issues]
    hours = [hour for hour in scope.hours if issues or hour <= 24]
    last = grid.end_s - (longest_s if issues else max(hours) * 3600 * max(scope.slacks))
    rng = random.Random(f"starts of {zone} {seed}")
    starts = sorted(rng.sample([t for t in grid.starts if first <= t <= last and t % 3600 == 0], scope.starts))
    groups: dict[_Key, tuple[Case, list[dict[str, Any]]]] = {}
    combined = sorted(hours, reverse=True), sorted(scope.slacks, reverse=True), scope.held_w[::-1], (True, False)
    for start in starts:  # in order of time, the longest first: forecasts are made once and serve the shorter
        for hour, slack, held_w, caps in itertools.product(*combined):
            job = replace(assumed(FULL_W, caps=caps, running=False), patience_pct=scope.patience_pct)
            case = _case(grid, on_own_machine(job, held_w), hour, slack, start)
            row = {"start": iso(start), "policies": _judged(case, _policies(grid, known))}
            groups.setdefault((hour, slack, held_w, caps), (case, []))[1].append(row)
    named = [
        {
            "zone": series.zone,
            "hours": hour,
            "slack": slack,
            "caps": caps,
            "signal": series.signal,
            "lateness_s": grid.lateness_s,
            "boundary": boundary_name(held_w),
            "host_w": held_w or 0.0,
            "data": zone,
            "slot_s": SLOT_S[hour],
            "levels": [{"name": one.name, "power_w": one.power_w, "speed": one.speed} for one in case.problem.levels],
            "switch": {"time_s": case.problem.switch_s, "power_w": case.problem.switch_w[0][0]},
            "jobs": jobs,
            "summary": summary(jobs),
        }
        for (hour, slack, held_w, caps), (case, jobs) in reversed(groups.items())
    ]
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"data": zone, "file": file, "sha256": digest, "groups": named, "csv": text if issues else ""}


def on_own_machine(job: AssumedJob, held_w: float | None) -> AssumedJob:
    """The job with the watts of a machine that it holds from its first moment to its finish, waiting included."""
    return replace(job, shape=replace(job.shape, host_w=held_w or 0.0))


def _case(grid: Grid, job: AssumedJob, hours: int, slack: float, start: float) -> Case:
    edges = boundaries(start, start + hours * 3600 * slack, SLOT_S[hours])
    return Case(tuple(edges), job.problem(edges, grid, hours * 3600.0))


def _policies(grid: Grid, known: Knowledge) -> dict[str, Policy]:
    return {
        "run now": lambda case: (),
        "best constant cap": best_constant,
        **rules(grid.delayed(), known),
        "ours": lambda case: rolling(case, known),
        "perfect foresight": lambda case: solve(case.problem, compare=False).levels,
        **{name: one for _, made in hooks.offered("policies") for name, one in made(grid, known).items()},
    }


def _judged(case: Case, policies: dict[str, Policy]) -> dict[str, Any]:
    told = {}
    for name, policy in policies.items():
        levels, did = outcome(case, policy)
        runs = run_lengths(levels)
        told[name] = {
            "gco2_g": round(did.gco2, 3),
            "kwh": round(did.kwh, 5),
            "late_s": round(did.late_s, 1),
            "switches": len(runs) - 1,
            "levels": [list(run) for run in runs],
        }
    return told


def summary(jobs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Per policy, against running now, in %: saving on summed grams, mean and median of the jobs, the worst job (above
    zero: it emits more); late jobs, and changes of level per job."""
    found = {}
    for name in jobs[0]["policies"]:
        rows = [(job["policies"][name], job["policies"]["run now"]["gco2_g"]) for job in jobs]
        each = [100 * (1 - row["gco2_g"] / now) for row, now in rows]
        grams, now_g = math.fsum(row["gco2_g"] for row, _ in rows), math.fsum(now for _, now in rows)
        found[name] = {
            "saving_pct": round(100 * (1 - grams / now_g), 3),
            "mean_pct": round(statistics.fmean(each), 3),
            "median_pct": round(statistics.median(each), 3),
            "worst_pct": round(-min(each), 3) + 0.0,
            "late": sum(row["late_s"] > 0 for row, _ in rows),
            "switches": round(statistics.fmean(row["switches"] for row, _ in rows), 3),
        }
    return found


def csv_of(series: Series) -> str:
    """The series as the CSV that `--grid` and `--actual` read."""
    return "\n".join(["time_utc,carbon_g_per_kwh", *(f"{iso(row.start_s)},{row.value}" for row in series.rows), ""])
