"""Orders that last: a supervisor killed right after each answer, and a keeper that sleeps while orders are given."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from house import House, Job, until
from kills import hit

from carbontui import link, protocol
from carbontui.job.files import store

KNOWN = ("--work", "10h", "--zone", "DE", "--intensity", "300")
"""Its work is known, and its every hour is alike: it starts at any time of the day."""
SETTINGS: dict[str, tuple[str, dict[str, object], Callable[[protocol.Status], bool]]] = {
    "pause": ("pause", {}, lambda s: s.override is not None and s.override.mode == "pause"),
    "boost": ("boost", {"for_s": 3600.0}, lambda s: s.override is not None and s.override.mode == "boost"),
    "resume": ("resume", {}, lambda s: s.override is None),
    "30h": ("budget", {"budget": "30h"}, lambda s: s.budget is not None and hours(s) == 30),
    "40h": ("budget", {"budget": "40h"}, lambda s: s.budget is not None and hours(s) == 40),
    "forbid": ("forbid", {"hours": "daily 03:00-03:30"}, lambda s: bool(s.forbidden)),
    "allow": ("allow", {}, lambda s: not s.forbidden),
}


EACH = 6


@dataclass
class Found:
    """What became of orders."""

    orders: int = 0
    stored: int = 0
    lost: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    """From the keeper's wake-up until an order given in its sleep was in force."""


def hours(status: protocol.Status) -> int:
    from carbontui import units

    return round((units.from_iso(status.budget.deadline) - units.from_iso(status.budget.start)) / 3600)


def tell(job: Job, verb: str, args: dict[str, object]) -> protocol.Result:
    return link.ask(store.load(job.dir).socket, protocol.Cmd(1, verb, args), 15.0)


def answered_then_killed(house: House, rounds: int, seed: int, found: Found) -> None:
    """Each order is answered, the supervisor is killed at once, and the order must be in force with its successor."""
    dice = random.Random(seed)
    for n in range(rounds):
        if n % EACH == 0:  # the keeper starts a supervisor that is killed often ever later
            job = house.start(*KNOWN, pause=0.05, name=f"killed{n}")
            job.until_connected()
        status = until(job.served, 90, "a supervisor")
        name = dice.choice([name for name, (_, _, there) in SETTINGS.items() if not there(status)])
        verb, args, there = SETTINGS[name]
        pid = status.pids.supervisor
        answer = tell(job, verb, args)
        os.kill(pid, signal.SIGKILL)
        if not answer.ok:
            found.lost.append(f"{n}: {name} refused: {answer.error}")
            continue
        found.orders += 1
        found.stored += "not stored" not in answer.text
        fresh = until(lambda one=job, old=pid: (s := one.served()) and s.pids.supervisor != old and s, 90, "a heir")
        if not there(fresh):
            found.lost.append(f"{n}: {name} ({answer.text}): {fresh.override} {fresh.budget} {fresh.forbidden}")


def while_the_keeper_sleeps(house: House, sleep_s: float, found: Found) -> None:
    """Orders given in a sleep of the keeper are in force soon after it wakes, and no supervisor is replaced."""
    orders: dict[str, tuple[dict[str, object], Callable[[Job], object]]] = {
        "pause": ({}, lambda job: (s := job.served()) and s.state == "paused"),
        "budget": ({"budget": "30h"}, lambda job: (s := job.served()) and hours(s) == 30),
        "boost": ({}, lambda job: job.steps() > 0),
        "stop": ({"now": True}, lambda job: (job.dir / "exit.json").exists()),
    }
    jobs: dict[str, tuple[Job, int, int | None]] = {}
    waits = ("--budget", "20h", "--work", "1h", *house.dirty_now())
    for verb in orders:
        job = house.start(*(waits if verb == "boost" else KNOWN), name=verb)
        if verb == "boost":
            tell(job, "pause", {})
            assert job.served().state == "waiting"
        else:
            job.until_connected()
        jobs[verb] = job, job.pids()["keeper"], job.pids()["supervisor"]
    try:
        for _, keeper, _ in jobs.values():
            os.kill(keeper, signal.SIGSTOP)
        time.sleep(sleep_s / 2)
        for verb, (args, _) in orders.items():
            found.orders += 1
            tell(jobs[verb][0], verb, args)
        time.sleep(sleep_s / 2)
    finally:
        for _, keeper, _ in jobs.values():
            hit(keeper, signal.SIGCONT)
    woke = time.monotonic()
    for verb, (_, there) in orders.items():
        job, _, supervisor = jobs[verb]
        with contextlib.suppress(AssertionError):
            until(lambda job=job, there=there: there(job), 30, verb)
            found.slowest_s = max(found.slowest_s, time.monotonic() - woke)
            continue
        found.lost.append(f"{verb}: not in force 30 s after the keeper woke")
    for verb, (job, _, supervisor) in jobs.items():
        if "silent for" in (job.dir / "carbontui.log").read_text():
            found.lost.append(f"{verb}: supervisor {supervisor} was killed for the keeper's sleep")
