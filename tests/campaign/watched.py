"""What a job is watched for while it is hurt: totals that fall, answered orders that are lost, joules not booked."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from typing import Any

from house import Job, until

from carbontui import link, protocol, units
from carbontui.job.files import store

POLL_S = 0.1
ANSWER_S = 3.0
HOST_W = 1000.0
"""Of the machine besides its boards, in its settings."""
CAUGHT_UP_S = 10.0
"""A successor has an order in force within this of its first answer."""


def watch(job: Job, over: threading.Event, fallen: list[str]) -> None:
    """What `status` shows, again and again: a total that falls is noted."""
    most: dict[str, float] = {}
    while not over.wait(POLL_S):
        with contextlib.suppress(Exception):
            told = job.status()
            for name in ("energy_gpu_kwh", "energy_wall_kwh", "gco2_g"):
                value = told.get(name)
                if value is None:
                    continue
                if value < most.get(name, 0.0) - 1e-9:
                    fallen.append(f"{job.id}: {name} {most[name]:.6g} -> {value:.6g}")
                most[name] = value


class Watched:
    """One job of a campaign, on the simulated board `device`."""

    def __init__(self, job: Job, sim: Any, device: int) -> None:
        self.job, self.sim, self.device = job, sim, device
        self.fallen: list[str] = []
        self.lost: list[str] = []
        self.orders = 0
        self._due: list[tuple[str, dict[str, Any]]] = []
        """The last order that was answered, then those without an answer: one of them is in force."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=watch, args=(job, self._over, self.fallen), daemon=True)
        self._thread.start()

    def order(self, verb: str, args: dict[str, Any]) -> None:
        """A person's order, if a supervisor is there to take it."""
        with contextlib.suppress(link.LinkError, AttributeError):
            answer = link.ask(store.load(self.job.dir).socket, protocol.Cmd(1, verb, args), ANSWER_S)
            if isinstance(answer, protocol.Result) and answer.ok:
                self.orders += 1
                self._due = []
        self._due.append((verb, args))

    def kept(self) -> None:
        """The last answered order must be in force; else it is noted as lost."""
        if not self.orders:
            return
        try:
            until(lambda: (s := self.job.served()) and any(_in_force(s, *one) for one in self._due), CAUGHT_UP_S)
        except AssertionError:
            status = self.job.served()
            self.lost.append(f"{self.job.id}: {self._due}, in force: {status and status.override}")

    def ended(self) -> None:
        """Its training has ended just now: the board is nobody's."""
        self._ended_s = time.time()
        if self.sim is not None:
            self.sim.reap()
            self._end_j = self.sim.get("energy_j", self.device)

    def end(self) -> float | None:
        """The job is over: what was booked of each true joule of its board since the keeper's first look at it."""
        self._over.set()
        self._thread.join()
        with contextlib.closing(sqlite3.connect(self.job.dir / "journal.db")) as db:
            booked = dict(db.execute("select device, sum(joules) from energy group by device"))
        self.host_j = booked.get("host", 0.0)
        self.elapsed = units.from_iso(self.job.status()["budget"]["start"]), self._ended_s
        if self.sim is None:
            return None
        counted_mj = json.loads((self.job.dir / "first-count.json").read_text())[self.device][3]
        true_j = self._end_j - counted_mj / 1e3
        return sum(joules for name, joules in booked.items() if name not in ("host", "cpu", "dram")) / true_j


def _in_force(status: protocol.Status, verb: str, args: dict[str, Any]) -> bool:
    held = status.override
    if verb == "resume" or held is None:  # a pause for five seconds is over by then
        return held is None and verb in ("resume", "pause")
    return held.mode == verb and (verb != "cap" or held.value_w == args["value_w"])
