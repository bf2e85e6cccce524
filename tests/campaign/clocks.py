"""A wall clock that is set by ten years, there and back, under a job that trains and one that waits."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import rest
from house import House, until
from kills import order

YEARS_10_S = 10 * 365.25 * 86400
JUMPS_S = (YEARS_10_S, -YEARS_10_S, 86400.0, -3600.0)


@dataclass
class Found:
    """What jumps of the clock have done."""

    jumps: int = 0
    slowest_answer_s: float = 0.0
    longest_standstill_s: float = 0.0
    faults: list[str] = field(default_factory=list)


def run(house: House, found: Found) -> None:
    """Each jump and the way back. Needs a C compiler; without one nothing is counted."""
    compiler = shutil.which("cc")
    if compiler is None:
        return
    library, clock = house.root / "clock.so", house.root / "clock"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl", "-lm"], check=True)

    def move(seconds: float) -> None:
        with clock.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    clock.write_bytes(struct.pack("d", 0.0))
    house.env |= {"LD_PRELOAD": str(library), "CAMPAIGN_CLOCK": str(clock)}
    job = house.start("--zone", "DE", code=7, name="trains")
    waiting = rest.start(house, "waits", "waits")
    job.until_steps(100)
    until(lambda: (s := job.served()) and s.energy_wall_kwh, what="some energy")
    supervisors = [each.pids()["supervisor"] for each in (job, waiting)]
    for jump_s in JUMPS_S:
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
    if supervisors != [each.pids()["supervisor"] for each in (job, waiting)]:
        found.faults.append("a supervisor was replaced")
    found.longest_standstill_s = max(job.gaps())
    order(waiting, "boost", {})
    (house.root / "waits.end").touch()
    job.let_end()
    for each, code in ((job, 7), (waiting, 5)):
        got = each.until_exit(60)["code"]
        if got != code:
            found.faults.append(f"exit {got} instead of {code}")
