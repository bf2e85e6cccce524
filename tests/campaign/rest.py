"""Jobs that wait or are unloaded: their processes killed in every combination, a reboot among them; nothing is lost."""

from __future__ import annotations

import random
import signal
import sys
import time

from house import House, Job, until
from kills import Found, hit, order

from carbontui.system import proc

SCRIPT = """\
import json, os, sys, time
name, unloads = sys.argv[1], sys.argv[2] == "unloads"
with open(name + ".starts", "a") as file:
    file.write(os.environ.get("CARBONTUI_START_STEP", "0") + " ")
if unloads and len(open(name + ".starts").read().split()) == 1:
    while not os.path.exists(name + ".leave"):
        time.sleep(0.02)
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 36000))
    json.dump({"step": 12, "not_before": later}, open(os.environ["CARBONTUI_MARKER"], "w"))
    sys.exit(0)
while not os.path.exists(name + ".end"):
    time.sleep(0.02)
sys.exit(5)
"""
LOOKING = (("status",), ("ls",), ("plan",), ("log",), ("line",), ("attach",), ("report",), ("explain",))
"""Verbs that look at a job; `ls` names no job."""


def start(house: House, name: str, kind: str) -> Job:
    """A job that waits for its first start (`waits`), or that has unloaded itself (`unloads`), and stays there."""
    script = house.root / "rests.py"
    script.write_text(SCRIPT)
    held = ("--budget", "20h", "--work", "1h", *house.dirty_now()) if kind == "waits" else ()
    command = (sys.executable, script, name, kind)
    job_id = house.cli("run", "--detach", "--name", name, *held, "--", *command, check=True).stdout.strip()
    job = Job(house, job_id, house.root / "none")
    house.cli("pause", job_id, check=True)
    (house.root / f"{name}.leave").touch()
    job.until_state("waiting" if kind == "waits" else "unloaded", timeout=40)
    return job


def both(job: Job) -> bool:
    """Whether a supervisor answers and names a keeper that lives."""
    status = job.served()
    return bool(status and status.pids.keeper and proc.start_time(status.pids.keeper))


def reboot(job: Job) -> None:
    """All processes of a job at once; its files stay."""
    status, pids = job.served(), job.pids()
    doomed = [pids["keeper"], pids["supervisor"], pids["child"], status and status.pids.agent]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: nobody replaces anybody
        for pid in doomed:
            hit(pid, number)


def unnamed(house: House, job: Job) -> list[str]:
    """Looking verbs that do not name the one command that goes on with a lost job."""
    silent = []
    for words in LOOKING:
        done = house.cli(*words, *(() if words[0] == "ls" else (job.id,)))
        if f"carbontui restart {job.id}" not in done.stdout + done.stderr:
            silent.append(f"{' '.join(words)} (exit {done.returncode}): {(done.stdout + done.stderr).strip()[:120]}")
    return silent


def run(house: House, rounds: int, seed: int, found: Found, pairs: int = 2, seconds: float = 1e9) -> None:
    """Rounds of one fault to each of some waiting and some unloaded jobs; then each goes on where it was and ends."""
    dice = random.Random(seed)
    kinds = {f"{kind}{n}": kind for n in range(pairs) for kind in ("waits", "unloads")}
    jobs = {name: start(house, name, kind) for name, kind in kinds.items()}
    due = time.monotonic() + seconds
    for _ in range(rounds):
        if time.monotonic() > due:
            break
        for name, job in jobs.items():
            role = dice.choice(("keeper", "keeper", "supervisor", "all"))
            pids = job.pids()
            if role == "all":
                reboot(job)
                house.cli("restart", job.id, check=True)
            elif not hit(pids[role], signal.SIGKILL):
                continue
            found.fault(f"{kinds[name]}, {role} SIGKILL")
        for job in jobs.values():
            until(lambda job=job: both(job), 90, "keeper and supervisor again")
    for name, job in jobs.items():
        state = job.until_state("waiting", "unloaded", timeout=40)["state"]
        if state != {"waits": "waiting", "unloads": "unloaded"}[kinds[name]]:
            found.lost_jobs += 1
            found.wrong(f"{name}: {state}")
        until(lambda job=job: order(job, "boost", {}), 60, "an order taken")
        (house.root / f"{name}.end").touch()
        record = job.until_exit(60)
        starts = (house.root / f"{name}.starts").read_text().split()
        if record["code"] != 5:
            found.wrong_exits += 1
            found.wrong(f"{name}: exit {record}")
        if starts != (["0"] if kinds[name] == "waits" else ["0", "12"]):
            found.wrong_steps += 1
            found.wrong(f"{name}: started at {starts}")


def rebooted(house: House, found: Found) -> list[str]:
    """A reboot of a job that waits, of one that is unloaded, of one that trains from a checkpoint: what is wrong."""
    wrong: list[str] = []
    for name, kind, state in (
        ("r-waits", "waits", "waiting"),
        ("r-unloads", "unloads", "unloaded"),
        ("r-trains", "unloads", "running"),
    ):
        job = start(house, name, kind)
        if state == "running":
            order(job, "boost", {})
            until(lambda name=name: len((house.root / f"{name}.starts").read_text().split()) == 2, 40, "the resume")
            job.until_state("running", "starting")
        reboot(job)
        found.fault(f"{state}, reboot")
        job.until_state("lost")
        wrong += [f"{state}: {what}" for what in unnamed(house, job)]
        house.cli("restart", job.id, check=True)
        until(lambda job=job: both(job), 60, "keeper and supervisor again")
        if state != "running":
            got = job.until_state("waiting", "unloaded", "running", "starting")["state"]
            if got != state:
                wrong.append(f"{state}: {got} after the restart")
            until(lambda job=job: order(job, "boost", {}), 60, "an order taken")
        (house.root / f"{name}.end").touch()
        code = job.until_exit(60)["code"]
        starts = (house.root / f"{name}.starts").read_text().split()
        due = {"waiting": ["0"], "unloaded": ["0", "12"], "running": ["0", "12", "12"]}[state]
        if (code, starts) != (5, due):
            wrong.append(f"{state}: exit {code}, started at steps {starts}")
    return wrong
