"""Carries out effects: wants to the ranks, orders to the keeper, power limits, journal rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from carbontui import protocol
from carbontui.job.supervisor.core.effects import (
    Disown,
    Effect,
    EndStart,
    FallBack,
    Freeze,
    Hold,
    Keep,
    LastRun,
    LogLine,
    Record,
    Replan,
    Retry,
    SendWants,
    SetLimit,
    Simulate,
    StartCalibration,
    StopChild,
    Thaw,
    WatchBoards,
)
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.recorder import Recorder
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.job.supervisor.shell.server import Server
from carbontui.power.handle import AgentHandle
from carbontui.power.messages import Outcome
from carbontui.text.statements import words


class Actuators:
    """One action per kind of effect. `replan`, `keep` and `calibrate` are callbacks of those parts; `changed` asks
    for a tick once the boards have answered, `now_s` is the job's clock."""

    def __init__(
        self,
        *,
        keeper: KeeperHandle,
        server: Server,
        agent: AgentHandle,
        accounting: Accounting,
        recorder: Recorder,
        allow_raise: bool,
        replan: Callable[[str], None],
        keep: Callable[[], None],
        calibrate: Callable[[str], None],
        changed: Callable[[], None],
        now_s: Callable[[], float],
    ) -> None:
        self._keeper = keeper
        self._server = server
        self._agent = agent
        self._accounting = accounting
        self._recorder = recorder
        self._allow_raise = allow_raise
        self._replan = replan
        self._keep = keep
        self._calibrate = calibrate
        self._changed = changed
        self._now_s = now_s
        self._limiting: asyncio.Task[None] | None = None

    @property
    def limit_asked(self) -> bool:
        """Whether a limit was set or restored since this supervisor started."""
        return self._limiting is not None

    @property
    def limit_pending(self) -> bool:
        """Whether the boards have not yet answered a limit request."""
        return self._limiting is not None and not self._limiting.done()

    def perform(self, effect: Effect) -> None:
        match effect:
            case SendWants(want):
                for peer in self._server.ranks:
                    peer.send(want)
            case Hold(until_wall_s):
                self._keeper.hold(until_wall_s)
            case Freeze(lease_s):
                self._keeper.freeze(lease_s)
            case Thaw():
                self._keeper.thaw()
            case SetLimit():
                self._limit(effect)
            case Simulate(activity, duty):
                self._agent.drive_simulated(activity, duty)
            case WatchBoards(boards, own_pids, elsewhere):
                self._agent.watch(boards, own_pids=own_pids, elsewhere=elsewhere)
            case Disown(boards):
                self.disown(boards)
            case Record(kind, facts, at_s):
                self._recorder.event(kind, at_s, **{name: self._drawn(fact) for name, fact in facts.items()})
            case LogLine(text):
                self._recorder.say(self._drawn(text))
            case Replan(why):
                self._replan(why)
            case Keep():
                self._keep()
            case StopChild(now):
                self._keeper.stop(now=now)
            case LastRun(why):
                self._keeper.last(why)
            case Retry(on):
                self._keeper.retry(on=on)
            case FallBack(on):
                self._keeper.fall_back(on=on)
            case EndStart():
                self._keeper.end_start()
            case StartCalibration(by):
                self._calibrate(by)

    def _drawn(self, fact: Any) -> Any:
        """A statement in words; anything else as it is."""
        return words(fact, self._now_s()) if isinstance(fact, protocol.Statement) else fact

    def disown(self, boards: tuple[str, ...]) -> None:
        joules = self._accounting.disown(boards)
        self._recorder.event("disowned", boards=list(boards), joules=joules)
        self._recorder.say(f"not the training's boards, {joules:.0f} J taken back: {', '.join(boards)}")

    def _limit(self, wanted: SetLimit) -> None:
        if self._limiting is not None:
            self._limiting.cancel()
        self._limiting = asyncio.ensure_future(self._set_limit(wanted))

    async def _set_limit(self, wanted: SetLimit) -> None:
        outcomes = await self._agent.set_limit(wanted.watts, allow_raise=self._allow_raise, left=wanted.left)
        self.note(outcomes, wanted_w=wanted.watts)
        self._changed()

    def note(self, outcomes: Iterable[Outcome], *, asked: bool = True, wanted_w: float | None = None) -> None:
        """Record the outcome of limit requests, and the limits now in force, as events."""
        for o in outcomes:
            facts = {"uuid": o.uuid, "ok": o.ok, "code": o.code, "watts": o.watts, "text": o.text}
            self._recorder.event("limit", asked=asked, wanted_w=wanted_w, **facts)
