"""What a job's processes cost: pause latency end to end, the supervisor's CPU and memory, time to the first plan.

    python tests/bench/bench_job.py [--force] [--json FILE]

Run by hand on a quiet machine; it refuses to start on a busy one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from house import House, until

from carbontui import link, protocol

PAUSES = 30
STEP_S = 0.01
WATCH_S = 30.0


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def pause_latencies(job, socket: Path) -> list[float]:
    """ms from sending `pause` to the supervisor's word that every rank stands at a boundary."""
    found = []
    for index in range(PAUSES):
        time.sleep(0.05 + 0.007 * (index % 7))
        begun = time.monotonic()
        answer = link.ask(socket, protocol.Cmd(1, "pause"))
        found.append((time.monotonic() - begun) * 1000)
        assert isinstance(answer, protocol.Result) and "paused at step" in answer.text, answer
        link.ask(socket, protocol.Cmd(1, "resume"))
        job.until_steps(3)
    return found


def usage(pids: dict[str, int]) -> dict[str, dict[str, float]]:
    """CPU % and MB of each process over WATCH_S."""
    before = {role: cpu_s(pid) for role, pid in pids.items()}
    begun = time.monotonic()
    time.sleep(WATCH_S)
    took = time.monotonic() - begun
    return {
        role: {"cpu_percent": round(100 * (cpu_s(pid) - before[role]) / took, 2), "rss_mb": round(rss_mb(pid), 1)}
        for role, pid in pids.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--force", action="store_true", help="measure on a busy machine all the same")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.7 and not args.force:
        sys.exit(f"the machine is busy (load {load:.1f}); wait, or --force")
    root, runtime = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp(prefix="ct-"))
    house = House(root, runtime)
    try:
        job = house.start("--zone", "DE", "--work", "8h", "--budget", "1x", pause=STEP_S)
        until(lambda: job.snapshot().get("certificate"), 30, "a plan")
        created_s = json.loads((job.dir / "spec.json").read_text())["created_s"]
        with sqlite3.connect(job.dir / "journal.db") as db:  # written about every two seconds
            asked = "select min(wall) from event where kind='plan'"
            first_plan_s = until(lambda: db.execute(asked).fetchone()[0], 30, "the plan's row") - created_s
        job.until_steps(20)
        socket = Path(json.loads((job.dir / "job.json").read_text())["socket"])
        latencies = pause_latencies(job, socket)
        pids = {role: pid for role, pid in job.status()["pids"].items() if pid and role != "child"}
        idle = usage(pids)
        viewer, lines = job.connect()
        viewer.sendall(b'{"t":"view","rate_hz":1}\n')
        lines.readline()
        watched = usage({"supervisor": pids["supervisor"]})
        viewer.close()
    finally:
        house.end()
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    result = {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} shared vCPU, Python {platform.python_version()}, load {load:.2f}",
        "pause_to_blocked_ms": {
            "median": round(statistics.median(latencies), 1),
            "p95": round(sorted(latencies)[int(0.95 * len(latencies))], 1),
            "steps_of_ms": STEP_S * 1000,
        },
        "from_run_to_first_plan_s": round(first_plan_s, 2),
        "unwatched": idle,
        "with_one_viewer": watched,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
