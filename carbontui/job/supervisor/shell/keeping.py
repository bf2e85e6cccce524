"""What the supervisor stores: state, account and status, about every two seconds and after every order.

The disk's thread writes; what it has no time for is stored with the next. Nothing here makes the loop wait.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from carbontui.job.files import store
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.disk import Disk, Recorder
from carbontui.job.supervisor.record.handover import Handover
from carbontui.job.supervisor.record.restoring import LastCounts
from carbontui.job.supervisor.shell.door import Door, Faults, Ports
from carbontui.job.supervisor.shell.orders import Orders
from carbontui.job.supervisor.shell.requests import Requests
from carbontui.job.supervisor.shell.snapshot import Snapshots
from carbontui.protocol import Statement, statement, written


@dataclass(eq=False)
class Keeping:
    door: Door
    ports: Ports
    disk: Disk
    journal: Journal
    handover: Handover
    recorder: Recorder
    last_counts: LastCounts
    orders: Orders
    snapshots: Snapshots
    faults: Faults
    requests: Requests
    _task: asyncio.Task[None] | None = None
    _again: bool = False
    _said: set[str] = field(default_factory=set)
    """Faults of the disk that the log has."""

    @property
    def notices(self) -> Iterator[Statement]:
        """What is wrong with the disk."""
        for part in self.handover.left_out:
            yield statement("setting_unread", part=part)
        if (took_s := self.disk.slow_s) is not None:
            yield statement("disk_slow", took_s=took_s)
        if self.journal.dropped:
            yield statement("rows_dropped", rows=self.journal.dropped)
        if self.orders.fault:
            yield statement("orders_unstored", why=self.orders.fault)
        if self.snapshots.fault:
            yield written(self.snapshots.fault)

    def read(self) -> tuple[store.Job | None, JobState]:
        """The job's record, and the state with what a predecessor has left. It waits for the disk."""
        state = self.door.state
        record = store.load(Path(state.spec.dir))
        deaths = os.environ.get("CARBONTUI_SILENT_DEATHS", "")
        silent = int(deaths) if deaths.isdecimal() else 0
        restored = self.handover.restore(state, state.clock.at_wall(time.time()), time.monotonic(), silent)
        self.recorder.resume()
        if not self.journal.locked:
            self.recorder.say(statement("no_locks"))
        taken = self.journal.recall("orders", 0)
        self.orders.begin(taken if isinstance(taken, int) else 0)
        return record, restored

    def request(self) -> None:
        """Have everything stored; if the disk is still at it, once more after that."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._write_all())
        else:
            self.journal.bound()

    async def _write_all(self) -> None:
        while self._again:
            self._again = False
            with self.faults.confined("journal"):
                await self.write(self.ports.read_inputs())

    async def write(self, inputs: Inputs) -> None:
        """Store everything as of now; a full disk is reported and survived."""
        await self.orders.observe()
        now, leader, told = self.door.state, inputs.leader, self.requests.status
        if leader is not None:
            self.journal.steps(inputs.now_s, now.progress.step, leader.rate, now.last_loss, now.decision.level.name)
        self.handover.keep(now, inputs, None if told is None else told.account)
        self.journal.keep("orders", self.orders.taken)
        counted = self.last_counts.counted()
        if await self.disk.do(self.journal.commit):
            self.last_counts.forget(counted)
        self.handover.replace_rows(now, len(inputs.devices))
        if told is not None:
            await self.snapshots.write(told)
        known, self._said = self._said, {self.journal.fault, self.orders.fault, self.snapshots.fault}
        for fault in self._said - known - {""}:
            self.recorder.say(fault)

    async def close(self, inputs: Inputs) -> None:
        """Store everything for the last time."""
        if self._task is not None:
            self._task.cancel()
        self.handover.keep(self.door.state, inputs)
        counted = self.last_counts.counted()
        await self.disk.do(self.journal.close)
        if not self.journal.fault:
            self.last_counts.forget(counted)
