"""Random deaths and hangs of every role, amid caps and orders, on jobs that train: what is lost, doubled or left."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from house import House, Job, until
from watched import HOST_W, Watched

from carbontui import link, protocol
from carbontui.job.files import store
from carbontui.system import proc

sys.path[:0] = [str(Path(__file__).parents[1] / "nvmlsim")]
from nvmlsim import Sim, built

STANDSTILL_S = 18.0
FOUND_MW = 700_000
"""Every simulated board's limit before a job comes."""
ASLEEP_S = 8.0
"""Longer than a keeper waits for the beat of its supervisor."""
FAULTS: dict[str, tuple[signal.Signals, ...]] = {
    "supervisor": (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM),
    "agent": (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM),
    # one that is killed while it has a child takes the exit status along: `orphaned` does that
    "keeper": (signal.SIGHUP, signal.SIGSTOP),
    "keeper, for seconds": (signal.SIGSTOP,),
    "keeper and supervisor, taken up": (signal.SIGKILL,),
    "agent that hangs, then supervisor": (signal.SIGKILL,),
}
ORDERS = (
    ("cap", {"value_w": 300.0}),
    ("cap", {"value_w": 450.0}),
    ("resume", {}),
    ("boost", {}),
)
PAUSES = (("pause", {"for_s": 5.0}), ("resume", {}))


@dataclass
class Found:
    """What a campaign of kills has counted."""

    faults: int = 0
    by_fault: dict[str, int] = field(default_factory=dict)
    orders: int = 0
    lost_orders: int = 0
    fallen: int = 0
    """Totals that were less than a moment before."""
    booked: list[float] = field(default_factory=list)
    """Of a true joule of a job's board."""
    host: list[float] = field(default_factory=list)
    """Of the host's constant watts, by all jobs of a machine together."""
    steps: int = 0
    wrong_steps: int = 0
    longest_standstill_s: float = 0.0
    lost_jobs: int = 0
    wrong_exits: int = 0
    left_processes: int = 0
    left_limits: int = 0
    notes: list[str] = field(default_factory=list)

    def fault(self, name: str) -> None:
        self.faults += 1
        self.by_fault[name] = self.by_fault.get(name, 0) + 1

    def wrong(self, what: str) -> None:
        self.notes.append(what)


def order(job: Job, verb: str, args: dict[str, object]) -> bool:
    """A person's order, if a supervisor is there to take it."""
    try:
        link.ask(store.load(job.dir).socket, protocol.Cmd(1, verb, args), 3.0)
    except (link.LinkError, AttributeError):
        return False
    return True


def hit(pid: int | None, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, number)
            return True
    return False


def inject(job: Job, role: str, number: signal.Signals) -> bool:
    """One fault of one role; False where there was nobody to hit."""
    pids = job.pids()
    if role == "keeper":
        if not hit(pids["keeper"], number):
            return False
        if number == signal.SIGSTOP:
            time.sleep(0.5)
            hit(pids["keeper"], signal.SIGCONT)
        return True
    if role == "keeper, for seconds":
        threading.Timer(ASLEEP_S, hit, (pids["keeper"], signal.SIGCONT)).start()
        return hit(pids["keeper"], number)
    if role == "keeper and supervisor, taken up":
        orphan(job)
        job.house.cli("restart", job.id)  # refused where a supervisor was just replaced: it starts a keeper by itself
        return True
    if role == "supervisor":
        return hit(pids["supervisor"], number)
    status = job.served()
    if status is None or not status.pids.agent:
        return False
    if role == "agent":
        return hit(status.pids.agent, number)
    return hit(status.pids.agent, signal.SIGSTOP) and hit(status.pids.supervisor, number)


def orphan(job: Job) -> None:
    """Kill keeper and supervisor; neither can replace the other in between."""
    pids = job.pids()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for role in ("keeper", "supervisor"):
            hit(pids[role], number)
    until(lambda: not store.load(job.dir).kept, what="the keeper's end")


def simulated_boards(house: House, count: int) -> Sim | None:
    """Boards for the jobs of a house, driven at full load; None where there is no compiler."""
    folder = Path(tempfile.mkdtemp(prefix="nvmlsim-", dir=house.root))
    library = built()
    if library is None:
        return None
    sim = Sim(library, folder / "nvml.state", count, frozen=False)
    house.env |= sim.env()
    return sim


