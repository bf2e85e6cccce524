"""Requests and commands of ranks and viewers: the supervisor's side of every message of job.sock.

Never blocks the supervisor: slow work is awaited in the viewer's own task.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from carbontui import protocol, units
from carbontui.grid.live import SourceState
from carbontui.grid.types import GridForecast
from carbontui.job import runlog, store
from carbontui.job.history import HistoryError
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core.advance import Command, RankChanged
from carbontui.job.supervisor.core.effects import want_of
from carbontui.job.supervisor.core.rules import capabilities
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.view import shown_plan, status
from carbontui.job.supervisor.record.history_thread import HistoryThread
from carbontui.job.supervisor.record.loss_history import LossHistory
from carbontui.job.supervisor.record.recorder import Recorder
from carbontui.job.supervisor.record.watt_history import WattHistory
from carbontui.job.supervisor.shell.door import Door
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.job.supervisor.shell.sensors import rank_of
from carbontui.job.supervisor.shell.server import Peer, Sections
from carbontui.job.supervisor.shell.ticks import Ticks
from carbontui.power.agent import view as capability
from carbontui.power.agent.handle import AgentHandle
from carbontui.text.replies import curve_lines
from carbontui.text.statements import in_words, words

ACK_WAIT_S = 2.0
"""How long a command waits for ranks or boards before it replies that they have been asked."""
SAMPLE_WAIT_S = 0.3


class Requests:
    """Answers from the state; changes it only through the pure functions of the core.

    `look` returns the current inputs, `describe` their Status, `wake` asks for an immediate tick, `rank_left` is called
    when a training process has gone.
    """

    def __init__(
        self,
        door: Door,
        *,
        history: HistoryThread,
        watts: WattHistory,
        agent: AgentHandle,
        replanner: Replanner,
        recorder: Recorder,
        ticks: Ticks,
        look: Callable[[], Inputs],
        describe: Callable[[JobState, Inputs], protocol.Status],
        book: Callable[[], None],
        wake: Callable[[], None],
        rank_left: Callable[[], None] = lambda: None,
        sources: Callable[[], tuple[SourceState, ...]] = tuple,
    ) -> None:
        self._door = door
        self._history = history
        self._watts = watts
        self._agent = agent
        self._replanner = replanner
        self._recorder = recorder
        self._ticks = ticks
        self._look = look
        self._describe = describe
        self._book = book
        self._wake = wake
        self._rank_left = rank_left
        self._sources = sources
        self._losses = LossHistory()
        self._band: tuple[GridForecast | None, protocol.Band | None, protocol.PriceSlots | None] = (None, None, None)
        self._plan: protocol.PlanView | None = None
        self.status: protocol.Status | None = None
        """The Status of the last tick."""

    # --- ranks ---

    def override_gen(self) -> int:
        return self._door.state.override.gen

    def rank_changed(self, peer: Peer, *, connected: bool) -> None:
        """A rank came, went or changed its state: take in its message, send it the want, and tick at once."""
        self._hear(peer, connected=connected)
        if not connected:
            self._rank_left()
        self._wake()

    def _hear(self, peer: Peer, *, connected: bool) -> None:
        if peer.obs is None or peer.hello is None:
            return
        seen = self._look()
        # also for a rank that left between two ticks: its last steps came with its bye message
        self._door.take(RankChanged(rank_of(peer, seen.mono_s), seen))
        state = self._door.state
        if connected and peer.obs.want_gen < state.asked.gen:
            peer.send(want_of(state))
        if peer.acked_gen == state.asked.gen:
            self._recorder.event("ack", rank=peer.hello.rank, want_gen=peer.acked_gen, step=peer.obs.step)
            peer.acked_gen = -1

    # --- viewers ---

    def sections(self) -> Sections:
        """What viewers see now; equal parts keep their identity, so that deltas stay small."""
        if self.status is None:
            self._book()
        state, seen = self._door.state, self._look()
        told = self.status or self._describe(state, seen)
        if self._band[0] is not state.outlook:
            known = state.outlook
            self._band = (known, *((status.band(known), status.prices(known)) if known else (None, None)))
        self._losses.add(told.loss)
        series = protocol.ChartSeries(
            now=units.iso(seen.now_s),
            watts=self._watts.watts(),
            intensity=self._band[1],
            loss=self._losses.values(),
            replay_speed=state.clock.speed if state.clock.replay else None,
            price=self._band[2],
        )
        shown = shown_plan.view(state, seen)
        view, frontier = self.drawn_plan(shown, seen.now_s), shown_plan.frontier(state, shown and shown.view)
        if view != self._plan:
            self._plan = view
        return Sections(told, series, self._plan, frontier)

    @staticmethod
    def drawn_plan(shown: shown_plan.ShownPlan | None, now_s: float) -> protocol.PlanView | None:
        if shown is None:
            return None
        explanation = " ".join(words(said, now_s) for said in shown.explanation)
        note = "" if shown.curve is None else words(shown.curve, now_s)
        return msgspec.structs.replace(shown.view, explanation=explanation, curve_note=note)

    async def status_now(self) -> protocol.Status:
        """A fresh sample, within 300 ms."""
        await self._agent.refresh(SAMPLE_WAIT_S)
        self._book()
        return self._describe(self._door.state, self._look())

    async def preview(self, ask: protocol.Preview) -> protocol.Previewed:
        return await self._replanner.preview(ask)

    def jobs(self) -> tuple[protocol.Status, ...]:
        return tuple(job.status() for job in store.jobs()[:50])

    def abilities(self, ask: protocol.AbilitiesAsk) -> protocol.AbilitiesAnswer:
        return abilities(self._door.state, self._look(), ask)

    def grid(self, ask: protocol.GridAsk) -> protocol.GridAnswer:
        outlook = self._door.state.outlook
        found = tuple(
            protocol.GridSource(
                source.title,
                source.state,
                source.signal,
                None if source.fetched_at_s is None else units.iso(source.fetched_at_s),
                units.printable(source.note),
            )
            for source in self._sources()
        )
        return protocol.GridAnswer(ask.id, found, *((outlook.note, outlook.moved) if outlook else ()))

    def read_log(self, ask: protocol.LogRead) -> protocol.LogAnswer:
        return runlog.read(Path(self._door.state.spec.log), ask)

    async def history(self, ask: protocol.HistoryAsk) -> protocol.HistoryAnswer | protocol.Refused:
        """Mean watts of the last `span` seconds in `buckets` columns, from the journal."""
        step = ask.span / ask.buckets
        start, outlook = self._look().now_s - ask.span, self._door.state.outlook
        try:
            past = await self._history.past(start, ask.span, ask.buckets)
        except HistoryError as error:
            self._recorder.say(str(error))
            return protocol.Refused(str(error), ask.id)
        watts = protocol.Watts(units.iso(start), step, past.watts)
        values = tuple(outlook.value_at(start + (i + 0.5) * step) if outlook else None for i in range(ask.buckets))
        return protocol.HistoryAnswer(ask.id, watts, level=past.levels, intensity_g=values, kind=past.kinds)

    async def events(self, ask: protocol.EventsAsk) -> protocol.EventsAnswer | protocol.Refused:
        try:
            since_s = 0.0 if ask.since is None else units.from_iso(ask.since)
            return protocol.EventsAnswer(ask.id, await self._history.events(since_s, ask.most, plans=ask.plans))
        except (HistoryError, ValueError) as error:
            return protocol.Refused(str(error), ask.id)

    # --- commands ---

    async def command(self, peer: Peer, cmd: protocol.Cmd) -> protocol.Result:
        """Carry out one command; each is journaled with its author."""
        by = (peer.hello.by if peer.hello else "") or f"uid {os.getuid()}"
        if cmd.verb == "cap":
            if not self._look().readings.mono_s:
                await self._ticks.until(lambda: self._look().readings.mono_s or None, ACK_WAIT_S)  # the first is due
            await self._agent.refresh(SAMPLE_WAIT_S)  # judged by the limits of now: another program may have set one
        seen = self._look()
        reply = self._door.take(Command(cmd, by, seen))
        self._wake()
        if reply is None:
            return protocol.Result(cmd.id, False, error=f"{cmd.verb} failed: see carbontui.log", exit_code=1)
        if reply.answer is not None:
            return self._result(cmd, reply.answer)
        if reply.awaits == "pause":
            held = await self._ticks.until(lambda: commands.pause_held(self._door.state, self._look()), ACK_WAIT_S)
            return self._result(cmd, held or commands.pause_asked(self._door.state, self._look()))
        watts = float(cmd.args["value_w"])
        taken = await self._ticks.until(lambda: commands.cap_held(self._door.state, self._look(), watts), ACK_WAIT_S)
        return self._result(cmd, taken or commands.cap_asked(watts))

    def _result(self, cmd: protocol.Cmd, answer: commands.Answered) -> protocol.Result:
        """The answer as the wire has it."""
        now_s = self._look().now_s
        text, data = words(answer.said, now_s), None if answer.data is None else in_words(answer.data, now_s)
        if answer.exit_code:
            return protocol.Result(cmd.id, False, error=text, exit_code=answer.exit_code, data=data)
        return protocol.Result(cmd.id, True, text=text, data=data)


def abilities(state: JobState, inputs: Inputs, ask: protocol.AbilitiesAsk) -> protocol.AbilitiesAnswer:
    """For screen page `d`: boards and host as the agent sees them, then the training, then its speed curve."""
    boards = capability.table(msgspec.structs.replace(inputs.readings, devices=inputs.devices))
    rows = [protocol.Ability(x.device, x.aspect, capability.SAYS[x.support], x.why, x.fix) for x in boards]
    for own in capabilities.of_training(state, inputs):
        why, support = words(own.why, inputs.now_s), capability.SAYS[own.support]
        rows.append(protocol.Ability("training", own.aspect, support, why, own.fix))
    return protocol.AbilitiesAnswer(ask.id, tuple(rows), tuple(curve_lines(state.curve) if state.curve else ()))
