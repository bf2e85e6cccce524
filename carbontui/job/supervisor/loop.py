"""The supervisor: reads the grid, decides, acts, journals and serves viewers. One per job; asyncio.

It may die at any moment: the keeper starts another, which takes over from the journal, and what it asked of the
training process lapses with its lease. Loads neither textual, torch, numpy nor pynvml.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from carbontui import proc, protocol
from carbontui.grid.feed import Feed
from carbontui.grid.types import Outlook
from carbontui.job import budget as budgets
from carbontui.job import journal
from carbontui.job.child import Child
from carbontui.job.clock import Clock
from carbontui.job.spec import Options
from carbontui.job.spec import load as load_options
from carbontui.job.supervisor.core import capabilities as abilities
from carbontui.job.supervisor.core import control, problem
from carbontui.job.supervisor.core import override as overrides
from carbontui.job.supervisor.core.measured import Learned
from carbontui.job.supervisor.core.notices import Teller
from carbontui.job.supervisor.core.progress import Progress
from carbontui.job.supervisor.record import handover as memory
from carbontui.job.supervisor.record.accounting import Books, Sums
from carbontui.job.supervisor.shell import grid as forecasting
from carbontui.job.supervisor.shell import replanner as planner
from carbontui.job.supervisor.shell import requests as desk
from carbontui.job.supervisor.shell.actuators import Hands
from carbontui.job.supervisor.shell.calibrator import Trial
from carbontui.job.supervisor.shell.faults import Faults
from carbontui.job.supervisor.shell.keeper_handle import Guard
from carbontui.job.supervisor.shell.sensors import Senses
from carbontui.job.supervisor.shell.server import Peer, Server
from carbontui.job.worker.handle import WorkerHandle
from carbontui.power.handle import AgentHandle
from carbontui.power.messages import Reading
from carbontui.power.simulated import SimulatedSpec

TICK_S = 1.0
REPLAY_TICK_S = 0.1
BEAT_S = 1.0
COMMIT_S = 2.0
AGENT_RETRY_S = 30.0
CLOCK_SET_S = 30.0
"""A wall clock that moves by this much more or less than the monotonic one was set."""
GONE_GRACE_S = 0.5
SETTLE_MAX_S = 3.0
LAST_LOOK_S = 0.1
"""What is sent last must have left before the sockets are closed."""


class Supervisor:
    """All of one job's state, and the loop that advances it."""

    def __init__(self, options: Options, keeper_fd: int | None) -> None:
        self.options = options
        self.dir = Path(options.dir)
        self.faults = Faults(self.log)
        self.clock = _clock(options)
        self.guard = Guard(keeper_fd, self.log, self.wake)
        self.journal = journal.Journal(self.dir / "journal.db")
        self.books = Books(options, self.clock, self.journal, proc.boot_id())
        self.progress = Progress(work_s=options.work_s, steps_total=options.steps, given_rate=options.ref_rate)
        self.learned = Learned()
        self.overrides = overrides.Overrides()
        self.control = control.Control()
        self.budget, refused = budgets.stored(options.budget, self.start_s)
        if refused:
            self.log(refused)
        self.feed: Feed = forecasting.open_feed(options, self.clock, self.log)
        simulated = SimulatedSpec(count=options.simulated.count) if options.simulated else None
        real_replay = self.clock.replay and simulated is None
        self.agent = AgentHandle(
            simulated=simulated,
            log=self.log,
            cwd=self.dir,
            job=options.job,
            monitor=real_replay or not options.cap,
        )
        self.worker = WorkerHandle(self.dir, self.log)
        self.planner = planner.Planner(self)
        self.trial = Trial(self)
        self.senses = Senses(self)
        self.hands = Hands(self)
        self.teller = Teller(self)
        self.desk = desk.ViewerDesk(self)
        self.server = Server(Path(options.socket), self.desk, self.log)
        self.decision = control.Decision(
            "starting", protocol.Reason("starting", "processes are coming up"), control.FULL.name
        )
        self.outlook: Outlook | None = None
        self.sums = Sums()
        self.status: protocol.Status | None = None
        self.stopping = False
        self.missing = ""
        self._wake = asyncio.Event()
        self._last_mono = time.monotonic()
        self._last_now = self.clock.now()
        self._written = 0.0
        self._beaten = 0.0
        self._ended_mono: float | None = None
        self._starting: asyncio.Task[None] | None = None
        self.caps: tuple[problem.Cap, ...] = ()

    # --- small things ---

    @property
    def start_s(self) -> float:
        """The budget's start on the job's clock: when `run` was called."""
        return self.clock.at_wall(self.options.created_s)

    def log(self, text: str) -> None:
        """A line of carbontui.log, which is our stderr; a full disk must not hurt."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with contextlib.suppress(OSError):
            os.write(2, f"{stamp} supervisor: {text}\n".encode(errors="replace"))

    def event(self, kind: str, **data: object) -> None:
        self.journal.event(self.clock.now(), time.time(), kind, **data)

    def wake(self) -> None:
        """Something changed: tick now."""
        self._wake.set()

    @property
    def devices(self) -> tuple[Reading, ...]:
        """The boards of this job: those its ranks named, else all visible ones."""
        return tuple(reading for reading in self.agent.readings.devices if reading.watched)

    @property
    def unseen(self) -> frozenset[str]:
        """Boards that were metered for this job and that the driver does not show any more."""
        gone = self.books.metered_boards - {reading.uuid for reading in self.agent.readings.devices}
        return gone if self.hands.named is None else gone & (self.hands.own | set(self.hands.named))

    @property
    def caps_hold(self) -> bool:
        """Whether a plan may count on caps."""
        return self.options.cap and abilities.caps_hold(self.devices)

    # --- life ---

    async def run(self) -> None:
        self.guard.open()
        self.guard.beat()
        memory.restore(self)
        await self.server.keep_open()
        self.event("supervisor", pid=os.getpid())
        self._starting = asyncio.ensure_future(self._start_agent())
        try:
            while not await self.tick():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), REPLAY_TICK_S if self.clock.replay else TICK_S)
                self._wake.clear()
        finally:
            await self.leave()

    async def _start_agent(self) -> None:
        """Without one (no process or memory to be had) nothing is metered or capped: tried until it starts."""
        if self.clock.replay:
            self.agent.set_fast(True)
        while True:
            try:
                return await self.agent.start()
            except OSError as error:
                self.log(f"agent: cannot be started ({error})")
                await asyncio.sleep(AGENT_RETRY_S)

    async def leave(self) -> None:
        """Close everything in order: limits back, books shut, the last snapshot, then the keeper may go."""
        confined = self.faults.confined
        with confined("giving limits back"):
            await self._close_agent()
        self.worker.drop()
        with confined("the end of the replay"):
            if self.clock.replay and self._ended_mono is not None:
                await self.settle()
        with confined("the journal"):
            if self._ended_mono is not None:
                self.books.carry_on(frozenset(reading.uuid for reading in self.devices))
                self.senses.disown(after_s=0.0)
            self.books.write(everything=True)
            memory.keep(self)
            self.event("supervisor_left", pid=os.getpid())
            self.journal.close()
        with confined("the last look"):
            self.senses.account(self.clock.now())
            self.status = self.teller.describe(self.clock.now())
            self.teller.write_snapshot()
            self.server.show(everyone=True)
            await asyncio.sleep(LAST_LOOK_S)
            await self.server.close()
        if self._ended_mono is not None:
            self.guard.done()
        self.guard.close()

    async def _close_agent(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        outcomes = await self.agent.close()
        self.hands.journal(self.agent.happened(), asked=False)
        self.hands.journal(outcomes)
        for outcome in outcomes:
            if not outcome.ok:
                self.log(f"{outcome.uuid}: {outcome.text or outcome.code}")

    async def settle(self) -> None:
        """In a replay the last slot is over in a moment: wait, so that the accounts hold realised values only."""
        slot_s = self.outlook.step_s if self.outlook else 0.0
        await asyncio.sleep(min(SETTLE_MAX_S, 1.1 * slot_s / self.clock.speed))
        self.senses.look(self.clock.now())
        self.senses.account(self.clock.now())

    # --- one tick ---

    async def tick(self) -> bool:
        """Advance everything by one step; True when the job is over and viewers have seen the end."""
        now, mono = self.clock.now(), time.monotonic()
        dt_wall = mono - self._last_mono
        # time that passed, not what a clock that was set makes of it
        dt = dt_wall * self.clock.speed
        jump_s = now - self._last_now - dt
        self._last_now, self._last_mono = now, mono
        if mono - self._beaten >= BEAT_S:
            self._beaten = mono
            self.guard.beat()
        child = self.guard.child()
        confined = self.faults.confined
        before = self.decision
        with confined("metering"):
            self.senses.measure(now, dt, dt_wall)
        with confined("the grid feed"):
            if abs(jump_s) > CLOCK_SET_S * self.clock.speed:
                self.clock_was_set(now, jump_s)
            self.senses.read_grid(now)
        with confined("deciding"):
            # what cannot be decided is not renewed either: the lease ends and training goes on
            self.overrides = self._expired(now)
            self.control, self.decision = control.decide(self.control, self.observe(now, mono, child))
            if self.decision.state != before.state or self.decision.reason.code != before.reason.code:
                self.note_change(before, mono)
            self.hands.act(mono, child)
        with confined("planning"):
            self.planner.consider(now, mono)
        with confined("the accounts"):
            self.senses.account(now)
        with confined("the status"):
            self.status = self.teller.describe(now)
            changed = self.decision.state != before.state
            self.server.show(everyone=changed)
            if changed:
                self.teller.write_snapshot()
        if mono - self._written >= COMMIT_S:
            self._written = mono
            with confined("the journal"):
                await self.write()
        return self.over(child, mono)

    def clock_was_set(self, now: float, jump_s: float) -> None:
        """Deadline, plan and grid follow the new time; what was done and drawn does not."""
        self.log(f"the clock was set by {jump_s:+.0f} s")
        self.event("clock", jump_s=jump_s)
        self.senses.look(now)
        self.planner.surprise("the clock was set")

    def over(self, child: Child, mono: float) -> bool:
        """Whether the child is gone for good and viewers had a moment to see it."""
        if self.stopping:
            return True
        if child.state not in ("exited", "vanished"):
            return False
        if self._ended_mono is None:
            self._ended_mono = mono
            self.event("end", state=self.decision.state, code=child.code, signal=child.signal)
            self.log(f"the job is over: {self.decision.reason.text}")
        return mono - self._ended_mono > GONE_GRACE_S

    def _expired(self, now: float) -> overrides.Overrides:
        held = overrides.expire(self.overrides, now)
        if held.current is None and self.overrides.current is not None:
            self.event("override_over", mode=self.overrides.current.mode, by=self.overrides.current.by)
            self.planner.surprise("the override ended")
        return held

    # --- deciding ---

    def observe(self, now: float, mono: float, child: Child) -> control.Observation:
        planned, next_at, next_level = self.planner.level_at(now)
        left = self.progress.left_s
        deadline = self.deadline_s()
        machine = self.planner.machine()
        must_run = left is not None and deadline is not None and deadline - now <= left + machine.resume_s
        self.trial.tick(now, mono, must_run=must_run)
        refused_w, refused_why = self.hands.refused_cap()
        return control.Observation(
            now_s=now,
            mono_s=mono,
            child=child,
            ranks=tuple(_rank(peer, mono) for peer in self.server.ranks),
            override=self.overrides.current,
            override_until_s=self.overrides.until_s,
            free=self.planner.free_reason(),
            planned=planned,
            next_at_s=next_at,
            next_level=next_level,
            must_run=must_run,
            late=self.planner.late(),
            max_pause_s=self.options.max_pause_s,
            can_cap=self.options.cap and bool(self.devices),
            refused_w=refused_w,
            refused_why=refused_why,
            can_freeze=self.options.sigstop,
            freeze_why=abilities.freeze_why(self),
            stepped=self.progress.step > 0,
            trial=self.trial.level,
        )

    def deadline_s(self) -> float | None:
        return self.budget.deadline_s(self.start_s, self.progress.total_s)

    def note_change(self, before: control.Decision, mono: float) -> None:
        new = self.decision
        if new.state != before.state:
            self.senses.unsettle(mono)
            self.books.write()
            if new.state == "paused":
                self.learned.pause_s.add(min(60.0, mono - self.control.asked_mono_s))
            if before.state in ("paused", "pausing") and new.state in ("running", "throttled"):
                self.hands.asked_to_run_mono = mono
        self.event(
            "state",
            state=new.state,
            reason=new.reason.code,
            text=new.reason.text,
            level=new.level,
            want_gen=self.control.gen,
            mode=self.control.mode,
        )
        self.log(f"{new.state}: {new.reason.text}")

    def stop(self, *, now: bool, by: str) -> None:
        self.event("stop", by=by, now=now)
        self.log(f"stop asked by {by}{' (now)' if now else ''}")
        self.guard.stop(now=now)
        self.wake()

    async def write(self) -> None:
        """Journal and snapshot, about every two seconds; a full disk is said, not suffered."""
        leader = next((p.obs for p in self.server.ranks if p.hello and p.hello.rank == 0), None)
        if leader is not None:
            level = self.decision.level
            self.journal.steps(self.clock.now(), self.progress.step, leader.rate, leader.loss, level)
        memory.keep(self)
        self.journal.commit()
        if self.journal.aside is not None and self.journal.aside.name not in self.missing:
            memory.mend(self)
        self.teller.write_snapshot()
        self.worker.drop_if_idle()
        await self.server.keep_open()


def _clock(options: Options) -> Clock:
    if options.replay is None:
        return Clock()
    return Clock(options.replay.speed, options.replay.wall_origin_s, options.replay.start_s)


def _rank(peer: Peer, mono: float) -> control.Rank:
    assert peer.obs is not None and peer.hello is not None
    obs = peer.obs
    return control.Rank(
        rank=peer.hello.rank,
        state=obs.state,
        want_gen=obs.want_gen,
        step=obs.step,
        quiet_s=mono - peer.step_mono_s,
        can_unload=obs.can_unload,
    )


async def _main(options: Options, fd: int | None) -> None:
    supervisor = Supervisor(options, fd)
    loop = asyncio.get_running_loop()

    def leave() -> None:
        supervisor.stopping = True
        supervisor.wake()

    loop.add_signal_handler(signal.SIGTERM, leave)
    await supervisor.run()


def main() -> None:
    fd = int(sys.argv[sys.argv.index("--fd") + 1]) if "--fd" in sys.argv else None
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directory = Path(sys.argv[1])
    try:
        options = load_options(directory)
    except (OSError, msgspec.DecodeError) as error:
        sys.exit(f"supervisor: {directory / 'spec.json'} cannot be read, training runs free: {error}")
    asyncio.run(_main(options, fd))
