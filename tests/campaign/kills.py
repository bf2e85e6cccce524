"""Random deaths and hangs of every role in every phase of real jobs: what is lost, doubled or left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from dataclasses import dataclass, field

from house import House, Job, until

from carbontui import proc
from carbontui.job import store

STANDSTILL_S = 18.0
FAULTS = {
    "supervisor": (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM),
    "agent": (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM),
    # a keeper that is killed while it has a child takes the exit status along: that is only done at rest
    "keeper": (signal.SIGHUP,),
}
ORDERS = ("pause", "resume", "boost")


@dataclass
class Found:
    """What a campaign of kills has counted."""

    faults: int = 0
    by_fault: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    wrong_steps: int = 0
    longest_standstill_s: float = 0.0
    lost_jobs: int = 0
    wrong_exits: int = 0
    left_processes: int = 0


def inject(job: Job, dice: random.Random) -> str:
    """One fault of one role, after perhaps one order; what it was."""
    if dice.random() < 0.4:
        with contextlib.suppress(Exception):
            job.tell(dice.choice(ORDERS))
    role = dice.choice(sorted(FAULTS))
    number = dice.choice(FAULTS[role])
    status = job.served()
    pid = (
        status
        and {"supervisor": status.pids.supervisor, "agent": status.pids.agent, "keeper": status.pids.keeper}[role]
    )
    if not pid:
        return ""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return f"{role} {signal.Signals(number).name}"


def running(house: House, seconds: float, seed: int, found: Found, jobs: int = 2) -> None:
    """Faults of jobs that train, amid orders; then each ends in its own way."""
    dice = random.Random(seed)
    some = [house.start("--no-cap", pause=0.02, code=7, name=f"k{n}") for n in range(jobs)]
    for job in some:
        job.until_steps()
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        what = inject(dice.choice(some), dice)
        if what:
            found.faults += 1
            found.by_fault[what] = found.by_fault.get(what, 0) + 1
        time.sleep(dice.uniform(0.1, 1.5))
    for job in some:
        until(job.served, 80, "a supervisor")  # the back-off of one that was killed often is a minute
        job.tell("boost")  # and no pause outlives the campaign
        job.until_steps(timeout=STANDSTILL_S + 20)
        gaps = job.gaps()
        held = max(gaps)
        if not paused_by_order(job):
            found.longest_standstill_s = max(found.longest_standstill_s, held)
        job.let_end()
        record = job.until_exit(60)
        found.wrong_exits += record["code"] != 7
        counted = [int(line.split()[0]) for line in job.marks.read_text().splitlines()]
        found.steps += len(counted)
        found.wrong_steps += counted != list(range(1, len(counted) + 1))
        with contextlib.suppress(AssertionError):
            job.until_over(40)
        final = job.status()
        found.wrong_steps += final["step"] != len(counted)
        found.left_processes += sum(store.load(job.dir).alive(role) is not None for role in ("keeper", "supervisor"))


def paused_by_order(job: Job) -> bool:
    """Whether a person's pause explains a standstill: orders are part of the campaign."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(f"file:{job.dir / 'journal.db'}?mode=ro", uri=True)) as db:
        verbs = [json.loads(data)["verb"] for (data,) in db.execute("select data from event where kind='override'")]
    return "pause" in verbs


def at_rest(house: House, seed: int, found: Found) -> None:
    """The keeper and supervisor of a job that waits to be resumed, killed in turn; then it goes on where it was."""
    dice = random.Random(seed)
    script = house.root / "unloads.py"
    script.write_text(
        "import json, os, sys, time\n"
        "open('starts', 'a').write(os.environ.get('CARBONTUI_START_STEP', '0') + ' ')\n"
        "if len(open('starts').read().split()) == 1:\n"
        "    while not os.path.exists('leave'): time.sleep(0.02)\n"
        "    later = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 3600))\n"
        "    json.dump({'step': 12, 'not_before': later}, open(os.environ['CARBONTUI_MARKER'], 'w'))\n"
        "    sys.exit(0)\n"
        "sys.exit(5)\n"
    )
    import sys

    job_id = house.cli("run", "--detach", "--name", "rest", "--", sys.executable, script, check=True).stdout.strip()
    job = Job(house, job_id, house.root / "none")
    house.cli("pause", job_id, check=True)
    (house.root / "leave").touch()
    job.until_state("unloaded")
    for _ in range(3):
        role = dice.choice(("keeper", "supervisor", "all"))
        pids = job.pids()
        for each in ("keeper", "supervisor") if role == "all" else (role,):
            if pids[each]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[each], signal.SIGKILL)
        found.faults += 1
        found.by_fault[f"unloaded, {role} SIGKILL"] = found.by_fault.get(f"unloaded, {role} SIGKILL", 0) + 1
        if role == "all":
            job.until_state("lost")
            house.cli("restart", job_id, check=True)
        until(lambda: (s := job.served()) and s.pids.keeper and proc.start_time(s.pids.keeper), 40, "both again")
    job.until_state("unloaded")
    house.cli("boost", job_id, check=True)
    record = job.until_exit(40)
    found.wrong_exits += record["code"] != 5
    found.lost_jobs += (house.root / "starts").read_text().split() != ["0", "12"]
