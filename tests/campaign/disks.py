"""A job whose disk is slow for a while, or knows no locks. Needs a C compiler."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import lasting
from house import House, until

from carbontui.job.files.journal import read


@dataclass
class Found:
    """What a sick disk has done."""

    orders: int = 0
    slowest_answer_s: float = 0.0
    noticed: bool = False
    longest_standstill_s: float = 0.0
    rows: int = 0
    faults: list[str] = field(default_factory=list)


def sick(house: House, *, locks: bool = True) -> Path | None:
    """Every process of the house from now on has this disk; the file that says how slow it is. None: no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library, seconds = house.root / "disk.so", house.root / "seconds"
    source = Path(__file__).with_name("disk.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    set_slow(seconds, 0.0)
    house.env |= {
        "LD_PRELOAD": str(library),
        "CAMPAIGN_DISK": str(house.home / "jobs"),
        "CAMPAIGN_DISK_S": str(seconds),
    }
    if not locks:
        house.env["CAMPAIGN_NO_LOCKS"] = "1"
    return seconds


def set_slow(path: Path, each_s: float) -> None:
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(struct.pack("d", each_s))


def slow(house: House, each_s: float, for_s: float, found: Found) -> None:
    """Orders while every write takes `each_s`: answered soon, in force, and nothing else changes."""
    seconds = sick(house)
    if seconds is None:
        return
    job = house.start("--budget", "30h", *lasting.KNOWN, name="slow")
    paused = house.start("--budget", "30h", *lasting.KNOWN, name="paused")
    for each in (job, paused):
        each.until_connected()
    lasting.tell(paused, "pause", {})
    held = until(lambda: (s := paused.served()) and s.state == "paused" and s.step, 10, "the pause")
    before = {each.id: each.pids()["supervisor"] for each in (job, paused)}
    set_slow(seconds, each_s)
    due, budget = time.monotonic() + for_s, 30
    while time.monotonic() < due:
        budget = 70 - budget
        asked = time.monotonic()
        answer = lasting.tell(job, "budget", {"budget": f"{budget}h"})
        found.slowest_answer_s = max(found.slowest_answer_s, time.monotonic() - asked)
        found.orders += 1
        status = job.served()
        if not answer.ok or status is None or lasting.hours(status) != budget:
            found.faults.append(f"budget {budget}h: {answer} {status and status.budget}")
        else:
            found.noticed = found.noticed or any("is slow" in notice for notice in status.notices)
        time.sleep(min(10.0, for_s / 5))
    set_slow(seconds, 0.0)
    for each, hours in ((job, budget), (paused, 30)):
        status = until(each.served, 60, "an answer")
        if status.pids.supervisor != before[each.id]:
            found.faults.append(f"{each.id}: supervisor {before[each.id]} replaced by {status.pids.supervisor}")
        if lasting.hours(status) != hours:
            found.faults.append(f"{each.id}: budget {status.budget} instead of {hours}h")
    now = paused.served()
    if now.state != "paused" or now.step != held:
        found.faults.append(f"a paused job is {now.state}, step {held} -> {now.step}")
    found.longest_standstill_s = max(job.gaps())
    for each in (job, paused):
        until(lambda each=each: _stored(each) == lasting.hours(each.served()) * 3600, 120, "the budget in the journal")


def _stored(job: lasting.Job) -> float:
    with read(job.dir / "journal.db") as db:
        return json.loads(db.execute("select value from state where key='budget'").fetchone()[0])["value"]


def without_locks(house: House, found: Found) -> None:
    """A job on a file system without locks has a journal all the same, and every verb reads it."""
    if sick(house, locks=False) is None:
        return
    job = house.start(*lasting.KNOWN, name="nolocks")
    job.until_connected()
    lasting.tell(job, "budget", {"budget": "30h"})
    os.kill(job.pids()["supervisor"], 9)
    status = until(lambda: (s := job.served()) and s.clients and s, 60, "a successor")
    if lasting.hours(status) != 30:
        found.faults.append(f"budget {status.budget}")
    time.sleep(4.0)
    status = job.served()
    found.faults += [notice for notice in status.notices if "not written" in notice]
    for verb in ("report", "history", "status"):
        done = house.cli(verb, *([] if verb == "history" else [job.id]))
        if done.returncode:
            found.faults.append(f"{verb}: {done.stderr.strip()}")
    job.let_end()
    job.until_over()
    done = house.cli("report", job.id)
    if done.returncode:
        found.faults.append(f"report of the finished job: {done.stderr.strip()}")
    with read(job.dir / "journal.db") as db:
        found.rows = db.execute("select count(*) from event").fetchone()[0]
