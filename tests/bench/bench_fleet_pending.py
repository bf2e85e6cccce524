"""50 pending jobs on a real little Slurm under a cap: `submit` states them, `fleet` moves them, they keep their caps.

    python tests/bench/bench_fleet_pending.py        # results/fleet_pending.json; as root

Each job draws 1 kW at full speed, or less at a cap that its comment then names: it takes that much longer, and writes
down when it began and ended and what it drew. Five owners set a start of their own. The nodes are busy at first.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "slurm")]

from click.testing import CliRunner
from cluster import Cluster, missing

from carbontui import cli, units

JOBS, OWN, SLOT_S, CAP_W, MARGIN_S = 50, 5, 20.0, 9000.0, 4.0
LEVELS = {700.0: 0.9, 500.0: 0.75}
SCRIPT = """#!/bin/bash
cap=$(squeue -h -j $SLURM_JOB_ID -o %k | grep -o '"cap": *[0-9]*' | grep -o '[0-9]*$')
case "$cap" in {cases} *) watts=1000 speed=1;; esac
begun=$(date +%s.%N)
sleep $(echo "{length} / $speed" | bc -l 2> /dev/null || python3 -c "print({length} / $speed)")
echo "$begun $(date +%s.%N) $watts" > {to}/$SLURM_JOB_ID
"""


def curve(path: Path) -> Path:
    full = {"kind": "full", "cap_w": None, "power_w": 1000.0, "power_se": 0.0, "speed": 1.0, "speed_se": 0.0}
    caps = [
        {**full, "kind": "cap", "cap_w": watts, "power_w": watts, "speed": speed} for watts, speed in LEVELS.items()
    ]
    about = {"schema": "carbontui.curve/1", "gpu": "A", "gpus": 1, "fingerprint": "x", "measured_s": 1.0}
    path.write_text(json.dumps({**about, "rate_steps_per_s": 1.0, "points": [*caps, full], "levels": [*caps, full]}))
    return path


def main() -> None:
    if why := missing():
        sys.exit(f"skipped: {why}")
    dice, cluster = random.Random(3), Cluster(nodes=4)
    try:
        cluster.start()
        os.environ |= {**cluster.env, "CARBONTUI_HOME": str(cluster.dir / "home")}
        happened = cluster.dir / "happened"
        happened.mkdir()
        now = time.time()
        table = cluster.dir / "grid.csv"
        minutes = [now // 60 * 60 + 60 * (minute - 10) for minute in range(120)]
        rows = [f"{units.iso(at)},{300 + 200 * (at // 60 % 4 < 2)}" for at in minutes]
        table.write_text("time_utc,carbon_g_per_kwh\n" + "\n".join(rows) + "\n")
        stated = curve(cluster.dir / "curve.json")
        cluster.submit("sleep 45\n", "--nodes=4", "--exclusive", "--output=/dev/null")
        due, owners, works = {}, {}, {}
        cases = " ".join(f"{watts:.0f}) watts={watts:.0f} speed={speed};;" for watts, speed in LEVELS.items())
        for number in range(JOBS):
            length = dice.randint(8, 25)
            script = cluster.dir / f"pending-{number}.sh"
            script.write_text(SCRIPT.format(cases=cases, length=length, to=happened))
            deadline = now + dice.randint(260, 420)
            words = ["submit", "--grid", str(table), "--work", f"{length + MARGIN_S:.0f}s", "--json"]
            words += ["--budget", units.iso(deadline), "--curve", str(stated), "--gpus", "1"]
            words += ["--", "--output=/dev/null", "--ntasks=1", "--cpus-per-task=2", str(script)]
            done = CliRunner().invoke(cli.cli, words, standalone_mode=False)
            assert done.exception is None, done.exception
            job = json.loads(done.stdout)["job"]
            due[job], works[job] = deadline, length
            if number % (JOBS // OWN) == 0:
                owners[job] = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now + 200 + number))
                cluster.run("scontrol", "update", f"JobId={job}", f"StartTime={owners[job]}")
        options = ("--cap", f"{CAP_W:.0f}W", "--slot", f"{SLOT_S:.0f}s", "--grid", str(table), "--json")
        log = cluster.dir / "fleet.jsonl"
        with log.open("w") as out:
            fleet = subprocess.Popen([sys.executable, "-m", "carbontui.cli", "fleet", *options], stdout=out)
        untouched, end = set(owners), time.monotonic() + 560
        while len(list(happened.iterdir())) < JOBS and time.monotonic() < end and fleet.poll() is None:
            for job in list(untouched):
                shown = cluster.run(
                    "squeue", "-h", "-j", job, "-t", "PENDING", "-O", "EligibleTime:30", check=False
                ).strip()
                if shown not in ("", owners[job]):
                    untouched.discard(job)
            time.sleep(3.0)
        fleet.terminate()
        fleet.wait()
        report(happened, due, owners, untouched, [json.loads(line) for line in log.read_text().splitlines()])
    finally:
        cluster.end()


def report(happened: Path, due: dict[str, float], owners: dict[str, str], untouched: set[str], plans: list) -> None:
    rows = {path.name: [float(word) for word in path.read_text().split()] for path in happened.iterdir()}
    first = min(row[0] for row in rows.values())
    last = max(row[1] for row in rows.values())
    moved = {job: row for job, row in rows.items() if job not in owners}

    def mean_w(begin: float, end: float, of: dict) -> float:
        return sum(w * max(0.0, min(e, end) - max(b, begin)) for b, e, w in of.values()) / (end - begin)

    minutes = [mean_w(first + 60 * i, first + 60 * i + 60, rows) for i in range(int((last - first) // 60) + 1)]
    found = {
        "machine": "2 shared vCPU, Linux",
        "date": time.strftime("%Y-%m-%d"),
        "slurmd": 4,
        "jobs": len(due),
        "done": len(rows),
        "plans": len(plans),
        "cap_w": CAP_W,
        "watts_per_minute": [round(one) for one in minutes],
        "highest_second_w": round(max(mean_w(first + i, first + i + 1, rows) for i in range(int(last - first)))),
        "at_a_cap": sum(row[2] < 1000 for row in rows.values()),
        "in_time": sum(rows[job][1] <= due[job] for job in moved),
        "of": len(due) - len(owners),
        "owners_starts_untouched": f"{len(untouched)} of {len(owners)}",
        "constant_cap_used_in_plans": sum(
            bool(plan["constant_cap"] and plan["constant_cap"]["used"]) for plan in plans
        ),
        "load_average": round(os.getloadavg()[0], 1),
    }
    (HERE / "results" / "fleet_pending.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
