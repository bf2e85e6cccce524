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
from kills import hit, orphan
from nvmlsim import Sim, build

from carbontui.units import iso

BOUNDARIES = ("held", "always-on", "given-back")
HOST_W = 200.0
RUNS = ("starting", "running", "throttled", "pausing")
"""In which the board computes; paused it holds the model, unloaded and waiting it has no process."""
AWAY_S = 15.0
"""How long a job is held, is unloaded, waits, or leaves watts to a grid event."""
SCRIPT = """\
import json, os, sys, threading, time
import carbontui
end = sys.argv[1]

def leave():
    while not os.path.exists(end + ".leave"):
        time.sleep(0.05)
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 36000))
    with open(os.environ["CARBONTUI_MARKER"], "w") as file:
        json.dump({"step": 12, "not_before": later}, file)
    os._exit(0)

if "CARBONTUI_RESUME" not in os.environ:
    threading.Thread(target=leave, daemon=True).start()
carbontui.on_checkpoint(lambda: None)
for _ in range(10**6):
    if os.path.exists(end):
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


def event(job: Job) -> None:
    asked = {"id": "dr", "start": iso(time.time() + 20), "duration_s": AWAY_S, "within_s": 5, "shed_w": 250.0}
    (job.house.root / "event.json").write_text(json.dumps(asked))
    job.house.cli("site", "--event", job.house.root / "event.json", check=True)
    time.sleep(AWAY_S + 30)


def unload(job: Job) -> None:
    job.house.cli("pause", job.id, check=True)  # it stays unloaded until it is told to go on
    until(lambda: (s := job.served()) and s.state == "paused", 30, "the pause")
    time.sleep(2)  # its board draws no more than a held one from here on
    (job.house.root / "end.leave").touch()
    until(lambda: (s := job.served()) and s.state == "unloaded", 30, "the unload")
    time.sleep(AWAY_S)
    wait(job)


def wait(job: Job) -> None:
    job.house.cli("boost", job.id, check=True)
    until(lambda: (s := job.served()) and s.state == "running", 30, "the start", every=0.5)


def clean_soon(house: House) -> tuple[object, ...]:
    """Options under which any plan waits, whatever counts meanwhile: half an hour that no other one is as dirty as."""
    now = time.time() // 900 * 900
    rows = [f"{iso(now + 900 * k)},{4900 if k < 3 else 5}\n" for k in range(-96, 192)]
    (house.root / "grid.csv").write_text("time_utc,carbon_g_per_kwh\n" + "".join(rows))
    return "--zone", "DE", "--grid", house.root / "grid.csv", "--budget", "20h", "--work", "1h", "--patience", "0%"


DONE = {
    "nothing": lambda job: None,
    "pause": lambda job: job.house.cli("pause", job.id, "--for", f"{AWAY_S:.0f}s"),
    "cap": lambda job: job.house.cli("cap", job.id, "400W"),
    "unload": unload,
    "wait": wait,
    "event": event,
    "kills": kills,
}


def run(boundary: str, what: str, seconds: float, top: Path) -> tuple[float, set[str]]:
    """Booked / true - 1, and the states that were seen."""
    (folder := top / f"{boundary} {what}").mkdir()
    house = House(folder, None)
    house.script.write_text(SCRIPT)
    end = folder / "end"
    try:
        sim = Sim(build(folder), folder / "nvml.state", frozen=False)  # a library of its own: each has one machine
        house.env |= sim.env()
        idle_w = sim.get("power_w")
        sim.load(float(what != "wait"), context=what != "wait")
        order = ("run", "--detach", "--boundary", boundary, "--pue", "1", "--host-w", f"{HOST_W}")
        before_s, before_j = time.monotonic(), sim.get("energy_j")
        grid = clean_soon(house) if what == "wait" else ("--intensity", "300")
        command = (*grid, "--", sys.executable, house.script, end)
        job = Job(house, house.cli(*order, *command, check=True).stdout.strip(), folder / "m")
        started = created_s(job) if what == "wait" else began_s(job)
        with ThreadPoolExecutor(1) as pool:
            acting = pool.submit(lambda: (time.sleep(seconds / 4), DONE[what](job)))
            true_j, state, states, since_s = 0.0, "waiting" if what == "wait" else "running", set(), time.monotonic()
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
                    if status.state != state:
                        runs, there = status.state in RUNS, status.state not in ("unloaded", "waiting")
                        sim.load(float(runs), context=there)
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
        print(boundary, what, f"{100 * (booked_j / true_j - 1):+.2f} %", sorted(states), flush=True)
        return booked_j / true_j - 1, states
    finally:
        house.end()


def created_s(job: Job) -> float:
    """When the job was created, by this machine's monotonic clock."""
    return json.loads((job.dir / "job.json").read_text())["started"] - time.time() + time.monotonic()


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
    print("\n".join(lines))
    if asked.out:
        asked.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
