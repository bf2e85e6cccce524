"""What a supervisor costs, an earlier wheel's beside this tree's: CPU, memory, the first plan, and a key to its effect.

    python tests/bench/bench_supervisor.py [--pairs 10] [--against TREE] [--json FILE]

The wheel is the one that tests/upgrade keeps, or the package of another TREE, as an earlier commit's; every process of
a job is of one version. Pairs are interleaved and each begins with the other side in turn, so that what else the
machine does falls on both. Run by hand.
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
import zipfile
from contextlib import closing
from datetime import date
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from house import House, until

from carbontui import link, protocol

WATCH_S = 20.0
PAUSES = 15
STEP_S = 0.01
NOISE_LOAD = 0.7
"""A machine with more than this to do beforehand is named as busy in the result."""
FIGURES = {
    "cpu_points": "supervisor CPU, % of a core",
    "rss_mb": "supervisor RSS, MB",
    "first_plan_s": "`run` to the first plan, s",
    "key_to_held_ms": "`pause` to held, ms",
}


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, all threads, to the nanosecond: its POSIX CPU clock (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


def rss_mb(pid: int) -> float:
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def first_plan_s(job) -> float:
    """Seconds from `run` to the journal's first plan."""
    created_s = json.loads((job.dir / "spec.json").read_text())["created_s"]
    asked = "select min(wall) from event where kind='plan'"

    def planned():
        with closing(sqlite3.connect(job.dir / "journal.db")) as db:
            return db.execute(asked).fetchone()[0]

    until(lambda: job.snapshot().get("certificate"), 60, "a plan")
    return until(planned, 30, "the plan's row") - created_s


def key_to_held_ms(job) -> float:
    """Median ms from `pause` to the supervisor's word that every rank stands at a step."""
    path = Path(json.loads((job.dir / "job.json").read_text())["socket"])
    found = []
    for index in range(PAUSES):
        time.sleep(0.05 + 0.007 * (index % 7))
        begun = time.monotonic()
        answer = link.ask(path, protocol.Cmd(1, "pause"))
        found.append((time.monotonic() - begun) * 1000)
        assert isinstance(answer, protocol.Result) and "paused at step" in answer.text, answer
        link.ask(path, protocol.Cmd(1, "resume"))
        job.until_steps(3)
    return statistics.median(found)


def measure(packages: Path) -> dict[str, float]:
    """One job without a GPU whose processes import carbontui from `packages`."""
    root, runtime = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp(prefix="ct-"))
    house = House(root, runtime)
    house.env["PYTHONPATH"] = str(packages)
    try:
        job = house.start("--zone", "DE", "--work", "8h", "--budget", "1x", pause=STEP_S)
        planned_s = first_plan_s(job)
        job.until_steps(20)
        held_ms = key_to_held_ms(job)
        pid = job.pids()["supervisor"]
        before, begun = cpu_s(pid), time.monotonic()
        time.sleep(WATCH_S)
        share = (cpu_s(pid) - before) / (time.monotonic() - begun)
        return {
            "cpu_points": 100 * share,
            "rss_mb": rss_mb(pid),
            "first_plan_s": planned_s,
            "key_to_held_ms": held_ms,
        }
    finally:
        house.end()
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--against", type=Path, help="a folder that holds another carbontui/")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    packages = Path(tempfile.mkdtemp())
    sides = {"wheel": packages / "wheel", "tree": packages / "tree"}
    if args.against:
        shutil.copytree(args.against / "carbontui", sides["wheel"] / "carbontui")
    else:
        with zipfile.ZipFile(next((TESTS / "upgrade").glob("*.whl"))) as archive:
            archive.extractall(sides["wheel"])
    # a copy: the tree may be worked on meanwhile
    shutil.copytree(TESTS.parent / "carbontui", sides["tree"] / "carbontui")
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    load = os.getloadavg()[0]
    try:
        for pair in range(args.pairs):
            for side in sorted(sides, reverse=bool(pair % 2)):
                found[side].append(measure(sides[side]))
                print(pair + 1, side, {k: round(v, 3) for k, v in found[side][-1].items()}, flush=True)
    finally:
        shutil.rmtree(packages, ignore_errors=True)
    rows = {}
    for figure, words in FIGURES.items():
        old, new = ([run[figure] for run in found[side]] for side in ("wheel", "tree"))
        difference = statistics.median(b - a for a, b in zip(old, new, strict=True))
        rows[figure] = {
            "what": words,
            "wheel": round(statistics.median(old), 3),
            "tree": round(statistics.median(new), 3),
            "median_of_pairs": round(difference, 3),
        }
    result = {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} shared vCPU, Python {platform.python_version()}, load {load:.1f} at the start",
        "busy": load > NOISE_LOAD,
        "pairs": args.pairs,
        "figures": rows,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
