"""The supervisor: reads the grid, decides, acts, journals and serves viewers. One per job; asyncio.

It may die at any moment: the keeper starts another, which takes over from the journal, and what it asked of the
training process lapses with its lease. Loads neither textual, torch, numpy nor pynvml.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from carbontui import protocol, units
from carbontui.grid.feed import Feed
from carbontui.grid.types import Outlook
from carbontui.job import budget as budgets
from carbontui.job import control, desk, forecasting, journal, overrides, picture, planner, problem, proc, store
from carbontui.job.books import Books, Sums
from carbontui.job.clock import Clock
from carbontui.job.guard import Guard
from carbontui.job.learning import SETTLE_WALL_S, Learned
from carbontui.job.options import Options
from carbontui.job.options import load as load_options
from carbontui.job.progress import Progress
from carbontui.job.server import Peer, Sections, Server
from carbontui.job.trial import Trial
from carbontui.job.workbench import Workbench
from carbontui.power.handle import AgentHandle
from carbontui.power.messages import Reading, Readings
from carbontui.power.simulated import SimulatedSpec

TICK_S = 1.0
REPLAY_TICK_S = 0.1
BEAT_S = 1.0
COMMIT_S = 2.0
GONE_GRACE_S = 0.5
SETTLE_MAX_S = 3.0
LAST_LOOK_S = 0.1
"""What is sent last must have left before the sockets are closed."""


class Supervisor:
    """All of one job's state, and the loop that advances it."""

    def __init__(self, options: Options, keeper_fd: int | None) -> None:
        self.options = options
        self.dir = Path(options.dir)
        self.clock = _clock(options)
        self.guard = Guard(keeper_fd, self.log, self.wake)
        self.journal = journal.Journal(self.dir / "journal.db")
        self.books = Books(options, self.clock, self.journal, proc.boot_id())
        self.progress = Progress(work_s=options.work_s, steps_total=options.steps, given_rate=options.ref_rate)
        self.learned = Learned()
        self.overrides = overrides.Overrides()
        self.control = control.Control()
        self.budget = budgets.parse(options.budget, self.start_s)
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
        self.workbench = Workbench(self.dir, self.log)
        self.planner = planner.Planner(self)
        self.trial = Trial(self)
        self.desk = desk.ViewerDesk(self)
        self.server = Server(Path(options.socket), self.desk, self.log)
        self.decision = control.Decision(
            "starting", protocol.Reason("starting", "processes are coming up"), control.FULL.name
        )
        self.outlook: Outlook | None = None
        self.sums = Sums()
        self.status: protocol.Status | None = None
        self.stopping = False
        self._wake = asyncio.Event()
        self._settled_since = time.monotonic()
        self._last_mono = time.monotonic()
        self._last_now = self.clock.now()
        self._renewed = 0.0
        self._sent_hold: float | str | None = "never"
        self._written = 0.0
        self._beaten = 0.0
        self._ended_mono: float | None = None
        self._asked_run_mono: float | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._limiting: asyncio.Task[None] | None = None
        self._named: tuple[str, ...] | None = None
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

    # --- life ---

    async def run(self) -> None:
        self.guard.open()
        self.restore()
        await self.server.open()
        self.event("supervisor", pid=os.getpid())
        try:
            await self.agent.start()
        except OSError as error:
            self.log(f"agent: cannot be started ({error})")
        if self.clock.replay:
            self.agent.set_fast(True)
        try:
            while not await self.tick():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), REPLAY_TICK_S if self.clock.replay else TICK_S)
                self._wake.clear()
        finally:
            await self.leave()

    def restore(self) -> None:
        """Take over from a predecessor, if there was one."""
        job = store.load(self.dir)
        if job is not None and not self.guard.guarded:
            self.guard.adopt(job.pids.get("child"))
        recall = self.journal.recall
        self.books.restore()
        self.progress.restore(recall("progress"))
        self.learned.restore(recall("learned"))
        self.overrides = overrides.Overrides.from_dict(recall("overrides"))
        kept = recall("control")
        if kept:
            self.control = control.Control(**{**kept, "asked_mono_s": time.monotonic()})
        text = recall("budget")
        if text:
            self.budget = budgets.Budget(**text)
        self.planner.restore(recall("plan"))

    def keep(self) -> None:
        """What a successor needs, into the journal."""
        self.books.write()
        self.books.keep()
        self.journal.keep("progress", self.progress.to_dict())
        self.journal.keep("learned", self.learned.to_dict())
        self.journal.keep("overrides", self.overrides.to_dict())
        self.journal.keep("control", {f: getattr(self.control, f) for f in self.control.__dataclass_fields__})
        self.journal.keep("budget", {"kind": self.budget.kind, "value": self.budget.value, "text": self.budget.text})
        self.journal.keep("accounts", self.accounts_basis())

    def accounts_basis(self) -> dict[str, object]:
        """What an independent reader needs beside energy and grid rows to arrive at the same avoided grams."""
        return {
            "start_s": self.start_s,
            "done_s": self.progress.done_s,
            "full_wall_w": self.full_wall_w(),
            "pue": self.options.pue,
            "energy_wall_kwh": self.books.ledger.wall_kwh,
            "energy_gpu_kwh": self.books.ledger.gpu_kwh,
            "gco2_g": self.sums.gco2_g,
            "avoided_g": self.sums.avoided_g,
        }

    async def leave(self) -> None:
        """Close everything in order: limits back, books shut, the last snapshot, then the keeper may go."""
        outcomes = await self.agent.close()
        for outcome in outcomes:
            if not outcome.ok:
                self.log(f"{outcome.uuid}: {outcome.text} {outcome.fix}".strip())
        self.workbench.drop()
        if self.clock.replay and self._ended_mono is not None:
            await self.settle()
        self.books.write(everything=True)
        self.keep()
        self.event("supervisor_left", pid=os.getpid())
        self.journal.close()
        now = self.clock.now()
        self.account(now)
        self.status = self.describe(now)
        self.write_snapshot()
        self.server.show(everyone=True)
        await asyncio.sleep(LAST_LOOK_S)
        await self.server.close()
        if self._ended_mono is not None:
            self.guard.done()
        self.guard.close()

    async def settle(self) -> None:
        """In a replay the last slot is over in a moment: wait, so that the accounts hold realised values only."""
        slot_s = self.outlook.step_s if self.outlook else 0.0
        await asyncio.sleep(min(SETTLE_MAX_S, 1.1 * slot_s / self.clock.speed))
        self.look(self.clock.now())
        self.account(self.clock.now())

    # --- one tick ---

    async def tick(self) -> bool:
        """Advance everything by one step; True when the job is over and viewers have seen the end."""
        now, mono = self.clock.now(), time.monotonic()
        dt, dt_wall = now - self._last_now, mono - self._last_mono
        self._last_now, self._last_mono = now, mono
        if mono - self._beaten >= BEAT_S:
            self._beaten = mono
            self.guard.beat()
        child = self.guard.child()
        self.measure(now, dt, dt_wall)
        self.read_grid(now)
        self.overrides = self._expired(now)
        before = self.decision
        self.control, self.decision = control.decide(self.control, self.observe(now, mono, child))
        if self.decision.state != before.state or self.decision.reason.code != before.reason.code:
            self.note_change(before, mono)
        self.act(mono, child)
        self.planner.consider(now, mono)
        self.account(now)
        self.status = self.describe(now)
        changed = self.decision.state != before.state
        self.server.show(everyone=changed)
        if changed:
            self.write_snapshot()
        if mono - self._written >= COMMIT_S:
            self._written = mono
            await self.write(mono)
        return self.over(child, mono)

    def over(self, child: control.Child, mono: float) -> bool:
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
        planned = self.planner.level_at(now)[0]
        held = overrides.expire(self.overrides, now, planned.name if planned else None)
        if held.current is None and self.overrides.current is not None:
            self.event("override_over", mode=self.overrides.current.mode, by=self.overrides.current.by)
            self.planner.surprise("the override ended")
        return held

    def measure(self, now: float, dt: float, dt_wall: float) -> None:
        """Samples into the books; steps and watts into what is learned."""
        state = self.decision.state
        watched = frozenset(reading.uuid for reading in self.devices)
        self.books.meter_samples(self.agent.drain(), state, watched)
        self.books.host(now, state, held=state not in ("waiting", "unloaded"))
        settled = time.monotonic() - self._settled_since > SETTLE_WALL_S
        plain_full = state == "running" and self.control.limit_w is None and self.control.duty is None
        new_steps = 0
        for peer in self.server.ranks:
            if peer.hello and peer.hello.rank == 0 and peer.obs:
                starts = int(self.guard.facts.get("starts", 0))
                if starts > self.progress.starts and peer.obs.step > 0:
                    self.learned.reload_s.add(self.guard.child().age_s)
                self.progress.saw_start(starts)
                new_steps = self.progress.saw_step(peer.obs.step, peer.obs.start_step, peer.obs.total)
        if state in ("running", "throttled"):
            level = self.planner.level_named(self.decision.level)
            self.progress.ran(dt, dt_wall, level.speed if level else 1.0, new_steps, reference=plain_full and settled)
        if settled and self.agent.readings.age_s(time.monotonic()) < 2.0:
            self.learn_watts(state, plain_full)

    def learn_watts(self, state: str, plain_full: bool) -> None:
        kind = "full" if plain_full and self.server.ranks else {"paused": "parked", "waiting": "idle"}.get(state)
        if kind is None:
            return
        for reading in self.devices:
            if reading.power_w is not None and not reading.lost:
                self.learned.watts(kind, reading.uuid, reading.power_w)
        host = self.agent.readings.host
        if kind == "full" and host.cpu_w is not None:
            self.learned.rest_w.add(host.cpu_w + (host.dram_w or 0.0))

    def read_grid(self, now: float) -> None:
        """Refresh the feed when it is time; what is realised goes into the accounts."""
        if now >= self.feed.next_refresh_s() and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh())
        step = 900.0
        if self.outlook is None or now >= self.outlook.start_s + (self.outlook.realised + 1) * self.outlook.step_s:
            self.look(now, step)

    def look(self, now: float, step: float = 900.0) -> None:
        """Take a fresh outlook and book what has been realised."""
        back = max(6 * 3600.0, min(now - self.start_s + step, 36 * 3600.0))
        self.outlook = self.feed.outlook(now, back, self.planner.ahead_s(now), step)
        if self.outlook is not None:
            rows = self.feed.realised(self.start_s - step, now)
            self.books.realised(rows, self.outlook.signal, self.outlook.source)
            self.books.prices(self.outlook)

    async def _refresh(self) -> None:
        await self.feed.refresh()
        self.look(self.clock.now())
        self.planner.surprise("new grid data")
        self.wake()

    # --- deciding ---

    def observe(self, now: float, mono: float, child: control.Child) -> control.Observation:
        planned, next_at, next_level = self.planner.level_at(now)
        left = self.progress.left_s
        deadline = self.deadline_s()
        machine = self.planner.machine()
        must_run = left is not None and deadline is not None and deadline - now <= left + machine.resume_s
        self.trial.tick(now, mono, must_run=must_run)
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
            stepped=self.progress.step > 0,
            trial=self.trial.level,
        )

    def deadline_s(self) -> float | None:
        return self.budget.deadline_s(self.start_s, self.progress.total_s)

    def note_change(self, before: control.Decision, mono: float) -> None:
        new = self.decision
        if new.state != before.state:
            self._settled_since = mono
            self.books.write()
            if new.state == "paused":
                self.learned.pause_s.add(min(60.0, mono - self.control.asked_mono_s))
            if before.state in ("paused", "pausing") and new.state in ("running", "throttled"):
                self._asked_run_mono = mono
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

    # --- acting ---

    def act(self, mono: float, child: control.Child) -> None:
        """Send what is wanted (and renew its lease), move a held start, set or give back limits."""
        if self.decision.want_changed or mono - self._renewed >= protocol.RENEW_S:
            self._renewed = mono
            self.send_want()
        hold = self.decision.hold_until_s
        if child.state in ("waiting", "unloaded"):
            # never beyond the planner's own word: a keeper alone starts the child after a minute
            wall = None if hold is None else self.clock.to_wall(hold)
            if wall != self._sent_hold:
                self._sent_hold = wall
                self.guard.hold(wall)
        else:
            self._sent_hold = "never"
        if self.decision.limit_changed:
            self.set_limit()
            if self.options.simulated:
                self.send_want()
        active = self.decision.state in ("running", "throttled", "pausing") and child.state == "running"
        ranks = self.server.ranks
        parked = bool(ranks) and all(peer.obs and peer.obs.state == "paused" for peer in ranks)
        if self.options.simulated and child.state != "running":
            self.agent.drive_simulated(None)
        elif self.options.simulated and ranks:
            self.agent.drive_simulated(0.0 if parked or not active else 1.0, self.control.duty or 1.0)
        if not self.options.simulated:
            # boards once named stay the job's while its ranks reconnect; its own processes are never foreign there
            self._named = tuple(dict.fromkeys(u for peer in ranks if peer.obs for u in peer.obs.devices)) or self._named
            own = [peer.hello.pid for peer in ranks if peer.hello] + ([self.guard.pid] if self.guard.pid else [])
            self.agent.watch(self._named, own_pids=tuple(sorted(set(own))))

    def send_want(self) -> None:
        for peer in self.server.ranks or []:
            self.send_want_to(peer)

    def send_want_to(self, peer: Peer) -> None:
        c = self.control
        not_before = None if c.not_before_s is None else units.iso(self.clock.to_wall(c.not_before_s))
        peer.send(protocol.Want(c.mode, c.gen, protocol.LEASE_S, duty=self.felt_duty(), not_before=not_before))

    def felt_duty(self) -> float | None:
        """A simulated cap slows the child by duty; a real one needs no help."""
        spec, c = self.agent.simulated, self.control
        if spec is None or c.duty is not None or c.limit_w is None:
            return c.duty
        return spec.speed(c.limit_w)

    def rank_changed(self, peer: Peer) -> None:
        """A rank came, went or changed its state: tell it what is wanted, and look at once."""
        if peer.obs is not None and peer in self.server.peers and peer.obs.want_gen < self.control.gen:
            self.send_want_to(peer)
        if peer.obs is not None and peer.obs.state == "running" and self._asked_run_mono is not None:
            self.learned.resume_s.add(min(600.0, time.monotonic() - self._asked_run_mono))
            self._asked_run_mono = None
        if peer.acked_gen == self.control.gen and peer.obs is not None:
            self.event("ack", rank=peer.hello.rank if peer.hello else 0, want_gen=peer.acked_gen, step=peer.obs.step)
            peer.acked_gen = -1
        self.wake()

    def set_limit(self) -> None:
        watts = self.control.limit_w
        if self._limiting is not None:
            self._limiting.cancel()
        self._limiting = asyncio.ensure_future(self._set_limit(watts))

    async def _set_limit(self, watts: float | None) -> None:
        raising = self.options.allow_raise
        for outcome in await self.agent.set_limit(watts, allow_raise=raising):
            self.event("limit", uuid=outcome.uuid, wanted_w=watts, ok=outcome.ok, code=outcome.code, text=outcome.text)
        self.wake()

    def stop(self, *, now: bool, by: str) -> None:
        self.event("stop", by=by, now=now)
        self.log(f"stop asked by {by}{' (now)' if now else ''}")
        self.guard.stop(now=now)

    # --- telling ---

    def full_wall_w(self) -> float | None:
        """Watts at the wall flat out, PUE included; None until the boards were measured so."""
        uuids = tuple(reading.uuid for reading in self.devices)
        watts, measured = self.learned.total("full", uuids, 0.0)
        if uuids and not measured:
            return None
        rest = (self.learned.rest_w.value or 0.0) + self.options.host_w
        if not uuids and self.learned.rest_w.value is None:
            return None
        return (watts + rest) * self.options.pue

    def account(self, now: float) -> None:
        nowcast = self.outlook.value_at(now) if self.outlook else None
        self.sums = self.books.sums(
            start_s=self.start_s,
            done_s=self.progress.done_s,
            full_wall_w=self.full_wall_w(),
            nowcast=nowcast,
            gpus=len(self.devices),
        )

    def describe(self, now: float) -> protocol.Status:
        """The Status of this moment."""
        child = self.guard.child()
        ranks = self.server.ranks
        leader = next((p.obs for p in ranks if p.hello and p.hello.rank == 0), None)
        deadline = self.deadline_s()
        total = self.progress.total_s
        factor = None if deadline is None or not total else (deadline - self.start_s) / total
        readings: Readings = self.agent.readings
        parked = {uuid: mean.value for uuid, mean in self.learned.parked_w.items() if mean.value is not None}
        _, next_at, next_level = self.planner.level_at(now)
        following = self.decision.reason.code in ("plan", "plan_wait")
        over = child.state == "exited"
        return picture.status(
            picture.Facts(
                job=self.options.job,
                name=self.options.name,
                host=socket.gethostname(),
                now_s=now,
                decision=self.decision,
                next_at_s=next_at if following else self.overrides.until_s,
                next_level=next_level if following else (None if self.overrides.until_s is None else "plan"),
                override=self.overrides.current,
                override_gen=self.overrides.gen,
                budget=protocol.BudgetStatus(
                    units.iso(self.start_s),
                    None if deadline is None else units.iso(deadline),
                    factor,
                    total is not None,
                ),
                finish_expected_s=None if over else self.planner.finish_s(),
                pids=protocol.Pids(self.guard.keeper_pid, os.getpid(), self.agent.pid, self.guard.pid),
                clients=len(ranks),
                step=self.progress.step,
                steps_total=self.progress.steps_total,
                rate=leader.rate if leader else None,
                loss=leader.loss if leader else self.desk.last_loss,
                epoch=leader.epoch if leader else None,
                readings=readings,
                age_s=readings.age_s(time.monotonic()),
                devices=self.devices,
                parked_w=parked,
                energy_gpu_kwh=self.books.ledger.gpu_kwh,
                energy_wall_kwh=self.books.ledger.wall_kwh,
                gco2_g=self.sums.gco2_g,
                avoided_g=self.sums.avoided_g,
                cost=self.sums.cost,
                outlook=self.outlook,
                exit=protocol.Exit(child.code, child.signal) if over and not child.unloaded else None,
                certificate=self.planner.certificate(),
                notices=self.notices(now),
                replay=self.clock.replay,
                simulated=self.options.simulated is not None,
                how_shares=self.books.how_shares(),
                full_measured=self.full_wall_w() is not None,
            )
        )

    def notices(self, now: float) -> tuple[str, ...]:
        """One line each for what a person should know."""
        found: list[str] = []
        if self.options.simulated:
            found.append("SIMULATED GPU: watts are a model, not a measurement")
        if self.clock.replay:
            found.append(f"REPLAY of recorded grid data, {self.clock.speed:.0f} times faster than life")
        if not self.guard.guarded:
            found.append("unguarded: no restart (the keeper is gone)")
        found += [note for note in (self.feed.note, self.journal.fault, self.planner.note) if note]
        found += self.agent.readings.notices
        found += [o.text for o in self.agent.outcomes.values() if not o.ok and o.text]
        found += self.desk.notices(now)
        return tuple(dict.fromkeys(found))

    def sections(self) -> Sections:
        return self.desk.sections()

    async def write(self, mono: float) -> None:
        """Journal and snapshot, about every two seconds; a full disk is said, not suffered."""
        leader = next((p.obs for p in self.server.ranks if p.hello and p.hello.rank == 0), None)
        if leader is not None:
            level = self.decision.level
            self.journal.steps(self.clock.now(), self.progress.step, leader.rate, leader.loss, level)
        self.keep()
        self.journal.commit()
        self.write_snapshot()
        self.workbench.drop_if_idle()
        await self.server.rebind_if_gone()

    def write_snapshot(self) -> None:
        if self.status is not None:
            with contextlib.suppress(OSError):
                store.write_atomic(self.dir / "snapshot.json", msgspec.json.encode(self.status))


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


async def _main(directory: Path, fd: int | None) -> None:
    supervisor = Supervisor(load_options(directory), fd)
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
    asyncio.run(_main(Path(sys.argv[1]), fd))


if __name__ == "__main__":
    main()
