"""Joules booked against an evaluator of its own: python tests/bench/bench_truth.py [--seconds 60] [--out FILE]

Real jobs on a simulated board, three boundaries x what is done to them. Every 50 ms the board's own joules since the
last look are counted here, or not, by the state that the job says it is in: with the host's constant watts where a
machine counts whole, less the board's idle ones where it is always on, nothing where it has been given back.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "campaign"), str(HERE.parent / "nvmlsim")]

from house import House, Job, until
from kills import hit, orphan, simulated_boards

BOUNDARIES = ("held", "always-on", "given-back")
HOST_W = 200.0
SCRIPT = """\
import os, sys, time
import carbontui
carbontui.on_checkpoint(lambda: None)
for _ in range(10**6):
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.05)
    carbontui.step()
"""


def kills(job: Job) -> None:
    hit(job.pids()["supervisor"], signal.SIGKILL)
    time.sleep(8)
    if (status := job.served()) is not None:
        hit(status.pids.agent, signal.SIGKILL)
    time.sleep(8)
    orphan(job)
    job.house.cli("restart", job.id)


DONE = {
    "nothing": lambda job: None,
    "pause": lambda job: job.house.cli("pause", job.id, "--for", "15s"),
    "cap": lambda job: job.house.cli("cap", job.id, "400W"),
    "kills": kills,
}


def run(boundary: str, what: str, seconds: float, top: Path) -> tuple[float, set[str]]:
    """Booked / true - 1, and the states that were seen."""
    (folder := top / f"{boundary} {what}").mkdir()
    house = House(folder, None)
    house.script.write_text(SCRIPT)
    end = folder / "end"
    try:
        sim = simulated_boards(house, 1)
        idle_w = sim.get("power_w")
        sim.load(1.0)
        order = ("run", "--detach", "--boundary", boundary, "--pue", "1", "--host-w", f"{HOST_W}")
        before_s, before_j = time.monotonic(), sim.get("energy_j")
        command = ("--intensity", "300", "--", sys.executable, house.script, end)
        job = Job(house, house.cli(*order, *command, check=True).stdout.strip(), folder / "m")
        started = began_s(job)
        with ThreadPoolExecutor(1) as pool:
            acting = pool.submit(lambda: (time.sleep(seconds / 3), DONE[what](job)))
            true_j, state, states, since_s = 0.0, "running", set(), time.monotonic()
            at_s, at_j, exit = started, None, job.dir / "exit.json"
            while True:
                over, now_s, now_j = exit.exists(), time.monotonic(), sim.get("energy_j")
                if at_j is None:
                    at_j = before_j + (now_j - before_j) * (at_s - before_s) / (now_s - before_s)
                if over:  # of the last look, what was before the end
                    ended_s = time.monotonic() - time.time() + json.loads(exit.read_text())["at"]
                    now_j = at_j + (now_j - at_j) * (ended_s - at_s) / (now_s - at_s)
                    now_s = ended_s
                if boundary == "held" or state not in ("unloaded", "waiting"):
                    beside_w = -idle_w if boundary == "always-on" else HOST_W
                    true_j += now_j - at_j + beside_w * (now_s - at_s)
                at_s, at_j = now_s, now_j
                if over:
                    break
                if (status := job.served()) is not None:
                    state = status.state
                    states.add(state)
                if now_s - since_s > seconds and acting.done():
                    end.touch()
                time.sleep(0.05)
            acting.result()
        job.until_over(120)
        with closing(sqlite3.connect(job.dir / "journal.db")) as db:
            parts = dict(db.execute("select device, sum(joules) from energy group by 1"))
        booked_j = sum(joules for device, joules in parts.items() if device == "host" or "GPU" in device)
        return booked_j / true_j - 1, states
    finally:
        house.end()


def began_s(job: Job) -> float:
    """When the command began, by this machine's monotonic clock."""
    child = until(lambda: json.loads((job.dir / "job.json").read_text())["pids"]["child"], 30, "the command")
    ticks = int(Path(f"/proc/{child[0]}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK") - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(DONE))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    pairs = list(itertools.product(asked.only, BOUNDARIES))
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(asked.at_once) as pool:
        found = list(pool.map(lambda pair: run(pair[1], pair[0], asked.seconds, Path(top)), pairs))
    by_pair = dict(zip(pairs, found, strict=True))
    lines = [
        "# Joules booked against an evaluator of its own",
        "",
        f"{datetime.date.today()}, {os.cpu_count()} shared vCPU, load {os.getloadavg()[0]:.0f}, one simulated board,"
        f" jobs of {asked.seconds:.0f} s and what was done to them, {asked.at_once} at once (bench_truth.py).",
        "",
        f"| error in % | {' | '.join(BOUNDARIES)} |",
        "|---" * (1 + len(BOUNDARIES)) + "|",
    ]
    for what in asked.only:
        cells = (f"{100 * by_pair[what, boundary][0]:+.2f}" for boundary in BOUNDARIES)
        lines.append(f"| {what} | {' | '.join(cells)} |")
        print(what, [sorted(by_pair[what, boundary][1]) for boundary in BOUNDARIES])
    print("\n".join(lines))
    if asked.out:
        asked.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
