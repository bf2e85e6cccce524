"""What is done about a decision: wants to the ranks with their leases, held starts, limits of the boards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from carbontui import protocol, units
from carbontui.job.child import Child
from carbontui.job.supervisor.shell.server import Peer
from carbontui.power.messages import Outcome

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor


class Hands:
    """Acts once a tick, after the decision, and whenever a rank has changed."""

    def __init__(self, job: Supervisor) -> None:
        self._job = job
        self._renewed = 0.0
        self._sent_hold: float | str | None = "never"
        self._freezing = False
        self.asked_to_run_mono: float | None = None
        """When a standing training was last asked to go on; None once it did."""
        self._left: tuple[float | None, tuple[str, ...]] = (None, ())
        """A predecessor's cap, and the boards where someone else has set the limit since."""
        self._limiting: asyncio.Task[None] | None = None
        self.named: tuple[str, ...] | None = None
        """The boards that the training has said it uses; None before it did."""
        self.named_mono = 0.0
        """When that last changed."""
        self.own: set[str] = set()
        """Boards that were ever watched because they were named; one of a rank that is gone stays the job's."""

    def act(self, mono: float, child: Child) -> None:
        """Send what is wanted (and renew its lease), move a held start, set or give back limits."""
        job = self._job
        self.journal(job.agent.happened(), asked=False)
        renew = mono - self._renewed >= protocol.RENEW_S
        if job.decision.want_changed or renew:
            self._renewed = mono
            self.send_want()
        hold = job.decision.hold_until_s
        if child.state in ("waiting", "unloaded"):
            # a hold is a lease too: a keeper that hears none for a minute starts the child
            wall = None if hold is None else job.clock.to_wall(hold)
            if wall != self._sent_hold or renew:
                self._sent_hold = wall
                job.guard.hold(wall)
        else:
            self._sent_hold = "never"
        self._freeze(child, renew=renew)
        if job.decision.limit_changed:
            self.set_limit()
            if job.options.simulated:
                self.send_want()
        active = job.decision.state in ("running", "throttled", "pausing") and child.state == "running"
        ranks = job.server.ranks
        parked = bool(ranks) and all(peer.obs and peer.obs.state == "paused" for peer in ranks)
        if job.options.simulated and child.state != "running":
            job.agent.drive_simulated(None)
        elif job.options.simulated and ranks:
            job.agent.drive_simulated(0.0 if parked or not active else 1.0, job.control.duty or 1.0)
        if not job.options.simulated:
            # boards once named stay the job's while its ranks reconnect; its own processes are never foreign there
            self._name(tuple(dict.fromkeys(u for peer in ranks if peer.obs for u in peer.obs.devices)), mono)
            own = [peer.hello.pid for peer in ranks if peer.hello] + ([job.guard.pid] if job.guard.pid else [])
            job.agent.watch(self.named, own_pids=tuple(sorted(set(own))))

    def _name(self, boards: tuple[str, ...], mono: float) -> None:
        if boards and boards != self.named:
            self.named, self.named_mono = boards, mono

    def to_dict(self) -> dict[str, Any]:
        left = {"watts": self._job.control.limit_w, "boards": self._job.agent.left}
        return {"named": self.named, "own": sorted(self.own), "left": left}

    def restore(self, kept: dict[str, Any] | None) -> None:
        """Boards named to a predecessor: others are not counted even while the ranks reconnect."""
        if kept and (left := kept.get("left")) and left["boards"]:
            self._left = (left["watts"], tuple(left["boards"]))
        if kept and kept["named"]:
            self.own = set(kept["own"])
            self._name(tuple(kept["named"]), time.monotonic())
            self._job.agent.watch(self.named)

    def _freeze(self, child: Child, *, renew: bool) -> None:
        """Have the keeper stop a program without steps, under a lease, or continue it."""
        guard, wanted = self._job.guard, self._job.control.freeze
        if wanted and (renew or not self._freezing):
            guard.freeze(protocol.LEASE_S)
        elif not wanted and (self._freezing or child.frozen):
            guard.thaw()
        self._freezing = wanted

    def send_want(self) -> None:
        for peer in self._job.server.ranks:
            self.send_want_to(peer)

    def send_want_to(self, peer: Peer) -> None:
        job = self._job
        c = job.control
        not_before = None if c.not_before_s is None else units.iso(job.clock.to_wall(c.not_before_s))
        peer.send(protocol.Want(c.mode, c.gen, protocol.LEASE_S, duty=self.felt_duty(), not_before=not_before))

    def felt_duty(self) -> float | None:
        """A simulated cap slows the child by duty; a real one needs no help."""
        job = self._job
        spec, c = job.agent.simulated, job.control
        if spec is None or c.duty is not None or c.limit_w is None:
            return c.duty
        return spec.speed(c.limit_w)

    def rank_changed(self, peer: Peer) -> None:
        """A rank came, went or changed its state: tell it what is wanted, and look at once."""
        job = self._job
        job.senses.hear(peer)  # one that has left between two ticks: its last steps came with its goodbye
        if peer.obs is not None and peer in job.server.peers and peer.obs.want_gen < job.control.gen:
            self.send_want_to(peer)
        if peer.obs is not None and peer.obs.state == "running" and self.asked_to_run_mono is not None:
            job.learned.resume_s.add(min(600.0, time.monotonic() - self.asked_to_run_mono))
            self.asked_to_run_mono = None
        if peer.acked_gen == job.control.gen and peer.obs is not None:
            job.event("ack", rank=peer.hello.rank if peer.hello else 0, want_gen=peer.acked_gen, step=peer.obs.step)
            peer.acked_gen = -1
        job.wake()

    def set_limit(self) -> None:
        job = self._job
        watts = job.control.limit_w
        if self._limiting is not None:
            self._limiting.cancel()
        self._limiting = asyncio.ensure_future(self._set_limit(watts))

    def insist(self, watts: float) -> None:
        """A person asks for this cap: said again after a board gave it up, it is meant."""
        self._left = (None, ())
        if self._job.control.limit_w == watts:
            self.set_limit()

    @property
    def limiting(self) -> bool:
        """Whether the boards have yet to answer for a limit."""
        return self._limiting is not None and not self._limiting.done()

    def refused_cap(self) -> tuple[float | None, str]:
        """(watts, why) of a cap that every board has refused or given up; (None, '') while one holds or is asked."""
        job = self._job
        outcomes = [job.agent.outcomes.get(reading.uuid) for reading in job.devices]
        failed = [outcome for outcome in outcomes if outcome is not None and not outcome.ok]
        if self._limiting is None or self.limiting or not outcomes or len(failed) < len(outcomes):
            return None, ""
        return job.control.limit_w, failed[0].text or failed[0].code

    async def _set_limit(self, watts: float | None) -> None:
        job = self._job
        raising = job.options.allow_raise
        left: tuple[str, ...] = ()
        if watts is not None:
            (before, boards), self._left = self._left, (None, ())
            left = boards if watts == before else ()
        self.journal(await job.agent.set_limit(watts, allow_raise=raising, left=left), wanted_w=watts)
        job.wake()

    def journal(self, outcomes: Iterable[Outcome], *, asked: bool = True, wanted_w: float | None = None) -> None:
        """What became of the limits, and what stands there now, as events."""
        for o in outcomes:
            facts = {"uuid": o.uuid, "ok": o.ok, "code": o.code, "watts": o.watts, "text": o.text}
            self._job.event("limit", asked=asked, wanted_w=wanted_w, **facts)
