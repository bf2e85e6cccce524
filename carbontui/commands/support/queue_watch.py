"""The data of the queue page: Slurm's queue and nodes, what carbontui knows of its own jobs, and the forecast."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Sequence

from carbontui import protocol, units
from carbontui.commands.support import grid_data
from carbontui.commands.support.command import Failure
from carbontui.commands.support.endings import without_reports
from carbontui.extensions.fleet import queue_problem as fleet_queue
from carbontui.extensions.fleet.queue_problem import Assumed, Cap
from carbontui.job.files import store
from carbontui.slurm import commands
from carbontui.slurm import queue as slurm_queue
from carbontui.slurm.queue import QueuedJob
from carbontui.system import ssh
from carbontui.text import marks, slurm
from carbontui.tui.model.lists import QueueRow, QueueSeen
from carbontui.tui.model.target import Target

SLOTS, SLOT_S = 48, 1800.0
GRID_EVERY_S = 900.0
STALE_S = 120.0
"""A snapshot older than this does not give current watts."""


class QueueWatch:
    """Reads Slurm at every look, the grid every quarter of an hour. A context manager: closes what it opened."""

    def __init__(self, budget: Sequence[Cap], zone: str | None, grid_file: str | None, assumed: Assumed) -> None:
        self._budget, self._zone, self._grid_file, self._assumed = budget, zone, grid_file, assumed
        self._grid: tuple[tuple[float, ...], str] = ((), "")
        self._grid_at_s = -math.inf
        self._stack = contextlib.ExitStack()
        self._hosts: dict[str, ssh.SshHost] = {}

    def __enter__(self) -> QueueWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self) -> QueueSeen:
        """Never raises: an error in reading Slurm is returned as a fault."""
        now = time.time()
        start = now // SLOT_S * SLOT_S
        try:
            queue, nodes = slurm_queue.queue(), slurm_queue.nodes()
        except commands.SlurmError as error:
            return QueueSeen(faults=(str(error),))
        if now - self._grid_at_s >= GRID_EVERY_S:
            self._grid, self._grid_at_s = self._ahead(start), now
        ours = self._ours()
        rows = tuple(self._row(job, ours.get(job.chain), now) for job in queue)
        cap = fleet_queue.per_slot(self._budget, start, SLOT_S, SLOTS) if self._budget else []
        faults = tuple(f"job {job.id}: {job.asked.fault}" for job in queue if job.asked.fault)
        return QueueSeen(
            jobs=rows,
            nodes=tuple(node_row(*node[:4], queue, ours) for node in nodes),
            start_s=start,
            slot_s=SLOT_S,
            now_w=sum(fleet_queue.watts(job, self._assumed) for job in queue if job.runs),
            watts=fleet_queue.expected_w(queue, self._assumed, now_s=now, start_s=start, slot_s=SLOT_S, slots=SLOTS),
            cap_w=tuple(0.0 if math.isinf(watts) else watts for watts in cap),
            intensity=self._grid[0],
            source=self._grid[1],
            faults=faults,
        )

    def _ahead(self, start_s: float) -> tuple[tuple[float, ...], str]:
        if not self._grid_file and not self._zone:
            return (), ""
        try:
            mean, source = grid_data.filled(self._zone, self._grid_file, start_s, SLOT_S, SLOTS)
        except Failure as failure:
            return (), failure.message
        return tuple(mean), source

    def _ours(self) -> dict[str, store.Job]:
        """carbontui's jobs by the id of the first Slurm job of their chain, as far as this state directory has them."""
        return {job.scheduler.split()[-1]: job for job in store.jobs() if job.scheduler}

    def _row(self, job: QueuedJob, known: store.Job | None, now_s: float) -> QueueRow:
        status = known.status() if known is not None and job.runs else None
        live = status is not None and status.state in protocol.LIVE_STATES
        fresh = live and status is not None and now_s - units.from_iso(status.measured_at) < STALE_S
        begun = job.runs or job.state == "CONFIGURING"
        state, told = slurm.running(job.state) if begun else slurm.waiting(job.reason, job.start_s, now_s)
        watts, mark = None, ""
        if status is not None and live:
            state, told = status.state, status.reason.text
        if status is not None and fresh and status.power_w is not None:
            watts = status.power_w
        elif job.asked.planned_w is not None:
            watts, mark = job.asked.planned_w, marks.ESTIMATED
        begins, work = job.start_s, job.asked.planned_s
        ends = begins + work if begins is not None and work is not None else job.end_s
        deadline = job.asked.deadline_s
        if status is not None and status.finish_expected:
            ends = units.from_iso(status.finish_expected)
        if status is not None and status.budget is not None and status.budget.deadline:
            deadline = units.from_iso(status.budget.deadline)
        return QueueRow(
            id=job.id,
            name=job.name,
            user=job.user,
            where=job.node_list or (f"{job.nodes} nodes" if job.nodes > 1 else "1 node"),
            state=state,
            message=told,
            watts=watts,
            mark=mark,
            ours=known is not None or job.asked is not slurm_queue.NOT_OURS,
            grams=None if status is None else status.gco2_g,
            ends_s=ends,
            deadline_s=deadline,
            open=None if known is None or not live else lambda: self._target(job, known),
        )

    def _target(self, job: QueuedJob, known: store.Job) -> Target:
        """A job of this machine by its socket; of another through srun, which its owner may use. Raises OSError."""
        if not known.foreign:
            return without_reports(known)
        if known.host not in self._hosts:
            step = commands.on_node(job.id, known.host)
            host = ssh.SlurmNode(known.host, step, carbontui=(sys.executable, "-m", "carbontui.cli"))
            self._hosts[known.host] = self._stack.enter_context(host)
        socket = self._hosts[known.host].socket(known.id)
        return Target(known.id, known.name, socket, status=known.status(), host=known.host)


def node_row(
    name: str, state: str, cpus: int, gpus: int, queue: Sequence[QueuedJob], ours: dict[str, store.Job]
) -> QueueRow:
    """A node. Its watts are known only if carbontui meters every job on it and none of them spans other nodes."""
    here = [job for job in queue if job.runs and name in commands.nodes_of(job.node_list)]
    known = [ours.get(job.chain) for job in here]
    statuses = [job.status() for job in known if job is not None]
    watts = [status.power_w for status in statuses if status.power_w is not None]
    alone = all(job.node_list == name for job in here)
    ours_all = bool(here) and None not in known
    metered = ours_all and alone and len(watts) == len(here)
    kind, told = slurm.node(state)
    return QueueRow(
        id=name,
        name=f"{gpus} GPUs" if gpus else f"{cpus} CPUs",
        user="",
        where="" if not here else f"{len(here)} jobs" if len(here) > 1 else "1 job",
        state=kind,
        message=told,
        watts=sum(watts) if metered else None,
        ours=ours_all,
    )
