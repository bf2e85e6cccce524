"""The fleet's planner: 10,000 synthetic jobs beside its bound and FIFO; public traces under forecasts beside rivals.

    python tests/bench/bench_fleet.py                       # results/fleet.json: synthetic
    python tests/bench/bench_fleet.py kalos.csv pai_1k.csv pai_1k.csv:200-400    # results/fleet_traces.json; or a part

Traces (not part of this repository): converted_kalos_trace.csv of hyunnnchoi/AcmeTrace (Hu et al., NSDI 2024) and
src/cluster_traces/pai_1k.csv of umassos/GAIA (after Weng et al., NSDI 2022). Forecasts are those issued at the time.
Levels: an assumed power-cap curve, 650 to 249 W at full to 0.55 of the speed.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path

import numpy as np
from fleet_rivals import FULL, Site, Trace, fifo, fleet, greedy, hindsight, windows

from carbontui.extensions.fleet.placing import planned
from carbontui.extensions.fleet.problem import NEVER, FleetJobs, FleetProblem, FleetSite

HERE = Path(__file__).parent
DATA = Path(os.environ.get("CARBONTUI_SHARED", HERE.parents[1] / ".." / "shared" / "data"))
SPEED = np.array([1.0, 0.965, 0.90, 0.775, 0.55])
WATTS = np.array([650.0, 545.0, 448.0, 349.0, 249.0])
UNDONE = 20.0
BUDGET = 0.55
"""Of the nameplate of all boards."""


def synthetic(seed: int, count: int = 10_000, slots: int = 96) -> tuple[Trace, np.ndarray]:
    """Jobs of 1 to 64 GPUs and 15 min to 30 h in half-hour slots, and g per watt and slot."""
    dice = np.random.default_rng(seed)
    size = dice.choice([1, 2, 4, 8, 16, 32, 64], count * 2, p=[0.35, 0.15, 0.17, 0.2, 0.07, 0.04, 0.02])
    work = np.clip(dice.lognormal(np.log(3), 1.0, count * 2), 0.25, 30) * 2
    first = np.where(dice.random(count * 2) < 0.3, 0, dice.integers(0, slots - 4, count * 2))
    end = np.minimum(slots, first + work * dice.uniform(1.2, 4.0, count * 2))
    can = np.nonzero(first + np.ceil(work) <= end)[0][:count]
    size, work, first, end = size[can], work[can], first[can], end[can]
    k = np.arange(slots)
    grid = 300 + 120 * np.sin(2 * np.pi * k / 48) + 60 * np.sin(4 * np.pi * k / 48 + 1)
    return Trace(first, size, size[:, None] * WATTS, work[:, None] / SPEED, end), grid * 0.5 / 1e3


def bench_synthetic(seed: int, gpus: int) -> dict[str, object]:
    slots = 96
    trace, weight = synthetic(seed)
    power, held = np.full(slots, BUDGET * gpus * WATTS[0]), np.full(slots, float(gpus))
    count = len(trace.arrival)
    worth = UNDONE * trace.watts[:, 0] * trace.length[:, 0] * weight.mean()
    first = trace.arrival.astype(np.int64)
    jobs = FleetJobs(trace.gpus.astype(float), trace.watts, trace.length, first, trace.end, worth)
    problem = FleetProblem(FleetSite(weight, power, held), jobs)
    wall, cpu = time.perf_counter(), time.process_time()
    plan = planned(problem)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert (plan.watts <= power + 1e-3).all() and (plan.gpus <= held + 1e-6).all()
    starts = fifo(trace, Site(power, held))
    work = trace.gpus * trace.length[:, FULL]
    share = lambda start: float(work[start == NEVER].sum() / work.sum())  # noqa: E731
    return {
        "seed": seed,
        "jobs": count,
        "gpus": gpus,
        "work_of_gpu_slots": round(float(work.sum() / gpus / slots), 3),
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1),
        "load_average": round(os.getloadavg()[0], 1),
        "above_bound": round(plan.gap, 5),
        "watts_filled": round(float((plan.watts / power).mean()), 4),
        "gpus_filled": round(float((plan.gpus / held).mean()), 4),
        "undone": round(share(plan.start), 6),
        "undone_fifo_backfill": round(share(starts), 4),
        "t_co2": round(float(problem.grams(plan.start, plan.level).sum()) / 1e6, 2),
        "t_co2_fifo_backfill": round(float(problem.grams(starts, np.zeros(count, dtype=int)).sum()) / 1e6, 2),
    }


class Grid:
    """DE, July to December 2021: what was forecast each midnight for 96 h, and what came."""

    def __init__(self, path: Path, slot_h: float, at: int = 0) -> None:
        """`at`: how many slots after its begin the slots of a trace begin."""
        self.slot_h, self.at, self.issued, self.truth = slot_h, at, {}, {}
        with gzip.open(path, "rt") as rows:
            for row in csv.DictReader(rows):
                issue, target = (
                    datetime.fromisoformat(row[name].replace("Z", "+00:00")) for name in ("issue_utc", "target_utc")
                )
                hour = int(target.timestamp() // 3600)
                self.issued.setdefault(int(issue.timestamp() // 3600), {})[hour] = float(row["forecast"])
                self.truth[hour] = float(row["actual"])
        self.begin = min(self.issued)
        self.hours = np.array(
            [self.truth[hour] for hour in range(self.begin, max(self.truth) + 1) if hour in self.truth]
        )

    def actual(self, slots: int) -> np.ndarray:
        return self._slots(self.hours, self.at * self.slot_h, slots)

    def forecast(self, now: int, ahead: int) -> np.ndarray:
        """As issued at the last midnight; what lies beyond repeats its last day; the present hour is known."""
        now += self.at
        first = int(now * self.slot_h)
        issue = max((at for at in self.issued if at <= self.begin + first), default=self.begin)
        known = self.issued[issue]
        offset = self.begin + first - issue
        last_day = [known.get(issue + hour, 300.0) for hour in range(72, 96)]
        need = int(ahead * self.slot_h) + 24
        values = np.array([known.get(issue + offset + i, last_day[(offset + i) % 24]) for i in range(need)])
        if first < len(self.hours):
            values[0] = self.hours[first]
        return self._slots(values, now * self.slot_h - first, ahead)

    def _slots(self, hours: np.ndarray, begin_h: float, slots: int) -> np.ndarray:
        """g per watt and slot: every slot the mean of its quarters of an hour."""
        parts = np.arange(int(slots * self.slot_h * 4)) / 4 + begin_h
        values = hours[np.minimum(parts.astype(int), len(hours) - 1)]
        return values.reshape(slots, -1).mean(axis=1) * self.slot_h / 1e3


def read(path: Path, slot_h: float) -> Trace:
    rows = list(csv.DictReader(path.open()))
    hour = 3600.0
    if "cpus" in rows[0]:
        jobs = [(float(r["arrival_time"]) / hour, float(r["length"]) / hour, int(r["cpus"])) for r in rows]
    else:
        step = lambda r: float(r["iteration_computing_time"]) + float(r["iteration_networking_time"])  # noqa: E731
        jobs = [
            (float(r["arrival_time"]) / hour, int(r["num_iteration"]) * step(r) / hour,
             int(float(r["gpu_workers"]) * float(r["gpu_per_worker"])))
            for r in rows
        ]  # fmt: skip
    arrival, length, gpus = (np.array(column) for column in zip(*jobs, strict=True))
    begin = np.ceil(arrival / slot_h).astype(int)
    # twice its length, and half a day at least
    end = begin + np.maximum(2 * length, length + 12.0) / slot_h
    return Trace(begin, gpus, gpus[:, None] * WATTS, length[:, None] / slot_h / SPEED, end)


def bench_trace(path: Path, part: str, slot_h: float, gpus: int, ahead: int) -> dict[str, object]:
    trace = read(path, slot_h)
    begin, _, end = part.partition("-")
    rows = slice(int(begin or 0), int(end or len(trace.arrival)))
    at = int(trace.arrival[rows].min())
    trace = Trace(
        trace.arrival[rows] - at, trace.gpus[rows], trace.watts[rows], trace.length[rows], trace.end[rows] - at
    )
    grid = Grid(DATA / "DE_ci-direct-forecast96h_2021H2.csv.gz", slot_h, at)
    slots = int(trace.end.max()) + 2
    power, held, actual = np.full(slots, BUDGET * gpus * WATTS[0]), np.full(slots, float(gpus)), grid.actual(slots)
    forecast = lambda now, n: grid.forecast(now, n)  # noqa: E731
    work = trace.gpus * trace.length[:, FULL]
    sums = np.concatenate([[0.0], np.cumsum(actual)])

    def told(start: np.ndarray, level: np.ndarray) -> dict[str, float]:
        done = np.nonzero(start != NEVER)[0]
        end = start[done] + trace.length[done, level[done]]
        whole = np.minimum(end.astype(int), slots - 1)
        grams = trace.watts[done, level[done]] * (sums[whole] + (end - whole) * actual[whole] - sums[start[done]])
        waits = (start[done] - trace.arrival[done]) * slot_h
        return {
            "t_co2": round(float(grams.sum()) / 1e6, 3),
            "g_per_gpu_h": round(float(grams.sum() / (work[done].sum() * slot_h)), 1),
            "undone": round(1 - float(work[done].sum() / work.sum()), 4),
            "wait_p95_h": round(float(np.percentile(waits, 95)), 1),
        }

    none = np.zeros(len(work), dtype=int)
    began = time.perf_counter()
    found = {"fifo_backfill": told(fifo(trace, Site(power, held)), none)}
    capped = {f"{WATTS[lv]:.0f} W": told(fifo(trace, Site(power, held), lv), none + lv) for lv in range(1, len(WATTS))}
    least = min(row["undone"] for row in capped.values())
    best = min(
        (name for name in capped if capped[name]["undone"] <= least + 0.01), key=lambda name: capped[name]["t_co2"]
    )
    found["best_constant_cap"] = {"cap": best, **capped[best]}
    found["start_windows"] = told(windows(trace, Site(power, held), forecast), none)
    found["greedy"] = told(*greedy(trace, Site(power, held), forecast))
    found["fleet"] = told(*fleet(trace, Site(power, held), forecast, ahead=ahead, week=round(168 / slot_h)))
    truth = lambda now, n: np.concatenate([actual[now : now + n], np.full(max(0, now + n - slots), actual.mean())])  # noqa: E731
    found["fleet_with_truth"] = told(*fleet(trace, Site(power, held), truth, ahead=ahead, week=round(168 / slot_h)))
    found["hindsight"] = told(*hindsight(trace, Site(power, held), actual))
    return {
        "trace": path.name, "part": part or "all", "jobs": len(work),
        "gpus": gpus, "slot_h": slot_h, "slots_ahead": ahead,
        "gpu_h": round(float(work.sum() * slot_h)), "wall_s": round(time.perf_counter() - began, 1), **found,
    }  # fmt: skip


def write(name: str, found: object) -> None:
    made = {"machine": "2 shared vCPU, Linux", "date": "2026-11-26", "found": found}
    (HERE / "results" / name).write_text(json.dumps(made, indent=1) + "\n")
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write(
            "fleet.json", [bench_synthetic(seed, gpus) for seed, gpus in ((1, 8800), (2, 8800), (3, 8800), (1, 8000))]
        )
    elif not (DATA / "DE_ci-direct-forecast96h_2021H2.csv.gz").exists():
        sys.exit(f"skipped: no grid data in {DATA}")
    else:
        sizes = {"kalos": (3.0, 1408, 192), "pai": (0.5, 32, 96)}
        told = [(Path(arg.partition(":")[0]), arg.partition(":")[2]) for arg in sys.argv[1:]]
        with ProcessPoolExecutor(os.cpu_count()) as processes:
            made = [
                processes.submit(
                    bench_trace, path, part, *next(size for key, size in sizes.items() if key in path.name)
                )
                for path, part in told
            ]
            write("fleet_traces.json", [one.result() for one in made])
