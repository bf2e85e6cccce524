"""300 short jobs on 64 real slurmd under `carbontui fleet`: planned against happened.

    python tests/bench/bench_fleet_slurm.py [nodes [jobs]]      # results/fleet_slurm.json, .csv; as root

Every job asks for one whole node and states 1 kW; the budget lets 40 run at once. The jobs themselves write down when
they begin and end. A start error is begun minus the start that was last planned for it; overshoot is how long the jobs
that ran together were above the budget in one go.
"""

from __future__ import annotations

import csv
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "slurm")]

from cluster import Cluster, missing

from carbontui import units

SLOT_S, JOB_W, AT_ONCE = 20.0, 1000.0, 40
MARGIN_S = 4.0
"""Between what a job says it takes and its own seconds: what Slurm needs to begin and clean up."""


def grid(path: Path, start_s: float) -> Path:
    dice, rows = random.Random(2), []
    for minute in range(180):
        at = start_s + 60 * minute
        rows.append(f"{units.iso(at)},{300 + 100 * (minute % 12 < 6) + dice.randint(0, 60)}")
    path.write_text("time_utc,carbon_g_per_kwh\n" + "\n".join(rows) + "\n")
    return path


def overshoot(spans: list[tuple[float, float]], most: int) -> tuple[float, float, int]:
    """The longest time in one go above the budget, all of it, and the most jobs at once."""
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans], key=lambda e: (e[0], e[1]))
    on = peak = 0
    since: float | None = None
    longest = total = 0.0
    for at, change in edges:
        on += change
        peak = max(peak, on)
        if on > most and since is None:
            since = at
        elif on <= most and since is not None:
            longest, total, since = max(longest, at - since), total + at - since, None
    return longest, total, peak


def main() -> None:
    nodes, jobs = (int(sys.argv[1]) if len(sys.argv) > 1 else 64), (int(sys.argv[2]) if len(sys.argv) > 2 else 300)
    if why := missing():
        sys.exit(f"skipped: {why}")
    dice = random.Random(1)
    cluster = Cluster(nodes=nodes)
    try:
        began = time.monotonic()
        cluster.start()
        up_s = time.monotonic() - began
        happened = cluster.dir / "happened"
        happened.mkdir()
        now = time.time()
        table = grid(cluster.dir / "grid.csv", now // 60 * 60 - 600)
        lengths = {}
        for _ in range(jobs):
            length = dice.randint(5, 55)
            note = {"deadline": units.iso(now + 1500), "work_s": length + MARGIN_S, "watts": JOB_W}
            told = f"date +%s.%N > {happened}/$SLURM_JOB_ID; sleep {length}; date +%s.%N >> {happened}/$SLURM_JOB_ID\n"
            options = ("--output=/dev/null", "--exclusive", "--nodes=1", "--begin=now+2hours")
            job = cluster.submit(told, *options, f"--comment=carbontui:{json.dumps(note)}")
            lengths[job] = length
        options = ("--cap", f"{AT_ONCE * JOB_W:.0f}W", "--slot", f"{SLOT_S:.0f}s", "--grid", str(table), "--json")
        fleet = subprocess.Popen(
            [sys.executable, "-m", "carbontui.cli", "fleet", *options],
            env={**cluster.env, "OPENBLAS_NUM_THREADS": "1"},
            stdout=(cluster.dir / "fleet.jsonl").open("w"),
        )
        due = time.monotonic() + 1700
        while time.monotonic() < due and fleet.poll() is None:
            if sum(len(path.read_text().split()) == 2 for path in happened.iterdir()) == jobs:
                break
            time.sleep(2)
        fleet.terminate()
        fleet.wait()
        plans = [json.loads(line) for line in (cluster.dir / "fleet.jsonl").read_text().splitlines()]
        report(cluster, lengths, happened, plans, nodes, up_s)
    finally:
        cluster.end()


def report(cluster, lengths, happened, plans, nodes, up_s) -> None:
    spans, rows = [], []
    for job, length in lengths.items():
        path = happened / job
        times = [float(word) for word in path.read_text().split()] if path.exists() else []
        if len(times) < 2:
            continue
        spans.append((times[0], times[1]))
        planned = None
        for plan in plans:
            start = plan["starts"].get(job)
            if start is not None and units.from_iso(plan["at"]) < times[0]:
                planned = units.from_iso(start)
        rows.append((job, length, planned, times[0], times[1]))
    errors = [abs(begin - planned) for _, _, planned, begin, _ in rows if planned is not None]
    longest, total, peak = overshoot(spans, AT_ONCE)
    first = min(begin for begin, _ in spans)
    with (HERE / "results" / "fleet_slurm.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["job", "sleep_s", "planned_start_s", "begun_s", "ended_s"])
        for row in sorted(rows, key=lambda row: row[3]):
            writer.writerow([row[0], row[1], *("" if at is None else round(at - first, 2) for at in row[2:])])
    found = {
        "machine": "2 shared vCPU, Linux",
        "date": "2026-11-22",
        "slurmd": nodes,
        "cluster_up_s": round(up_s, 1),
        "jobs": len(lengths),
        "begun_and_ended": len(rows),
        "plans": len(plans),
        "start_error_s": {
            "median": round(statistics.median(errors), 2),
            "p95": round(statistics.quantiles(errors, n=20)[-1], 2),
            "max": round(max(errors), 2),
        },
        "budget_w": AT_ONCE * JOB_W,
        "highest_w": peak * JOB_W,
        "overshoot_longest_s": round(longest, 2),
        "overshoot_all_s": round(total, 2),
        "span_s": round(max(end for _, end in spans) - first, 1),
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }
    (HERE / "results" / "fleet_slurm.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
