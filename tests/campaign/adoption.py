"""Keeper and supervisor killed at any moment, then `restart`: the training is taken up, and no joule is missing."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from house import House, Job, until
from kills import order, orphan, simulated_boards

LIVES = 10
"""How often one training is taken up before it ends."""
WATTS = 0.9
"""Load of the simulated board."""


@dataclass
class Found:
    """What the restarts have done."""

    rounds: int = 0
    slowest_s: float = 0.0
    account: list[float] = field(default_factory=list)
    """Joules booked for one true joule of the board, per job."""
    steps: int = 0
    faults: list[str] = field(default_factory=list)


def run(house: House, rounds: int, seed: int, found: Found) -> None:
    """So many rounds, on jobs of `LIVES` lives each; each ends in its own way, with its own exit code."""
    dice = random.Random(seed)
    sim = simulated_boards(house, 1)
    while found.rounds < rounds:
        job = house.start("--intensity", "300", steps=10**7, pause=0.02, code=7, name=f"a{found.rounds}")
        job.until_connected()
        child = job.pids()["child"]
        if sim is not None:
            sim.process(child, level=WATTS)
            until(lambda job=job: (s := job.served()) and s.energy_gpu_kwh > 0, what="the board's energy")
        begun = _joules(job, sim)
        for _ in range(min(LIVES, rounds - found.rounds)):
            time.sleep(dice.uniform(0, 4))
            if dice.random() < 0.3:
                order(job, *dice.choice([("cap", {"value_w": 300.0}), ("boost", {}), ("pause", {"for_s": 5.0})]))
            orphan(job)
            time.sleep(dice.uniform(0, 4))
            _restart(job, child, found)
        order(job, "boost", {})
        time.sleep(3)
        booked, true = (b - a for a, b in zip(begun, _joules(job, sim), strict=True))
        if sim is not None:
            found.account.append(booked / true)
            if abs(booked / true - 1) > 0.01:
                found.faults.append(f"{job.id}: {booked:.0f} J booked of {true:.0f} J")
        _ended(job, found)


def _restart(job: Job, child: int, found: Found) -> None:
    found.rounds += 1
    at = time.monotonic()
    done = job.house.cli("restart", job.id)
    status = until(lambda: (s := job.served()) and s.clients and s, 60, "the training's connection")
    took_s = time.monotonic() - at
    found.slowest_s = max(found.slowest_s, took_s)
    if done.returncode or status.pids.child != child:
        found.faults.append(f"{job.id}: exit {done.returncode} after {took_s:.1f} s: {done.stderr.strip()}")


def _joules(job: Job, sim) -> tuple[float, float]:
    """Booked, sampled now, and true."""
    if sim is None:
        return 0.0, 0.0
    before = sim.get("energy_j")
    booked = until(job.served, 60, "a supervisor").energy_gpu_kwh * 3.6e6
    return booked, (before + sim.get("energy_j")) / 2


def _ended(job: Job, found: Found) -> None:
    job.let_end()
    record = job.until_exit(60)
    job.until_over(60)
    counted = [int(line.split()[0]) for line in job.marks.read_text().splitlines()]
    found.steps += len(counted)
    status = job.status()
    if record["code"] not in (7, None) or counted != list(range(1, len(counted) + 1)) or status["step"] != len(counted):
        found.faults.append(f"{job.id}: exit {record}, {len(counted)} steps made, {status['step']} told")
