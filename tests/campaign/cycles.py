"""Deaths and hangs while a job is unloaded and resumed on trial: in a rehearsal, and in a try before the start."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from pathlib import Path

from house import House, Job, until
from kills import FAULTS, Found, inject, order

from carbontui import link, protocol
from carbontui.job.files import store

SCRIPT = """\
import json, os, sys, time
import carbontui
path, state = sys.argv[1], {"done": 0, "sum": 1}
if os.environ.get("CARBONTUI_RESUME"):
    state = json.load(open(path))
print("life", state["done"], flush=True)
def save():
    json.dump(state, open(path + ".new", "w"))
    os.replace(path + ".new", path)
carbontui.on_checkpoint(save)
while not os.path.exists(path + ".end"):
    time.sleep(0.02)
    state["done"] += 1
    state["sum"] = state["sum"] * 6364136223846793005 % 2**61 + state["done"]
    carbontui.step()
print("sum", state["done"], state["sum"], flush=True)
sys.exit(7)
"""


def rehearsing(house: House, seconds: float, seed: int, found: Found) -> None:
    """Faults at any moment of the rehearsals of one job; then it ends in its own way."""
    dice = random.Random(seed)
    job = _job(house, "rehearses", "--budget", "1x")
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        _trains(job)
        found.orders += order(job, "rehearse", {})
        time.sleep(dice.uniform(0, 3))
        _fault(job, dice, found, "rehearsal")
    _trains(job)
    _ended(job, found)


def trying(house: House, seconds: float, seed: int, found: Found) -> None:
    """A fault at any moment of a try before the start; the start for good goes on where the try has left it."""
    dice = random.Random(seed)
    due, n = time.monotonic() + seconds, 0
    while time.monotonic() < due:
        n += 1
        job = _job(house, f"tries{n}", "--budget", "20h", "--try", wait=False)
        time.sleep(dice.uniform(0, 5))
        _fault(job, dice, found, "try")
        until(lambda job=job: not _record(job).trying, 150, "the end of the try")
        until(lambda job=job: order(job, "boost", {}), 90, "an order taken")
        _trains(job)
        _ended(job, found, tried=True)


def _job(house: House, name: str, *options: str, wait: bool = True) -> Job:
    (house.root / "cycles.py").write_text(SCRIPT)
    before = set(house.home.glob("jobs/*"))
    words = (
        "run",
        "--detach",
        "--name",
        name,
        *house.dirty_now(),
        "--work",
        "1h",
        *options,
    )
    command = [sys.executable, "-m", "carbontui.cli", *words, "--", sys.executable, house.root / "cycles.py"]
    front = subprocess.Popen(
        [*map(str, command), str(house.root / name)],
        env=house.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if wait:
        front.wait(60)
    made = until(lambda: [d for d in set(house.home.glob("jobs/*")) - before if (d / "job.json").exists()], 30, "a job")
    job = Job(house, made[0].name, house.root / name)
    until(lambda: job.pids().get("child"), 60, "the training")
    return job


def _record(job: Job) -> store.Job:
    return until(lambda: store.load(job.dir), 10, "the job's record")


def _trains(job: Job) -> None:
    """Until its training makes steps that a supervisor hears of, and no resume is left to be judged: one that fails
    before it has been seen to hold begins again, without its checkpoint."""
    seen = until(lambda: (s := job.served()) and s.clients and s, 150, "the training's connection").step
    until(lambda: (s := job.served()) and s.clients and s.step > seen, 150, "a further step")
    until(lambda: _judged(job), 150, "a verdict on the resume")


def _judged(job: Job) -> bool:
    with contextlib.suppress(link.LinkError):
        answer = link.ask(_record(job).socket, protocol.Cmd(1, "rehearse", {"show": True}), 3.0)
        return bool(answer.data) and answer.data.get("phase") == "none"
    return False


def _fault(job: Job, dice: random.Random, found: Found, phase: str) -> None:
    role = dice.choice(sorted(FAULTS))
    number = dice.choice(FAULTS[role])
    if inject(job, role, number):
        found.fault(f"{phase}, {role} {number.name}")


def _ended(job: Job, found: Found, *, tried: bool = False) -> None:
    """Let it end; every life goes on where the last one was saved, and the sum is that of an undisturbed run. A
    try that was disturbed may end without its checkpoint: nothing is lost, the start for good is still to come."""
    Path(f"{job.marks}.end").touch()
    record = job.until_exit(90)
    if record["code"] != 7:
        found.wrong_exits += 1
        found.wrong(f"{job.id}: exit {record}")
    lines = (job.dir / "run.log").read_text().splitlines()
    lives = [int(line.split()[1]) for line in lines if line.startswith("life ")]
    _, steps, value = lines[-1].split()
    right = 1
    for step in range(1, int(steps) + 1):
        right = right * 6364136223846793005 % 2**61 + step
    found.steps += int(steps)
    with contextlib.suppress(AssertionError):
        job.until_over(60)
    told = job.status()["step"]
    if int(value) != right or lives[tried:] != sorted(set(lives[tried:])) or told != int(steps):
        found.wrong_steps += max(1, abs(told - int(steps)))
        found.wrong(f"{job.id}: lives began at {lives}, {steps} steps made, {told} told")
