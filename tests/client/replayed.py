"""A job under the real keeper and supervisor whose plan unloads: a replayed grid of clean and dirty hours."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from house import House, Job

SPEED = 4800.0
"""Replayed seconds per second: a day is 18 seconds, a slot of the plan less than a fifth of one."""
MIDNIGHT = datetime(2020, 4, 20, tzinfo=timezone.utc)

LAUNCH = """\
import json, sys, time
from carbontui import units
from carbontui.job.life import launch
from carbontui.job.terms import spec
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.commands import run
told = json.loads(sys.argv[1])
home = launch.claim("replay", ())
origin = time.time() + 0.5
print(home["job"], flush=True)
run.start_and_follow(spec.Options(
    **home, argv=tuple(told["argv"]), cwd=told["cwd"], created_s=origin,
    zone="DE", grid=told["grid"], budget=told["budget"], work_s=told["work_s"], steps=told["steps"],
    ref_rate=told["steps"] / told["work_s"], cap=False, requeue=told["requeue"], max_pause_s=1e6,
    replay=spec.Replay(start_s=units.from_iso(told["start"]), speed=told["speed"], wall_origin_s=origin),
    simulated=SimulatedSpec(),
), detach=not told["front"], hold=False)
"""

# counts like a training, without the seconds that torch takes to load
COUNTING = """\
import json, os, sys, time
import carbontui
total, dt, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if os.environ.get("CARBONTUI_RESUME") and len(sys.argv) > 4:
    dt = float(sys.argv[4])
state = {"done": 0, "sum": 1}
if os.environ.get("CARBONTUI_RESUME"):
    state = json.load(open(path))
print("life", json.dumps([os.environ.get("CARBONTUI_RESUME"), os.environ.get("CARBONTUI_START_STEP"), state["done"]]),
      time.time(), flush=True)
@carbontui.on_checkpoint
def save():
    json.dump(state, open(path + ".new", "w"))
    os.replace(path + ".new", path)
while state["done"] < total:
    time.sleep(dt)
    state["done"] += 1
    state["sum"] = state["sum"] * 6364136223846793005 % 2**61 + state["done"]
    carbontui.step()
print("weights", state["sum"], flush=True)
"""


def days(path: Path, clean_h: int = 10) -> Path:
    """A recorded grid of four weeks of days, clean from midnight on for some hours, then dirty: what any forecast sees
    coming. The job sees the last two weeks."""
    rows = ["time_utc,carbon_g_per_kwh"]
    for slot in range(-14 * 96, 14 * 96):
        moment = MIDNIGHT + timedelta(minutes=15 * slot)
        rows.append(f"{moment:%Y-%m-%dT%H:%M:%SZ},{20 if moment.hour < clean_h else 900}")
    path.write_text("\n".join(rows) + "\n")
    return path


def start(
    house: House,
    argv: list[str],
    *,
    grid: Path,
    steps: int,
    flat_s: float,
    requeue: bool = False,
    front: bool = False,
    budget: str = "4x",
    start_h: int = 3,
) -> Job | tuple[Job, int, str]:
    """Launch under the plan; `flat_s` is what the steps take at full speed. In front: until the end, with exit code and
    what was said on stderr."""
    told = {
        "argv": argv,
        "cwd": str(house.root),
        "grid": str(grid),
        "budget": budget,
        "work_s": flat_s * SPEED,
        "steps": steps,
        "requeue": requeue,
        "front": front,
        "start": f"{MIDNIGHT + timedelta(hours=start_h):%Y-%m-%dT%H:%M:%SZ}",
        "speed": SPEED,
    }
    command = [sys.executable, "-c", LAUNCH, json.dumps(told)]
    done = subprocess.run(command, env=house.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert front or done.returncode == 0, done.stderr
    job = Job(house, done.stdout.split()[0], house.root / "marks")
    return (job, done.returncode, done.stderr) if front else job


def events(job: Job, *kinds: str) -> list[dict]:
    """The journal's events of some kinds, oldest first, each with its `kind`."""
    with sqlite3.connect(f"file:{job.dir / 'journal.db'}?mode=ro", uri=True) as db:
        rows = db.execute("select kind, data from event order by rowid").fetchall()
    return [json.loads(data) | {"kind": kind} for kind, data in rows if kind in kinds]


def lives(job: Job) -> list[tuple[list, float]]:
    """What each start of the script found in its environment and checkpoint, and when."""
    lines = (job.dir / "run.log").read_text().splitlines()
    found = [line[5:].rpartition(" ") for line in lines if line.startswith("life ")]
    return [(json.loads(told), float(at)) for told, _, at in found]
