"""A wall clock that is set by ten years, or to a change of summer time or of an epoch's width, there and back, under a
job that trains and one that waits."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import rest
from house import House, Job, until
from kills import hit, order, orphan

from carbontui.job.files import places

YEARS_10_S = 10 * 365.25 * 86400
JUMPS_S = (YEARS_10_S, -YEARS_10_S, 86400.0, -3600.0)
MOMENTS = ("2027-03-28T01:00:00", "2027-10-31T01:00:00", "2038-01-19T03:14:08", "2106-02-07T06:28:16")
"""UTC: summer time of Europe/Berlin begins and ends; 2**31 and 2**32 seconds of the epoch."""
BEFORE_S = 2.0
"""So long before each the job is put."""


@dataclass
class Found:
    """What jumps of the clock have done."""

    jumps: int = 0
    slowest_answer_s: float = 0.0
    longest_standstill_s: float = 0.0
    faults: list[str] = field(default_factory=list)


SUSPENDED_S = 15.0
WOKE_S = 3 * 3600.0
"""The wall's and the boot's clock go on in a suspend; others stand still, or (here) have stood for SUSPENDED_S."""
LEASE_S = 600.0
READ_APART_S = 0.1
"""A gap is a difference of two clocks, which cannot be read at one instant."""


def suspended(house: House, job: Job, move: Callable[..., None], found: Found) -> None:
    """All processes stop and go on hours later: nobody is taken for silent, nothing is lost, the time is a gap and no
    energy. What a person has paused stays so, and a lease that ran out meanwhile forbids to train."""
    paused, leased = (house.start("--zone", "DE", pause=0.05, name=name) for name in ("paused", "leased"))
    for each in (paused, leased):
        each.until_connected()
    order(paused, "pause", {})
    held_place = places.Places(1, holder=True, leased=True, lease_s=LEASE_S)
    places.write(leased.dir, held_place.leased_for(LEASE_S, places.now()))
    orphan(leased)
    house.cli("restart", leased.id, check=True)
    leased.until_steps()
    until(lambda: (s := paused.served()) and s.state == "paused", what="the pause")
    before = until(job.until_connected, what="an answer")
    held = paused.steps()
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if of_house(entry, house)]
    for pid in pids:
        hit(pid, signal.SIGSTOP)
    time.sleep(SUSPENDED_S)
    move(WOKE_S, WOKE_S)
    for pid in pids:
        hit(pid, signal.SIGCONT)
    found.jumps += 1
    job.until_steps(300)
    after = until(job.served, what="an answer")
    if after.pids != before.pids:
        found.faults.append(f"suspended: {before.pids} -> {after.pids}")
    if after.coverage.gap_s < WOKE_S - READ_APART_S:
        found.faults.append(f"suspended: {after.coverage}")
    if "the machine slept for 3 h" not in (log := (job.dir / "carbontui.log").read_text()):
        found.faults.append(f"suspended: {log}")
    if after.energy_wall_kwh > before.energy_wall_kwh + 1e-3:
        found.faults.append(f"suspended: {before.energy_wall_kwh} -> {after.energy_wall_kwh} kWh")
    still = paused.served()
    # here the monotonic clock goes on, and the client's lease of the pause may end for a step
    if still.state != "paused" or paused.steps() > held + 1 or still.energy_wall_kwh > 1e-3:
        found.faults.append(f"suspended while paused at {held}: {still.state}, {paused.steps()} steps")
    over = leased.until_state("unloaded")
    if leased.pids()["child"] is not None:
        found.faults.append(f"suspended under a lease: {over}")
    for each in (paused, leased):
        house.cli("stop", each.id, "--now", "--yes", check=True)
    move(0.0, 0.0)


def of_house(entry: Path, house: House) -> bool:
    with contextlib.suppress(OSError):
        return os.fsencode(f"CARBONTUI_HOME={house.home}") in (entry / "environ").read_bytes().split(b"\0")
    return False


def run(house: House, found: Found) -> None:
    """Each jump and the way back. Needs a C compiler; without one nothing is counted."""
    compiler = shutil.which("cc")
    if compiler is None:
        return
    library, clock = house.root / "clock.so", house.root / "clock"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl", "-lm"], check=True)

    def move(*seconds: float) -> None:
        with clock.open("r+b") as file:
            file.write(struct.pack("d" * len(seconds), *seconds))

    clock.write_bytes(struct.pack("dd", 0.0, 0.0))
    house.env |= {"LD_PRELOAD": str(library), "CAMPAIGN_CLOCK": str(clock), "TZ": "Europe/Berlin"}
    moments = (datetime.fromisoformat(f"{at}+00:00").timestamp() - BEFORE_S - time.time() for at in MOMENTS)
    job = house.start("--zone", "DE", code=7, name="trains")
    waiting = rest.start(house, "waits", "waits")
    job.until_steps(100)
    until(lambda: (s := job.served()) and s.energy_wall_kwh, what="some energy")
    supervisors = [each.pids()["supervisor"] for each in (job, waiting)]
    for jump_s in (*JUMPS_S, *moments):
        for to_s in (jump_s, 0.0):
            before = job.served()
            assert before is not None
            begun = time.monotonic()
            move(to_s)
            found.jumps += 1
            job.until_steps(200)
            after = until(job.served, what="an answer")
            asked = time.monotonic()
            job.served()
            found.slowest_answer_s = max(found.slowest_answer_s, time.monotonic() - asked)
            most = before.energy_wall_kwh + 3.0 * (time.monotonic() - begun) / 3600 + 1e-3
            if not before.energy_wall_kwh <= after.energy_wall_kwh <= most:
                found.faults.append(f"{to_s:+.0f} s: {before.energy_wall_kwh} -> {after.energy_wall_kwh} kWh")
            if after.step < before.step or after.state not in ("running", "throttled"):
                found.faults.append(f"{to_s:+.0f} s: {after.state}, step {before.step} -> {after.step}")
            state = (s := waiting.served()) and s.state
            if state != "waiting":
                found.faults.append(f"{to_s:+.0f} s: a job that a person holds is {state}")
    suspended(house, job, move, found)
    if supervisors != [each.pids()["supervisor"] for each in (job, waiting)]:
        found.faults.append("a supervisor was replaced")
    found.longest_standstill_s = max(gap for gap in job.gaps() if gap < SUSPENDED_S)
    order(waiting, "boost", {})
    (house.root / "waits.end").touch()
    job.let_end()
    for each, code in ((job, 7), (waiting, 5)):
        got = each.until_exit(60)["code"]
        if got != code:
            found.faults.append(f"exit {got} instead of {code}")
