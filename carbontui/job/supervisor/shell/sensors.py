"""Gathers the inputs of a tick into one value; reading changes nothing."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from carbontui import paths, protocol, units
from carbontui.grid.feed import Feed
from carbontui.job.supervisor.core.state.inputs import Inputs, Rank
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.shell.actuators import Actuators
from carbontui.job.supervisor.shell.door import Door
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.job.supervisor.shell.server import Peer, Server
from carbontui.job.supervisor.shell.ticks import BoundClock
from carbontui.job.supervisor.shell.watches import CoreWait, LossWatch, SchedulerWatch, TerminationWatch, UnseenWatch
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.metering.shares import JobsHere
from carbontui.system import proc


@dataclass(eq=False)
class Sensors:
    """Reads keeper, ranks and agent. Time spans are those between two calls of `advance`."""

    door: Door
    keeper: KeeperHandle
    server: Server
    agent: AgentHandle
    accounting: Accounting
    actuators: Actuators
    feed: Feed
    _born_mono: float = field(default_factory=time.monotonic)
    _last_mono: float = field(default_factory=time.monotonic)
    _spans: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _core_wait: CoreWait = field(default_factory=CoreWait)
    _core_wait_s: float = 0.0
    _bound_clock: BoundClock = field(default_factory=BoundClock)
    _jobs: int = 1

    def __post_init__(self) -> None:
        state = self.door.state
        self._jobs_here = JobsHere(own=state.spec.job, apart=proc.option(paths.apart(), "--apart"))
        self._scheduler_watch = SchedulerWatch(None if state.clock.replay else state.spec.slurm_job)
        self._termination_watch = TerminationWatch(replayed=state.clock.replay)
        self._unseen_watch = UnseenWatch(Path(state.spec.dir))
        self._loss_watch = LossWatch((Path(state.spec.log), *map(Path, filter(None, [state.spec.err]))))
        self._last_now = state.clock.at_wall(time.time())

    def advance(self) -> None:
        """Start a new tick: measure the time since the last one."""
        wall, mono, clock = time.time(), time.monotonic(), self.door.state.clock
        received = [mono - peer.received_mono_s for peer in self.server.ranks]
        self._bound_clock.observe(self.door.state, min(received, default=None), wall)
        now = clock.at_wall(wall)
        dt_wall = mono - self._last_mono
        # elapsed time, unaffected by a clock that was set
        dt = dt_wall * clock.speed_at(wall) if clock.stood is None else max(0.0, now - self._last_now)
        self._spans = (dt, dt_wall, now - self._last_now - dt)
        self._last_now, self._last_mono = now, mono
        self._jobs = self._jobs_here.count()
        self._scheduler_watch.tick()
        self._termination_watch.tick()
        self._loss_watch.tick()
        first = next((peer.hello for peer in self.server.ranks if peer.hello and peer.hello.rank == 0), None)
        self._core_wait_s = self._core_wait.since(first)

    def read(self) -> Inputs:
        """The current inputs, as far as known."""
        state, mono = self.door.state, time.monotonic()
        dt, dt_wall, jump = self._spans
        ranks = tuple(rank_of(peer, mono) for peer in self.server.ranks)
        child, stepped = self.keeper.child(), bool(ranks) or state.progress.step > 0
        running = self.keeper.pid if child.state == "running" else None
        return Inputs(
            now_s=state.clock.at_wall(time.time()),
            mono_s=mono,
            dt_s=dt,
            dt_wall_s=dt_wall,
            jump_s=jump,
            core_wait_s=self._core_wait_s,
            child=child,
            child_pid=self.keeper.pid,
            starts=self.keeper.starts,
            guarded=self.keeper.guarded,
            ranks=ranks,
            alive=alive(state.progress.processes or (), ranks),
            readings=self.agent.readings,
            nodes=self.agent.nodes(),
            metered=self.accounting.metered_boards,
            limits=self.actuators.limits,
            jobs=self._jobs,
            zone=self.feed.zone,
            grid_note=self.feed.note,
            ends_s=self._scheduler_watch.ends_s,
            machine_ends_s=self._termination_watch.ends_s,
            uptime_s=mono - self._born_mono,
            printed=self._loss_watch.loss,
            unseen=self._unseen_watch.observe(running, child.age_s, mono, stepped=stepped),
        )


def rank_of(peer: Peer, mono_s: float) -> Rank:
    """The last message of a training process, as a Rank."""
    assert peer.obs is not None and peer.hello is not None
    return rank_said_more(peer.hello, peer.obs, mono_s - peer.step_mono_s, peer.timed, mono_s - peer.received_mono_s)


def rank_said_more(
    hello: protocol.Hello,
    obs: protocol.RankReport,
    quiet_s: float = 0.0,
    timed: tuple[float, int] | None = None,
    silent_s: float = 0.0,
) -> Rank:
    """A Rank from the messages of a training process."""
    told = msgspec.structs.asdict(obs)
    told["guess"] = obs.guess and (obs.guess[0], units.printable(obs.guess[1])[:80])
    told["trial"] = obs.trial and units.printable(obs.trial)[:200]
    return Rank(
        **told,
        rank=hello.rank,
        process=f"{hello.host} {hello.pid} {hello.start_time}",
        pid=hello.pid,
        restart=hello.restart,
        world=hello.world,
        quiet_s=quiet_s,
        silent_s=silent_s,
        timed_mono=timed,
    )


def alive(processes: Iterable[str], ranks: tuple[Rank, ...]) -> frozenset[str]:
    """The training processes still alive: connected, or on this host and running. The process table is read only when
    a new one is heard, or none is."""
    connected, known = {rank.process for rank in ranks}, set(processes)
    if connected and connected <= known:
        return frozenset(known)
    return frozenset(process for process in known if process in connected or _runs_here(process))


def _runs_here(process: str) -> bool:
    """Pid and start time say so: no process of another machine has both, and a hostname changes."""
    named = re.fullmatch(r".* ([0-9]{1,10}) ([0-9]{1,18})", process)  # a predecessor may have kept anything
    return named is not None and proc.same_process(int(named[1]), int(named[2]))
