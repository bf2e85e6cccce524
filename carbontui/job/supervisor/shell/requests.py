"""Requests and commands of ranks and viewers: the supervisor's side of every message of job.sock.

Never blocks the supervisor: slow work is awaited in the viewer's own task.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from carbontui import protocol, units
from carbontui.grid.feed import Feed
from carbontui.grid.types import GridForecast
from carbontui.job.files import history, runlog, store
from carbontui.job.keeper.orders import LoggedOrder
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core.advance import Command, LastCount, RankChanged
from carbontui.job.supervisor.core.effects import desired_of
from carbontui.job.supervisor.core.rules import capabilities, unload_rules
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.view import shown_plan, status
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.chart_history import LossHistory
from carbontui.job.supervisor.record.disk import Recorder
from carbontui.job.supervisor.record.restoring import LastCounts
from carbontui.job.supervisor.shell.door import Door, Ports
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.job.supervisor.shell.orders import STORED_S, Orders
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.job.supervisor.shell.sensors import rank_of, rank_said_more
from carbontui.job.supervisor.shell.server import Peer
from carbontui.job.supervisor.shell.snapshot import Snapshots
from carbontui.job.supervisor.shell.ticks import Ticks
from carbontui.job.worker.model import WorkModel
from carbontui.power.agent import view as capability
from carbontui.power.agent.handle import AgentHandle
from carbontui.protocol import statement
from carbontui.text.replies import curve_lines
from carbontui.text.statements import in_words, kept

ACK_WAIT_S = 2.0
"""How long a command waits for ranks or boards before it replies that they have been asked."""
SAMPLE_WAIT_S = 0.3


@dataclass(eq=False)
class Requests:
    """Answers from the state; changes it only through the pure functions of the core."""

    door: Door
    ports: Ports
    keeper: KeeperHandle
    agent: AgentHandle
    accounting: Accounting
    recorder: Recorder
    feed: Feed
    replanner: Replanner
    last_counts: LastCounts
    snapshots: Snapshots
    orders: Orders
    ticks: Ticks
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Off the event loop, from the journal: a supervisor silent for six seconds is replaced."""
    _losses: LossHistory = field(default_factory=LossHistory)
    _band: tuple[GridForecast | None, protocol.Band | None, protocol.PriceSlots | None] = (None, None, None)
    status: protocol.Status | None = None
    """The Status of the last tick; None: it is made when somebody looks."""

    def _now(self) -> tuple[JobState, Inputs]:
        return self.door.state, self.ports.read_inputs()

    # --- ranks ---

    def override_gen(self) -> int:
        return self.door.state.override.gen

    def rank_changed(self, peer: Peer, *, connected: bool) -> None:
        """A rank came, went or changed its state: take in its message, send it the want, and tick at once."""
        if peer.obs is not None and peer.hello is not None:
            seen = self.ports.read_inputs()
            # also for a rank that left between two ticks: its last steps came with its bye message
            self.door.dispatch(RankChanged(rank_of(peer, seen.mono_s), seen))
            asked = self.door.state.asked
            if connected and peer.obs.want_gen < asked.gen:
                peer.send(desired_of(self.door.state))
            if peer.acked_gen >= 0:  # also of an order that another has followed since
                self.recorder.event("ack", rank=peer.hello.rank, want_gen=peer.acked_gen, step=peer.obs.step)
                peer.acked_gen = -1
        if not connected:
            self.read_last_counts()
        self.ports.wake()

    def read_last_counts(self) -> None:
        """Count steps that no supervisor has heard, or that none lived to store."""
        for hello, obs in self.last_counts.read():
            report = WorkModel().folded(obs, 0.0)
            self.door.dispatch(LastCount(rank_said_more(hello, report), self.ports.read_inputs()))

    # --- viewers ---

    def sections(self) -> protocol.Snap:
        """What viewers see now, not numbered yet."""
        if self.status is None:
            self.ports.book()
        state, seen = self._now()
        told = self.status or self.snapshots.describe(state, seen)
        if self._band[0] is not state.outlook:
            known = state.outlook
            self._band = (known, *((status.band(known), status.prices(known)) if known else (None, None)))
        self._losses.add(told.loss_value)
        series = protocol.ChartSeries(
            now=units.iso(seen.now_s),
            watts=self.accounting.watts.watts(),
            intensity=self._band[1],
            loss=self._losses.values(),
            replay_speed=state.clock.speed if state.clock.replay else None,
            price=self._band[2],
        )
        shown = shown_plan.view(state, seen)
        frontier = shown_plan.frontier(state, shown and shown.view, told.at_end)
        return protocol.Snap(0, told, series, self.drawn_plan(shown, seen.now_s), frontier)

    @staticmethod
    def drawn_plan(shown: shown_plan.ShownPlan | None, now_s: float) -> protocol.PlanView | None:
        if shown is None:
            return None
        explanation = " ".join(kept(said, now_s) for said in shown.explanation)
        note = "" if shown.curve is None else kept(shown.curve, now_s)
        return msgspec.structs.replace(shown.view, explanation=explanation, said=shown.explanation, curve_note=note)

    async def answer(self, peer: Peer, ask: protocol.Request) -> protocol.Answer | protocol.Refused:
        """The answer to a viewer's question."""
        state = self.door.state
        match ask:
            case protocol.Cmd():
                return await self.command(peer, ask)
            case protocol.Sighting():
                return await self.replanner.worker.read(ask)
            case protocol.Preview():
                return await self.replanner.preview(ask)
            case protocol.StatusAsk():
                await self.agent.refresh(SAMPLE_WAIT_S)
                self.ports.book()
                return protocol.StatusAnswer(ask.id, self.snapshots.describe(*self._now()))
            case protocol.LogRead():
                err = Path(state.spec.err) if state.spec.err else None
                return await asyncio.to_thread(runlog.read, Path(state.spec.log), ask, err, self.keeper.pid)
            case protocol.HistoryAsk():
                return await self._past(ask)
            case protocol.JobsAsk():
                return protocol.JobsAnswer(ask.id, await asyncio.to_thread(_statuses))
            case protocol.EventsAsk():
                return await self._events(ask)
            case protocol.AbilitiesAsk():
                return abilities(*self._now(), ask)
            case protocol.GridAsk():
                return self._sources(ask)

    def _sources(self, ask: protocol.GridAsk) -> protocol.GridAnswer:
        outlook = self.door.state.outlook
        found = tuple(msgspec.structs.replace(one, note=units.printable(one.note)) for one in self.feed.sources)
        return protocol.GridAnswer(ask.id, found, *((outlook.note, outlook.moved) if outlook else ()))

    async def _past(self, ask: protocol.HistoryAsk) -> protocol.HistoryAnswer | protocol.Refused:
        """Mean watts of the last `span` seconds in `buckets` columns, from the journal."""
        step = ask.span / ask.buckets
        start, outlook = self.ports.read_inputs().now_s - ask.span, self.door.state.outlook
        try:
            async with self._reading:
                past = await asyncio.to_thread(history.read, self.recorder.path, start, ask.span, ask.buckets)
        except history.HistoryError as error:
            self.recorder.say(str(error))
            return protocol.Refused(str(error), ask.id)
        watts = protocol.Watts(units.iso(start), step, past.watts)
        values = tuple(outlook.value_at(start + (i + 0.5) * step) if outlook else None for i in range(ask.buckets))
        return protocol.HistoryAnswer(ask.id, watts, level=past.levels, intensity_g=values, kind=past.kinds)

    async def _events(self, ask: protocol.EventsAsk) -> protocol.EventsAnswer | protocol.Refused:
        try:
            since_s = 0.0 if ask.since is None else units.from_iso(ask.since)
            async with self._reading:
                found = await asyncio.to_thread(history.events, self.recorder.path, since_s, ask.most, ask.plans)
            return protocol.EventsAnswer(ask.id, found)
        except (history.HistoryError, ValueError) as error:
            return protocol.Refused(str(error), ask.id)

    # --- commands ---

    async def command(self, peer: Peer, cmd: protocol.Cmd) -> protocol.Result:
        """Carry out one command; each is journaled with its author."""
        by = (peer.hello.by if peer.hello else "") or f"uid {os.getuid()}"
        if cmd.verb == "cap":
            if not self.ports.read_inputs().readings.mono_s:
                # the first is due
                await self.ticks.until(lambda: self.ports.read_inputs().readings.mono_s or None, ACK_WAIT_S)
            if self.door.state.spec.probe:
                self.agent.change(probe=True)
            await self.agent.refresh(SAMPLE_WAIT_S)  # judged by the limits of now: another program may have set one
        seen = self.ports.read_inputs()
        reply = self.door.dispatch(Command(cmd, by, seen))
        self.ports.wake()
        if reply is None:
            return protocol.Result(cmd.id, False, error=f"{cmd.verb} failed: see carbontui.log", exit_code=1)
        if reply.answer is not None and (reply.answer.exit_code or cmd.args.get("show")):
            return self._result(cmd, reply.answer)
        stored = self.orders.store(self._order(cmd, by))
        due = time.monotonic() + STORED_S
        answer = reply.answer
        if answer is None and reply.awaits == "pause":
            held = await self.ticks.until(lambda: commands.pause_held(*self._now()), ACK_WAIT_S)
            answer = held or commands.pause_asked(*self._now())
        elif answer is None:
            watts = float(cmd.args["value_w"])
            taken = await self.ticks.until(lambda: commands.cap_held(*self._now(), watts), ACK_WAIT_S)
            answer = taken or commands.Answered(statement("cap_unanswered", watts=watts))
        # the keeper alone starts and ends the command; the tick under way sends it what follows from the order
        unreached = cmd.verb == "stop" or self.door.state.child.state != "running"
        if unreached:
            await self.ticks.until(lambda: True, ACK_WAIT_S)
            unreached = await self.keeper.unresponsive()
        await asyncio.wait({stored}, timeout=max(0.0, due - time.monotonic()))
        durable = stored.done() and stored.exception() is None
        said = commands.ordered(answer, stored=durable, unreached=unreached)
        return self._result(cmd, answer._replace(said=said))

    def _order(self, cmd: protocol.Cmd, by: str) -> LoggedOrder:
        """The accepted command as it is stored: the plan's next change is a time."""
        args, until_s = cmd.args, self.door.state.override.until_s
        if args.get("until") == "next" and until_s is not None:
            args = {**args, "until": units.iso(until_s)}
        return LoggedOrder(cmd.verb, args, by, time.time(), accepted=True)

    def take_again(self, order: LoggedOrder) -> None:
        """Carry out an order of orders.log, as of the time it was given."""
        at = replace(self.ports.read_inputs(), now_s=self.door.state.clock.at_wall(order.at))
        try:
            cmd = msgspec.convert({"id": 0, "verb": order.verb, "args": order.args}, protocol.Cmd)
        except ValueError as error:
            self.recorder.say(statement("order_refused", by=order.by, why=str(error)))
            return
        reply = self.door.dispatch(Command(cmd, order.by, at, order.accepted))
        self.recorder.say(statement("order_taken", verb=cmd.verb, by=order.by))
        if reply is not None and reply.answer is not None and reply.answer.exit_code:
            self.recorder.say(statement("order_refused", by=order.by, why=reply.answer.said))
        self.ports.wake()

    def _result(self, cmd: protocol.Cmd, answer: commands.Answered) -> protocol.Result:
        """The answer as the wire has it."""
        now_s = self.ports.read_inputs().now_s
        text, data = kept(answer.said, now_s), None if answer.data is None else in_words(answer.data, now_s)
        if answer.exit_code:
            return protocol.Result(cmd.id, False, text, exit_code=answer.exit_code, data=data, said=answer.said)
        return protocol.Result(cmd.id, True, text=text, data=data, said=answer.said)


def _statuses() -> tuple[protocol.Status, ...]:
    return tuple(job.status() for job in store.jobs()[:50])


def abilities(state: JobState, inputs: Inputs, ask: protocol.AbilitiesAsk) -> protocol.AbilitiesAnswer:
    """For screen page `d`: boards and host as the agent sees them, then the training, then its speed curve."""
    boards = capability.table(msgspec.structs.replace(inputs.readings, devices=inputs.devices))
    rows = [protocol.Ability(x.device, x.aspect, capability.SAYS[x.support], x.why, x.fix) for x in boards]
    for own in capabilities.of_training(state, inputs):
        why, support = kept(own.why, inputs.now_s), capability.SAYS[own.support]
        rows.append(protocol.Ability("training", own.aspect, support, why, own.fix))
    curve = tuple(curve_lines(state.curve) if state.curve else ())
    return protocol.AbilitiesAnswer(
        ask.id, tuple(rows), curve, unload_rules.unload_s(state), unload_rules.start_s(state)
    )
