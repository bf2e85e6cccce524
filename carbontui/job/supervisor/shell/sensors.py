"""What the job draws, does and costs: samples, steps and grid data into the books and into what is learned."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

from carbontui import proc, protocol
from carbontui.job.supervisor.core.measured import SETTLE_WALL_S
from carbontui.job.supervisor.shell.server import Peer

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor

NAMED_S = 30.0
"""Boards that the training has not named so long after it named some are not its own."""
AVOIDED_FROM_S = 60.0
"""Work done before a saving is claimed: the second between start and first sample is not metered, and would look so."""


class Senses:
    """Fed once a tick, before anything is decided."""

    def __init__(self, job: Supervisor) -> None:
        self._job = job
        self._settled_mono = time.monotonic()
        self._refreshing: asyncio.Task[None] | None = None
        self._new_steps = 0

    def unsettle(self, mono: float) -> None:
        """The state has changed: what the boards say is of before and after for a moment."""
        self._settled_mono = mono

    def measure(self, now: float, dt: float, dt_wall: float) -> None:
        """Samples into the books; steps and watts into what is learned."""
        job = self._job
        state = job.decision.state
        watched = frozenset(reading.uuid for reading in job.devices)
        job.books.meter_samples(job.agent.drain(), state, watched)
        self.disown()
        job.books.host(now, dt, state, held=state not in ("waiting", "unloaded"))
        settled = time.monotonic() - self._settled_mono > SETTLE_WALL_S
        plain_full = state == "running" and job.control.limit_w is None and job.control.duty is None
        for peer in job.server.ranks:
            self.hear(peer)
        new_steps, self._new_steps = self._new_steps, 0
        if state in ("running", "throttled", "pausing"):
            level = None if state == "pausing" else job.planner.level_named(job.decision.level)
            job.progress.ran(dt, dt_wall, level.speed if level else 1.0, new_steps, reference=plain_full and settled)
        else:
            job.progress.rested()
        if settled and job.agent.readings.age_s(time.monotonic()) < 2.0:
            self._learn_watts(state, plain_full)

    def disown(self, after_s: float = NAMED_S) -> None:
        """Boards that were counted only because nobody had said yet which ones the training uses."""
        job = self._job
        named_s = time.monotonic() - job.hands.named_mono
        if job.hands.named is None or named_s < after_s:
            return
        if named_s >= NAMED_S and job.agent.readings.age_s(time.monotonic()) < NAMED_S / 2:
            job.hands.own |= {reading.uuid for reading in job.devices}
        watched = {reading.uuid for reading in job.devices}
        strangers = sorted(job.books.metered_boards - watched - job.hands.own - set(job.hands.named))
        if strangers and watched:
            joules = job.books.disown(strangers)
            job.event("disowned", boards=strangers, joules=joules)
            job.log(f"not the training's boards, {joules:.0f} J taken back: {', '.join(strangers)}")

    def hear(self, peer: Peer) -> None:
        """What rank 0 has just said of its steps."""
        job = self._job
        if peer.hello and peer.hello.rank == 0 and peer.obs:
            starts = int(job.guard.facts.get("starts", 0))
            if starts > job.progress.starts and peer.obs.step > 0:
                job.learned.reload_s.add(job.guard.child().age_s)
            restarted = starts > job.progress.starts or peer.hello.restart > 0
            job.progress.saw_start(starts)
            fresh = not restarted and peer.obs.start_step == 0
            job.progress.saw_process(_name(peer.hello), self._alive, fresh=fresh)
            self._new_steps += job.progress.saw_step(peer.obs.step, peer.obs.start_step, peer.obs.total)

    def _alive(self, process: str) -> bool:
        """Whether a training process that spoke before still can; one of another host, as long as it is connected."""
        if any(peer.hello and _name(peer.hello) == process for peer in self._job.server.ranks):
            return True
        host, pid, started = process.rsplit(" ", 2)
        return host == socket.gethostname() and proc.same_process(int(pid), int(started))

    def _learn_watts(self, state: str, plain_full: bool) -> None:
        job = self._job
        kind = "full" if plain_full and job.server.ranks else {"paused": "parked", "waiting": "idle"}.get(state)
        if kind is None:
            return
        for reading in job.devices:
            if reading.power_w is not None and not reading.lost:
                job.learned.watts(kind, reading.uuid, reading.power_w)
        host = job.agent.readings.host
        if host.cpu_w is not None and kind in ("full", "parked"):
            mean = job.learned.rest_w if kind == "full" else job.learned.rest_parked_w
            mean.add(host.cpu_w + (host.dram_w or 0.0))

    def read_grid(self, now: float) -> None:
        """Refresh the feed when it is time; what is realised goes into the accounts."""
        job = self._job
        if now >= job.feed.next_refresh_s() and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh())
        step = 900.0
        if job.outlook is None or now >= job.outlook.start_s + (job.outlook.realised + 1) * job.outlook.step_s:
            self.look(now, step)

    def look(self, now: float, step: float = 900.0) -> None:
        """Take a fresh outlook and book what has been realised."""
        job = self._job
        back = max(6 * 3600.0, min(now - job.start_s + step, 36 * 3600.0))
        job.outlook = job.feed.outlook(now, back, job.planner.ahead_s(now), step)
        if job.outlook is not None:
            rows = job.feed.realised(min(job.start_s, job.books.ledger.first_s) - step, now)
            job.books.realised(rows, job.outlook.signal, job.outlook.source)
            job.books.prices(job.outlook)

    async def _refresh(self) -> None:
        job = self._job
        await job.feed.refresh()
        self.look(job.clock.now())
        job.planner.surprise("new grid data")
        job.wake()

    def full_wall_w(self) -> float | None:
        """Watts at the wall flat out, PUE included; None until the boards were measured so."""
        job = self._job
        uuids = tuple(reading.uuid for reading in job.devices)
        watts, measured = job.learned.total("full", uuids, 0.0)
        if uuids and not measured:
            return None
        rest = (job.learned.rest_w.value or 0.0) + job.options.host_w
        if not uuids and job.learned.rest_w.value is None:
            return None
        return (watts + rest) * job.options.pue

    def account(self, now: float) -> None:
        job = self._job
        nowcast = job.outlook.value_at(now) if job.outlook else None
        job.sums = job.books.sums(
            start_s=job.start_s,
            done_s=job.progress.done_s,
            full_wall_w=self.full_wall_w() if job.progress.done_s >= AVOIDED_FROM_S else None,
            nowcast=nowcast,
            gpus=len(job.devices),
        )

    def accounts_basis(self) -> dict[str, object]:
        """What an independent reader needs beside energy and grid rows to arrive at the same avoided grams."""
        job = self._job
        return {
            "start_s": job.start_s,
            "done_s": job.progress.done_s,
            "full_wall_w": self.full_wall_w(),
            "pue": job.options.pue,
            "energy_wall_kwh": job.books.ledger.wall_kwh,
            "energy_gpu_kwh": job.books.ledger.gpu_kwh,
            "gco2_g": job.sums.gco2_g,
            "avoided_g": job.sums.avoided_g,
            "before_g": job.books.before.gco2_g,
        }


def _name(hello: protocol.Hello) -> str:
    """A training process as no other is called: host, pid, start time."""
    return f"{hello.host} {hello.pid} {hello.start_time}"
