"""Energy of gaps: what is booked of boards, host and rent while supervisors die, hang, or get no processor."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from house import House, Job, until
from kills import hit, simulated_boards
from watched import watch

from carbontui.system import proc

HOST_W = 1000.0
RENT_PER_H = 3600.0
"""One unit of money a second and board."""
KINDS = ("nothing", "supervisor", "away", "agent", "hang")


@dataclass
class Booked:
    """Of one job: booked / true, and how often a total fell in front of a user."""

    kind: str
    boards: float | None
    host: float
    rent: float
    gaps: dict[str, float]
    fallen: list[str] = field(default_factory=list)


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """So many busy processes beside."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def hurt(job: Job, kind: str) -> None:
    """One fault."""
    pids = job.pids()
    if kind == "supervisor":
        hit(pids["supervisor"], signal.SIGKILL)
    elif kind == "away":  # for 20 s there is none
        hit(pids["keeper"], signal.SIGSTOP)
        hit(pids["supervisor"], signal.SIGKILL)
        time.sleep(20.0)
        hit(pids["keeper"], signal.SIGCONT)
    elif kind == "agent":
        status = job.served()
        hit(status and status.pids.agent, signal.SIGKILL)
    elif kind == "hang":
        hit(pids["supervisor"], signal.SIGSTOP)


def of_one(house: House, kind: str, seconds: float, every_s: float = 8.0) -> Booked:
    """One job of so many seconds, hurt every so often."""
    house.home.mkdir(parents=True, exist_ok=True)
    (house.home / "config.toml").write_text(f'host_w = {HOST_W}\ngpu_price = {RENT_PER_H}\ncurrency = "EUR"\n')
    sim = simulated_boards(house, 1)
    before_j = sim.get("energy_j") if sim else 0.0
    job = house.start("--intensity", "300", steps=10**7, pause=0.02, name=kind)
    pid = job.pids()["child"]
    if sim is not None:
        sim.process(pid, level=0.9)
    job.until_steps()
    over, fallen = threading.Event(), []
    watcher = threading.Thread(target=watch, args=(job, over, fallen))
    watcher.start()
    time.sleep(4.0)  # a board is the job's once it has been seen to use it
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        hurt(job, kind)
        time.sleep(min(every_s, max(0.0, due - time.monotonic())))
    job.let_end()
    until(lambda: (job.dir / "exit.json").exists() or proc.start_time(pid) is None, 120, "the end")
    if sim is not None:
        sim.reap()  # else the board would draw on
    ended_s = time.time()
    true_j = (sim.get("energy_j") - before_j) if sim else 0.0
    job.until_over(120)
    over.set()
    watcher.join()
    told = job.status()
    with contextlib.closing(sqlite3.connect(job.dir / "journal.db")) as db:
        booked = dict(db.execute("select device, sum(joules) from energy group by device"))
    started_s = datetime.fromisoformat(told["budget"]["start"]).timestamp()
    lived_s = ended_s - started_s
    boards_j = sum(j for name, j in booked.items() if name not in ("host", "cpu", "dram"))
    rest = told["coverage"]
    return Booked(
        kind,
        boards_j / true_j if true_j else None,
        booked.get("host", 0.0) / (HOST_W * lived_s),
        ((told["cost"] or {"value": 0.0})["value"]) / lived_s,
        rest,
        fallen,
    )
