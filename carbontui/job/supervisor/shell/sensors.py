"""Gathers the inputs of a tick into one value; reading changes nothing."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable

import msgspec

from carbontui import protocol, units
from carbontui.job.clock import Clock
from carbontui.job.supervisor.core.state.inputs import Inputs, LimitNews, Rank
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.shell.core_wait import CoreWait
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.job.supervisor.shell.server import Peer, Server
from carbontui.job.supervisor.shell.unseen_watch import UnseenWatch
from carbontui.power.agent.handle import AgentHandle
from carbontui.system import proc


class Sensors:
    """Reads keeper, ranks and agent. Time spans are those between two calls of `advance`."""

    def __init__(
        self, clock: Clock, keeper: KeeperHandle, server: Server, agent: AgentHandle, unseen_watch: UnseenWatch
    ) -> None:
        self._clock = clock
        self._keeper = keeper
        self._server = server
        self._agent = agent
        self._unseen_watch = unseen_watch
        self._born_mono = self._last_mono = time.monotonic()
        self._last_now = clock.at_wall(time.time())
        self._spans = (0.0, 0.0, 0.0)
        self._core_wait = CoreWait()
        self._core_wait_s = 0.0

    def advance(self) -> None:
        """Start a new tick: measure the time since the last one."""
        wall, mono = time.time(), time.monotonic()
        now = self._clock.at_wall(wall)
        dt_wall = mono - self._last_mono
        # elapsed time, unaffected by a clock that was set
        dt = dt_wall * self._clock.speed_at(wall)
        self._spans = (dt, dt_wall, now - self._last_now - dt)
        self._last_now, self._last_mono = now, mono
        first = next((peer.hello for peer in self._server.ranks if peer.hello and peer.hello.rank == 0), None)
        self._core_wait_s = self._core_wait.since(first)

    def look(
        self,
        state: JobState,
        *,
        metered: frozenset[str] = frozenset(),
        limit_asked: bool = False,
        limit_pending: bool = False,
        zone: str | None = None,
        grid_note: str = "",
    ) -> Inputs:
        """The current inputs."""
        mono = time.monotonic()
        dt, dt_wall, jump = self._spans
        ranks = tuple(rank_of(peer, mono) for peer in self._server.ranks)
        child, stepped = self._keeper.child(), bool(ranks) or state.progress.step > 0
        running = self._keeper.pid if child.state == "running" else None
        return Inputs(
            now_s=self._clock.at_wall(time.time()),
            mono_s=mono,
            dt_s=dt,
            dt_wall_s=dt_wall,
            jump_s=jump,
            core_wait_s=self._core_wait_s,
            child=child,
            child_pid=self._keeper.pid,
            starts=self._keeper.starts,
            guarded=self._keeper.guarded,
            ranks=ranks,
            alive=alive(state.progress.processes or (), ranks),
            readings=self._agent.readings,
            nodes=self._agent.nodes(),
            metered=metered,
            limits=LimitNews(limit_asked, limit_pending, self._agent.left, dict(self._agent.outcomes)),
            zone=zone,
            grid_note=grid_note,
            uptime_s=mono - self._born_mono,
            unseen=self._unseen_watch.look(running, child.age_s, mono, stepped=stepped),
        )


def rank_of(peer: Peer, mono_s: float) -> Rank:
    """The last message of a training process, as a Rank."""
    assert peer.obs is not None and peer.hello is not None
    return rank_told(peer.hello, peer.obs, mono_s - peer.step_mono_s, peer.timed, mono_s - peer.heard_mono_s)


def rank_told(
    hello: protocol.Hello,
    obs: protocol.Obs,
    quiet_s: float = 0.0,
    timed: tuple[float, int] | None = None,
    unheard_s: float = 0.0,
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
        unheard_s=unheard_s,
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
    named = re.fullmatch(r"(.*) ([0-9]{1,10}) ([0-9]{1,18})", process)  # a predecessor may have kept anything
    if named is None or named[1] != socket.gethostname():
        return False
    return proc.same_process(int(named[2]), int(named[3]))
