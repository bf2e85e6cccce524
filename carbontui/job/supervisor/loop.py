"""The supervisor: about one tick a second, from inputs to effects. One per job; asyncio.

It may die at any moment: the keeper starts another, which takes over from the journal, and its requests to the
training process expire with their lease. Loads none of textual, torch, numpy or pynvml.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from carbontui.job.files.journal import Journal
from carbontui.job.keeper.messages import AccountsClosed
from carbontui.job.supervisor.core.advance import Booked, Tick
from carbontui.job.supervisor.core.effects import Effect
from carbontui.job.supervisor.core.rules import capabilities
from carbontui.job.supervisor.core.state import allowances, boards, progress
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.disk import Disk, Recorder, say, to_stderr, write_by
from carbontui.job.supervisor.record.events_ring import EventsRing
from carbontui.job.supervisor.record.handover import Handover
from carbontui.job.supervisor.record.restoring import LastCounts
from carbontui.job.supervisor.record.so_far import meter, pass_time, totals_so_far
from carbontui.job.supervisor.shell.actuators import Actuators
from carbontui.job.supervisor.shell.agent import agent_of, keep_starting
from carbontui.job.supervisor.shell.calibrator import Calibrator
from carbontui.job.supervisor.shell.door import Door, Faults, Ports
from carbontui.job.supervisor.shell.grid import GridReader, open_feed
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.job.supervisor.shell.keeping import Keeping
from carbontui.job.supervisor.shell.orders import Orders
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.job.supervisor.shell.requests import Requests
from carbontui.job.supervisor.shell.sensors import Sensors
from carbontui.job.supervisor.shell.server import Server
from carbontui.job.supervisor.shell.site import SiteClaim
from carbontui.job.supervisor.shell.snapshot import Snapshots
from carbontui.job.supervisor.shell.ticks import Ticks
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.spec import Options, clock_of
from carbontui.job.worker.handle import WorkerHandle
from carbontui.protocol import Statement, statement, written
from carbontui.system import proc
from carbontui.text.statements import words

T = TypeVar("T")
TICK_S = 1.0
REPLAY_TICK_S = 0.1
BEAT_S = 0.8
"""Every tick, but of a replay."""
COMMIT_S = 1.7
"""Two ticks, which may come a little sooner than two seconds."""
CLOCK_SET_S = 30.0
"""If the wall clock deviates from the monotonic one by more than this, it has been set."""
GONE_GRACE_S = 0.5
"""Viewers see the end of the job for this long before the supervisor exits."""
LAST_OBSERVATION_S = 0.1
"""Time for the last messages to leave before the sockets are closed."""
LAST_COUNT_S = 0.5
"""How long the end of the training waits for a final sample of its boards; without one the last sample is the end."""


class Supervisor:
    """The parts of one job's supervisor, and the loop that advances them."""

    def __init__(self, spec: Options, keeper_fd: int | None) -> None:
        clock, directory = clock_of(spec), Path(spec.dir)
        budget, refused = budgets.stored(spec.budget, clock.at_wall(spec.created_s))
        if refused:
            say(refused)
        begun = JobState(spec, clock, budget, progress.begun(spec), allowances=allowances.of_spec(spec))
        self.ticks = ticks = Ticks(REPLAY_TICK_S if clock.replay else TICK_S)
        ports = Ports(self.read_inputs, self._perform, ticks.hurry, self._book_now, self._keep, self._notices)
        self.faults = faults = Faults(say)
        self.disk = disk = Disk()
        self.ring = EventsRing(directory, disk.post)
        self.door = door = Door(begun, faults, ports.perform, self.ring.add)
        self.journal = journal = Journal(directory / "journal.db", opened=False)
        self.recorder = recorder = Recorder(journal, clock)
        self.accounting = accounting = Accounting(spec, clock, journal, proc.boot_id())
        self.handover = handover = Handover(journal, accounting, recorder, faults.confined, directory)
        last_counts = LastCounts(directory)
        self.keeper = keeper = KeeperHandle(keeper_fd, say, ports.wake, directory)
        self.site = SiteClaim(door, keeper)
        self.agent = agent = agent_of(spec, clock, ticks.boards_read)
        self.worker = worker = WorkerHandle(directory, say)
        feed = open_feed(spec, clock, say)
        self.grid = grid = GridReader(door, feed, accounting, worker, ports)
        self.replanner = replanner = Replanner(door, worker, grid, journal, recorder, ports)
        self.calibrator = calibrator = Calibrator(door, accounting, recorder, replanner)
        self.snapshots = snapshots = Snapshots(spec, keeper, agent, accounting, recorder, disk, ports)
        self.orders = orders = Orders(spec.dir, disk)
        self.requests = requests = Requests(
            door, ports, keeper, agent, accounting, recorder, feed, replanner, last_counts, snapshots, orders, ticks
        )
        self.keeping = Keeping(
            door, ports, disk, journal, handover, recorder, last_counts, orders, snapshots, faults, requests
        )
        self.server = server = Server(Path(spec.socket), requests, say)
        self.actuators = actuators = Actuators(
            ports, keeper, server, agent, accounting, recorder, disk, replanner, calibrator, spec.allow_raise
        )
        self.sensors = Sensors(door, keeper, server, agent, accounting, actuators, feed)
        self._stopping = False
        self._written = self._beaten = 0.0
        self._asleep_s = proc.asleep_s()
        self._ended_mono: float | None = None
        self._starting: asyncio.Future[Any] | None = None

    # --- ports ---

    def read_inputs(self) -> Inputs:
        """The current inputs, as far as known."""
        return self.sensors.read()

    def _perform(self, effect: Effect) -> None:
        self.actuators.perform(effect)

    def _book_now(self) -> None:
        """Book the newest samples now: they are about to be reported as current."""
        with self.faults.confined("metering"):
            if self._ended_mono is None:
                self._account(self._meter(self.read_inputs()))

    def _keep(self) -> None:
        self._account(self.read_inputs())
        self.keeping.request()

    def _notices(self) -> Iterator[Statement]:
        notes = (self.handover.missing, self.server.fault, self.grid.feed.note, self.journal.fault)
        yield from (written(note) for note in (*notes, self.grid.revised, self.site.fault) if note)
        yield from self.faults.notices
        yield from self.keeping.notices

    # --- life ---

    def stop(self) -> None:
        """Exit with the next tick."""
        self._stopping = True
        self.ticks.hurry()

    async def run(self) -> None:
        """Run until the job is over and viewers have seen it, or this process is asked to exit."""
        await self.open()
        clock = self.door.state.clock
        self._starting = asyncio.gather(keep_starting(self.agent, fast=clock.replay), self.worker.warm())
        try:
            while not await self.tick():
                await self.ticks.wait()
        finally:
            await self.shutdown()

    async def open(self) -> None:
        """Listen to the keeper, take over from a predecessor, open the socket."""
        self.keeper.open()
        self.keeper.beat()
        write_by(self.disk.write)
        record, restored = await self._beating(self.disk.do(self.keeping.read))
        if record is not None and not self.keeper.guarded:
            self.keeper.adopt(record.pids.get("child"))
        self.take_over(restored)
        await self._beating(self.orders.observe())
        await self.server.keep_open()
        self.recorder.event("supervisor", pid=os.getpid(), attempt=self.door.state.spec.attempt)

    async def _beating(self, work: Awaitable[T]) -> T:
        """Await something of the disk with a beating heart, however long it takes."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=BEAT_S))[0]:
            self.keeper.beat()
        return task.result()

    def take_over(self, restored: JobState) -> None:
        """Go on with what a predecessor kept. The boards that it knew are watched before any rank reconnects."""
        self.door.restore(restored)
        if named := self.door.state.boards.named:
            self.agent.watch(named)
        self.agent.change(known=self.door.state.boards.shown)
        with self.faults.confined("last_counts"):
            self.requests.read_last_counts()
        if self.handover.missing:
            self._keep()

    async def shutdown(self) -> None:
        """Shut down in order: restore limits, close the accounts, write the last snapshot, release the keeper."""
        confined, ended = self.faults.confined, self._ended_mono is not None
        with confined("restoring"):
            await self._close_agent()
        self.worker.drop()
        if ended:
            self.site.leave()
            with confined("grid"):
                self.grid.observe(self.read_inputs().now_s, closing=True)
        with confined("journal"):
            seen = self.read_inputs()
            if ended:
                watched = frozenset(reading.uuid for reading in seen.devices)
                self.accounting.carry_on(watched, seen.child.ended_wall_s)
                if foreign_boards := boards.foreign_boards(self.door.state.boards, seen, after_s=0.0):
                    await self._beating(self.actuators.disown(foreign_boards))
            self.accounting.write(everything=True)
            self._account(seen)
            self.recorder.event("supervisor_left", pid=os.getpid())
            self.ring.flush()
            await self._beating(self.keeping.close(seen))
        with confined("last_status"):
            self._show(self.read_inputs(), shown=True, changed=True)
            await self._beating(self.disk.do(lambda: None))  # its snapshot is written
            self.snapshots.close(over=ended)
            await asyncio.sleep(LAST_OBSERVATION_S)
            await self.server.close()
        if ended:
            self.keeper.send(AccountsClosed())
        unkept = self.keeper.to_replace
        self.keeper.close()
        if unkept:
            self.keeper.replace(unkept)
        write_by(to_stderr)
        self.disk.close()

    async def _close_agent(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)  # else logged as never retrieved
        outcomes = await self.agent.close()
        self.actuators.note(self.agent.happened(), asked=False)
        self.actuators.note(outcomes)
        for outcome in outcomes:
            if not outcome.ok:
                say(f"{outcome.uuid}: {outcome.text or outcome.code}")

    # --- one tick ---

    async def tick(self) -> bool:
        """Advance everything by one step; True when the job is over and viewers have seen the end."""
        self.sensors.advance()
        seen, confined, before = self.read_inputs(), self.faults.confined, self.door.state
        living = self._ended_mono is None
        if seen.mono_s - self._beaten >= BEAT_S:
            self._beaten = seen.mono_s
            self.keeper.beat()
        with confined("metering"):
            if living:  # power drawn after the training's end is not the job's
                if seen.child.over:
                    self.requests.read_last_counts()
                    await self.agent.refresh(LAST_COUNT_S)
                    seen = self.read_inputs()
                seen = self._meter(seen)
        with confined("grid"):
            self._read_grid(seen)
        with confined("calibration"):
            self.calibrator.tick(seen)
        with confined("site"):
            self.site.renew(seen)
        with confined("limits"):
            self.actuators.note(self.agent.happened(), asked=False)
            if capabilities.wants_caps(self.door.state):
                self.agent.change(probe=True)
        self.door.dispatch(Tick(seen))
        if living:
            with confined("account_time"):
                pass_time(self.accounting, before, self.door.state, seen)
        with confined("planning"):
            self.replanner.consider(seen)
        changed = self.door.state.decision.state != before.decision.state
        # without viewers they are computed for the disk and for allowances; a viewer who connects asks for fresh ones
        shown = changed or bool(self.server.viewers) or seen.mono_s - self._written >= COMMIT_S
        now = self.door.state
        if shown or now.allowances.given or now.clock.replay:  # two seconds of a replay may be an hour of the job
            with confined("accounts"):
                self._account(seen)
        with confined("status"):
            self._show(seen, shown=shown, changed=changed)
        if seen.mono_s - self._written >= COMMIT_S:
            self._written = seen.mono_s
            self.keeping.request()
            self.worker.drop_if_idle()
            await self.server.keep_open()
        with confined("command"):
            for order in self.orders.due(seen.mono_s, time.time(), boards_known=bool(seen.readings.mono_s)):
                self.requests.take_again(order)
        self.ticks.ended()
        return self._finished(seen)

    def _meter(self, inputs: Inputs) -> Inputs:
        """Convert new samples to joules; the boards that have now been metered are part of the inputs."""
        meter(self.accounting, self.door.state, inputs, self.agent.drain())
        return replace(inputs, metered=self.accounting.metered_boards)

    def _read_grid(self, inputs: Inputs) -> None:
        if abs(inputs.jump_s) > CLOCK_SET_S * self.door.state.clock.speed:
            # deadline, plan and grid follow the new time; work done and energy used do not
            since, self._asleep_s = self._asleep_s, proc.asleep_s()
            by_s, slept = inputs.jump_s, self._asleep_s - since > abs(inputs.jump_s) / 2
            say(words(statement("slept", jump_s=by_s) if slept else statement("clock_set", jump_s=by_s), inputs.now_s))
            self.recorder.event("clock", jump_s=by_s)
            self.grid.observe(inputs.now_s)
            self.replanner.request(statement("cause_clock"))
        self.grid.read(inputs.now_s)

    def _account(self, inputs: Inputs) -> None:
        self.door.dispatch(Booked(totals_so_far(self.accounting, self.door.state, inputs)))

    def _show(self, inputs: Inputs, *, shown: bool, changed: bool) -> None:
        """Show the current state to viewers; a change of state reaches all of them, and the disk, at once."""
        told = self.snapshots.describe(self.door.state, inputs) if shown else None
        self.requests.status = told
        self.server.show(everyone=changed)
        if changed and told is not None:
            self.snapshots.write(told)

    def _finished(self, inputs: Inputs) -> bool:
        """Whether the child has ended for good and viewers have had time to see it."""
        if self._stopping or self.keeper.to_replace:
            return True
        if not inputs.child.over:
            return False
        decision = self.door.state.decision
        if self._ended_mono is None:
            self._ended_mono = inputs.mono_s
            at_s = inputs.child.ended_s(self.door.state.clock)
            self.recorder.event("end", at_s, state=decision.state, code=inputs.child.code, signal=inputs.child.signal)
            say(words(statement("over_now", why=decision.why.said), inputs.now_s))
        return inputs.mono_s - self._ended_mono > GONE_GRACE_S
