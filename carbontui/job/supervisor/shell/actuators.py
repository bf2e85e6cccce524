"""Carries out effects: wants to the ranks, orders to the keeper, power limits, journal rows."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from carbontui.account.boundary import IDLE
from carbontui.job.keeper.messages import Last, Stop
from carbontui.job.supervisor.core import effects
from carbontui.job.supervisor.core.state.inputs import LimitNews
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.disk import Disk, Recorder
from carbontui.job.supervisor.shell.calibrator import Calibrator
from carbontui.job.supervisor.shell.door import Ports
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.job.supervisor.shell.server import Server
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.messages import Outcome
from carbontui.protocol import statement


@dataclass(eq=False)
class Actuators:
    """One action per kind of effect."""

    ports: Ports
    keeper: KeeperHandle
    server: Server
    agent: AgentHandle
    accounting: Accounting
    recorder: Recorder
    disk: Disk
    replanner: Replanner
    calibrator: Calibrator
    allow_raise: bool
    _limiting: asyncio.Task[None] | None = None
    _disowning: asyncio.Task[None] | None = None

    @property
    def limits(self) -> LimitNews:
        """The state of the limits that were set or restored since this supervisor started."""
        pending = self._limiting is not None and not self._limiting.done()
        return LimitNews(self._limiting is not None, pending, self.agent.left, dict(self.agent.outcomes))

    def perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.SendWants(want):
                for peer in self.server.ranks:
                    peer.send(want)
            case effects.SetLimit():
                self._limit(effect)
            case effects.Simulate(activity, duty):
                self.agent.change(activity=activity, duty=duty)
            case effects.WatchBoards(boards, own_pids, elsewhere):
                self.agent.watch(boards, own_pids=own_pids, elsewhere=elsewhere)
            case effects.ReverseBooking(boards):
                self._disown(boards)
            case effects.Record(kind, facts, at_s):
                self.recorder.event(kind, at_s, **facts)
            case effects.LogLine(said):
                self.recorder.say(said)
            case effects.Replan(why):
                self.replanner.request(why)
            case effects.Keep():
                self.ports.keep()
            case Stop(now):
                self.keeper.stop(now=now)
            case effects.DoNotResume(why, ends) if ends and why is not None:
                self.keeper.stop(now=False, why=self.recorder.words(why))
            case effects.DoNotResume(why):
                self.keeper.send(Last("" if why is None else self.recorder.words(why)))
            case effects.StartCalibration(by):
                self.calibrator.start(by, self.ports.read_inputs())
            case _:
                self.keeper.send(effect)

    def _disown(self, boards: tuple[str, ...]) -> None:
        if self._disowning is None or self._disowning.done():
            self._disowning = asyncio.ensure_future(self.disown(boards))

    async def disown(self, boards: tuple[str, ...]) -> None:
        """Take back what was booked for these boards; what a disk prevents is tried again by the next tick."""
        self.accounting.write(everything=True)
        joules = 0.0
        for device in (name for board in boards for name in (board, f"{IDLE}@{board}")):
            rows = await self.disk.do(partial(self.accounting.journal.disown, device))
            joules += self.accounting.take_back(device, rows)
        self.recorder.event("disowned", boards=list(boards), joules=joules)
        self.recorder.say(statement("boards_disowned", joules=joules, boards=boards))

    def _limit(self, wanted: effects.SetLimit) -> None:
        if self._limiting is not None:
            self._limiting.cancel()
        self._limiting = asyncio.ensure_future(self._set_limit(wanted))

    async def _set_limit(self, wanted: effects.SetLimit) -> None:
        outcomes = await self.agent.set_limit(wanted.watts, allow_raise=self.allow_raise, left=wanted.left)
        self.note(outcomes, wanted_w=wanted.watts)
        self.ports.wake()

    def note(self, outcomes: Iterable[Outcome], *, asked: bool = True, wanted_w: float | None = None) -> None:
        """Record the outcome of limit requests, and the limits now in force, as events."""
        for o in outcomes:
            facts = {"uuid": o.uuid, "ok": o.ok, "code": o.code, "watts": o.watts, "text": o.text}
            self.recorder.event("limit", asked=asked, wanted_w=wanted_w, **facts)