def running(
    house: House, seconds: float, seed: int, found: Found, jobs: int = 4, most: int = 10**9, site: str = ""
) -> None:
    """Faults of jobs that train under caps, amid orders, and under a budget of the `site`; then each ends in its own
    way. Every other job is never paused by a person: its standstills are ours."""
    dice = random.Random(seed)
    sim = simulated_boards(house, jobs)
    if site:
        house.cli("site", "--cap", site, "--ramp", "5kW", check=True)
    most += found.faults
    house.home.mkdir(parents=True, exist_ok=True)
    (house.home / "config.toml").write_text(f'host_w = {HOST_W}\nboundary = "given-back"\n')
    some: list[Watched] = []
    for n in range(jobs):
        house.env["CUDA_VISIBLE_DEVICES"] = str(n)
        some.append(Watched(house.start(steps=10**7, pause=0.02, code=7, name=f"k{n}"), sim, n))
        if sim is not None:
            sim.process(some[n].job.pids()["child"], device=n, level=0.9)
    for one in some:
        one.job.until_steps()
    due = time.monotonic() + seconds
    while time.monotonic() < due and found.faults < most:
        n = dice.randrange(jobs)
        if dice.random() < 0.5:
            some[n].order(*dice.choice(ORDERS + (PAUSES if n % 2 else ())))
        role = dice.choice(sorted(FAULTS))
        number = dice.choice(FAULTS[role])
        if inject(some[n].job, role, number):
            found.fault(f"{role} {number.name}{', under a site budget' if site else ''}")
        time.sleep(dice.uniform(0.05, 0.8))
    for n, one in enumerate(some):
        _end(one, found, paused=bool(n % 2))
        booked = one.end()
        found.orders += one.orders
        found.lost_orders += len(one.lost)
        found.fallen += len(one.fallen)
        found.notes += [*one.lost, *one.fallen]
        if booked is not None:
            found.booked.append(booked)
            found.notes += [f"{one.job.id}: booked {booked:.4f}"] if abs(booked - 1) > 0.02 else []
    begun, ended = zip(*(one.elapsed for one in some), strict=True)
    found.host.append(sum(one.host_j for one in some) / HOST_W / (max(ended) - min(begun)))
    _left(house, sim, jobs, found)


def _end(one: Watched, found: Found, *, paused: bool) -> None:
    """Let a job end in its own way, and count what it lost."""
    job = one.job
    if until(job.served, 90, "a supervisor") is None:  # the back-off of one that was killed often is a minute
        return
    one.kept()
    order(job, "boost", {})  # no pause outlives the campaign
    job.until_steps(timeout=STANDSTILL_S + 20)
    if not paused:
        found.longest_standstill_s = max(found.longest_standstill_s, *job.gaps())
    job.let_end()
    record = job.until_exit(60)
    one.ended()
    if record["code"] != 7:
        found.wrong_exits += 1
        found.wrong(f"{job.id}: exit {record}")
    counted = [int(line.split()[0]) for line in job.marks.read_text().splitlines()]
    found.steps += len(counted)
    with contextlib.suppress(AssertionError):
        job.until_over(60)
    if "Traceback" in (log := (job.dir / "carbontui.log").read_text()):
        found.wrong(f"{job.id}: {log[log.index('Traceback') :].splitlines()[-1][:200]}")
    told = job.status()["step"]
    repeated = counted != list(range(1, len(counted) + 1))
    if repeated or told != len(counted):
        found.wrong_steps += abs(told - len(counted)) + repeated
        found.wrong(f"{job.id}: {len(counted)} steps made, {told} told{', some repeated' if repeated else ''}")
    if job.status()["state"] != "failed":
        found.lost_jobs += 1
        found.wrong(f"{job.id}: {job.status()['state']}")


def _left(house: House, sim: Sim | None, boards: int, found: Found) -> None:
    """Processes and limits that outlive their jobs."""
    mark = os.fsencode(f"CARBONTUI_HOME={house.home}")

    def there() -> list[str]:
        names = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    names.append(entry.name + " " + (entry / "cmdline").read_text().replace("\0", " ")[:80])
        return names

    with contextlib.suppress(AssertionError):
        until(lambda: not there(), 30, "the end of all processes")
    for name in there():
        found.left_processes += 1
        found.wrong(f"left: {name}")
    for n in range(boards if sim is not None else 0):
        if sim.get("limit_mw", n) != FOUND_MW:
            found.left_limits += 1
            found.wrong(f"board {n} left at {sim.get('limit_mw', n) / 1000:.0f} W")


def orphaned(house: House, rounds: int, seed: int, found: Found) -> None:
    """Keepers killed while they have a child, with or without their supervisor: it trains on, and `stop` reaches it."""
    dice = random.Random(seed)
    for n in range(rounds):
        job = house.start(pause=0.01, name=f"o{n}")
        job.until_connected()
        job.until_steps()
        pids = job.pids()
        roles = ("keeper",) if dice.random() < 0.5 else ("keeper", "supervisor")
        for role in roles:
            hit(pids[role], signal.SIGSTOP)  # so that none replaces the other in between
        for role in roles:
            hit(pids[role], signal.SIGKILL)
        found.fault(f"training, {' and '.join(roles)} SIGKILL")
        job.until_steps(20)
        stopped = house.cli("stop", job.id, "--now", "--yes")
        if stopped.returncode or proc.start_time(pids["child"]) is not None:
            found.left_processes += 1
            found.wrong(f"{job.id}: stop: exit {stopped.returncode} {stopped.stderr.strip()}")
        counted = [int(line.split()[0]) for line in job.marks.read_text().splitlines()]
        found.steps += len(counted)
        found.wrong_steps += counted != list(range(1, len(counted) + 1))
        found.longest_standstill_s = max(found.longest_standstill_s, *job.gaps())
        shutil.rmtree(job.dir, ignore_errors=True)
