"""A job whose disk is slow for a while, fails, or knows no locks. Needs a C compiler."""

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


def set_slow(path: Path, each_s: float, *failing: str) -> None:
    """Writes to a path that contains one of these texts fail."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write((struct.pack("d", each_s) + "\n".join(failing).encode()).ljust(4096, b"\0"))


FAILING = {
    "orders.log": "orders are not stored (orders.log not written: Input/output error)",
    "snapshot.json": "snapshot.json not written: Input/output error",
    "journal.db": "journal not written: disk I/O error",
    "run.log": "training: run.log does not take all output: Input/output error",
    "exit.": "exit.json could not be written: [Errno 5] Input/output error",
    "job.json": "job.json could not be written: [Errno 5] Input/output error: ",
}
"""Files whose every write fails, by how they begin, and the line that says so: in the log or as a notice."""


def failing(house: House, for_s: float, found: Found) -> None:
    """Jobs of which one file each takes no write: orders are obeyed, no step is lost, one line says it."""
    sick_file = sick(house)
    if sick_file is None:
        return
    house.script.write_text(
        house.script.read_text().replace("time.sleep(pause)", "time.sleep(pause); print(i, flush=True)")
    )
    jobs = {name: house.start(*lasting.KNOWN, code=7, pause=0.05, name=name.strip(".")) for name in FAILING}
    for job in jobs.values():
        job.until_connected()
    set_slow(sick_file, 0.0, *(f"{job.id}/{dot}{name}" for name, job in jobs.items() for dot in ("", ".")))
    due, notices = time.monotonic() + for_s, {}
    for name, job in jobs.items():
        for verb, args in (("pause", {}), ("boost", {}), ("budget", {"budget": "3x"})):
            found.orders += 1
            if not (answer := lasting.tell(job, verb, args)).ok:
                found.faults.append(f"{name}: {verb}: {answer.error}")
    time.sleep(max(0.0, due - time.monotonic()))
    for name, job in jobs.items():
        status = job.served()
        notices[name] = " ".join(status.notices)
        if status.override is None or status.override.mode != "boost" or status.budget is None:
            found.faults.append(f"{name}: {status.override}, {status.budget}")
        job.let_end()
    for name, job in jobs.items():
        job.until_over()
        steps = [int(line.split()[0]) for line in job.marks.read_text().splitlines()]
        log, told = (job.dir / "carbontui.log").read_text(), job.status()
        unknown = None if name == "snapshot.json" else -1
        if steps != list(range(1, len(steps) + 1)) or told["step"] not in (len(steps), unknown):
            found.faults.append(f"{name}: {len(steps)} steps made, {told['step']} told")
        if told["state"] != "failed" or "Traceback" in log + (job.dir / "run.log").read_text():
            found.faults.append(f"{name}: {told['state']}\n{log}")
        if FAILING[name] not in log + notices[name]:
            found.faults.append(f"{name} is not named: {notices[name]}\n{log}")
        found.longest_standstill_s = max(found.longest_standstill_s, *job.gaps())
    listed = house.cli("ls", "--all")
    if listed.returncode or any(job.id not in listed.stdout for job in jobs.values()):
        found.faults.append(f"ls: {listed.stdout}{listed.stderr}")


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
