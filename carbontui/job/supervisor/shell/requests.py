"""What viewers ask and command: the supervisor's side of every request of job.sock."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carbontui import protocol, units
from carbontui.job import budget as budgets
from carbontui.job import runlog, store
from carbontui.job.supervisor.core import capabilities as abilities
from carbontui.job.supervisor.core import override as overrides
from carbontui.job.supervisor.core import status as picture
from carbontui.job.supervisor.record import handover as memory
from carbontui.job.supervisor.record.history import History, HistoryError
from carbontui.job.supervisor.shell.calibrator import TAKES_S
from carbontui.job.supervisor.shell.server import Peer, Sections
from carbontui.power.messages import Capability

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor

ACK_WAIT_S = 2.0
ACK_LOOK_S = 0.004
SAMPLE_WAIT_S = 0.3
LOSS_POINTS = 240


class ViewerDesk:
    """Answers for viewers. Never blocks the supervisor: what takes time is awaited in the viewer's own task."""

    def __init__(self, job: Supervisor) -> None:
        self._job = job
        self._history = History(job.journal)
        self._sections: Sections | None = None
        self._band: tuple[object, protocol.Band | None] = (None, None)
        self._losses: list[float] = []
        self._loss_every = 1
        self._loss_seen = 0
        self.last_loss: float | None = None

    # --- the server's questions ---

    def override_gen(self) -> int:
        return self._job.overrides.gen

    def rank_changed(self, peer: Peer) -> None:
        with self._job.faults.confined("hearing a rank"):
            self._job.hands.rank_changed(peer)

    def sections(self) -> Sections:
        """What is shown now; equal parts keep their identity, so that deltas stay small."""
        job = self._job
        status = job.status or job.teller.describe(job.clock.now())
        if self._band[0] is not job.outlook:
            self._band = (job.outlook, picture.band(job.outlook) if job.outlook else None)
        self._note_loss(status)
        series = protocol.Series(
            now=units.iso(job.clock.now()),
            watts=job.books.columns.watts(),
            intensity=self._band[1],
            loss=tuple(self._losses),
            replay_speed=job.clock.speed if job.clock.replay else None,
        )
        plan = job.planner.plan.view if job.planner.plan else None
        return Sections(status, series, plan, job.planner.frontier)

    def _note_loss(self, status: protocol.Status) -> None:
        if status.loss is None or status.loss == self.last_loss:
            return
        self.last_loss = status.loss
        self._loss_seen += 1
        if self._loss_seen % self._loss_every == 0:
            self._losses.append(round(status.loss, 5))
        if len(self._losses) > LOSS_POINTS:
            del self._losses[1::2]
            self._loss_every *= 2

    async def status_now(self) -> protocol.Status:
        """A fresh sample, within 300 ms."""
        await self._job.agent.refresh(SAMPLE_WAIT_S)
        return self._job.teller.describe(self._job.clock.now())

    async def preview(self, ask: protocol.Preview) -> protocol.Previewed:
        return await self._job.planner.preview(ask)

    def jobs(self) -> tuple[protocol.Status, ...]:
        return tuple(job.status() for job in store.jobs()[:50])

    def abilities(self, ask: protocol.AbilitiesAsk) -> protocol.AbilitiesAnswer:
        return abilities.answer(self._job, ask)

    def read_log(self, ask: protocol.LogRead) -> protocol.LogAnswer:
        return runlog.read(Path(self._job.options.log), ask)

    async def history(self, ask: protocol.HistoryAsk) -> protocol.HistoryAnswer | protocol.Refused:
        """Mean watts of the last `span` seconds in `buckets` columns, from the journal."""
        job = self._job
        start, step = job.clock.now() - ask.span, ask.span / ask.buckets
        try:
            past = await self._history.past(start, ask.span, ask.buckets)
        except HistoryError as error:
            job.log(str(error))
            return protocol.Refused(str(error), ask.id)
        watts = protocol.Watts(units.iso(start), step, past.watts)
        values = tuple(
            job.outlook.value_at(start + (i + 0.5) * step) if job.outlook else None for i in range(ask.buckets)
        )
        return protocol.HistoryAnswer(ask.id, watts, level=past.levels, intensity_g=values)

    # --- commands ---

    async def command(self, peer: Peer, cmd: protocol.Cmd) -> protocol.Result:
        """Carry out one command; every one is journaled with who asked."""
        job = self._job
        by = (peer.hello.by if peer.hello else "") or f"uid {os.getuid()}"
        if job.decision.state not in protocol.LIVE_STATES:
            return _no(cmd, f"job {job.options.job} is over ({job.decision.state})", 3)
        try:
            if cmd.verb == "stop":
                job.stop(now=bool(cmd.args.get("now")), by=by)
                return protocol.Result(cmd.id, True, text="stopping: INT, then TERM, then KILL")
            if cmd.verb == "budget":
                return self._budget(cmd, by)
            if cmd.verb == "calibrate":
                return self._calibrate(cmd, by)
            return await self._override(cmd, by)
        except (overrides.OverrideError, ValueError) as error:
            return _no(cmd, str(error), 2)

    def _budget(self, cmd: protocol.Cmd, by: str) -> protocol.Result:
        job = self._job
        text = str(cmd.args.get("budget", ""))
        job.budget = budgets.parse(text, job.clock.now())
        job.event("budget", by=by, budget=text)
        job.planner.surprise(f"budget {text} by {by}")
        memory.keep(job)
        job.wake()
        deadline = job.deadline_s()
        now = job.clock.now()
        # in the supervisor's clock, which need not be that of who asks: named, so that a mistake is seen
        when = "" if deadline is None else f", until {units.fmt_named_clock(deadline, now)}"
        left = job.progress.left_s
        if deadline is not None and left is not None and now + left > deadline + job.planner.late_tolerance_s():
            when += f"; it cannot be met: flat out the work ends {units.fmt_clock(now + left, now)}"
        return protocol.Result(cmd.id, True, text=f"budget {text}{when}")

    def _calibrate(self, cmd: protocol.Cmd, by: str) -> protocol.Result:
        trial = self._job.trial
        if cmd.args.get("show"):
            if trial.curve is None:
                return _no(cmd, f"not calibrated yet{f': {trial.text}' if trial.text else ''}", 3)
            return protocol.Result(cmd.id, True, text=trial.table(), data=msgspec.to_builtins(trial.curve))
        why = trial.start(time.monotonic(), by)
        if why:
            return _no(cmd, why, 1)
        self._job.wake()
        low, high = (units.fmt_duration(seconds) for seconds in TAKES_S)
        text = f"calibrating: {low}, up to {high} where steps vary much; then: --show"
        return protocol.Result(cmd.id, True, text=text)

    async def _override(self, cmd: protocol.Cmd, by: str) -> protocol.Result:
        job = self._job
        value = cmd.args.get("value_w")
        if cmd.verb == "cap":
            due = time.monotonic() + ACK_WAIT_S
            while not job.agent.readings.mono_s and time.monotonic() < due:
                await asyncio.sleep(ACK_LOOK_S)  # the first look at the boards is on its way
            refusal = self._cannot_cap(None if value is None else float(value))
            if refusal:
                return _no(cmd, refusal, 4)
        job.overrides = overrides.apply(
            job.overrides,
            cmd.verb,
            by=by,
            expected_gen=cmd.override_gen,
            until_s=self._until(cmd),
            value_w=None if value is None else float(value),
        )
        job.event("override", verb=cmd.verb, by=by, until=cmd.args.get("until"), value_w=value, gen=job.overrides.gen)
        job.planner.surprise(f"{cmd.verb} by {by}")
        memory.keep(job)
        job.journal.commit()
        job.wake()
        if cmd.verb == "pause":
            return await self._await_pause(cmd)
        if cmd.verb == "cap" and value is not None:
            job.hands.insist(float(value))
            return await self._await_cap(cmd, float(value))
        text = {"resume": "back to the plan", "boost": "flat out"}[cmd.verb]
        return protocol.Result(cmd.id, True, text=text + self._until_words())

    def _until(self, cmd: protocol.Cmd) -> float | None:
        """`until` as epoch seconds of the job's clock; `for_s` counts from now. Raises OverrideError."""
        now = self._job.clock.now()
        if cmd.args.get("for_s") is not None:
            return now + float(cmd.args["for_s"])
        if cmd.args.get("until") is None:
            return None
        asked = budgets.parse_until(str(cmd.args["until"]), now)
        if not isinstance(asked, str):
            if asked <= now:
                raise overrides.OverrideError("that time is over already")
            return asked
        # a time at once: the plan is made anew around the override, and its next change would be the override's own
        change = self._job.planner.level_at(now)[1]
        if change is None:
            raise overrides.OverrideError("the plan has no next change; say --for 30m or --until 18:00")
        return change

    async def _await_pause(self, cmd: protocol.Cmd) -> protocol.Result:
        """'paused at step N' once every rank has acknowledged, or 'asked' after two seconds."""
        job = self._job
        due = time.monotonic() + ACK_WAIT_S
        while time.monotonic() < due:
            await asyncio.sleep(ACK_LOOK_S)
            state = job.decision.state
            if state in ("paused", "waiting", "unloaded"):
                how = "(SIGSTOP)" if job.control.freeze else f"at step {job.progress.step}"
                text = f"paused {how}" if state == "paused" else state
                return protocol.Result(cmd.id, True, text=text + self._until_words())
        why = f": {job.decision.reason.text}" if job.decision.reason.code == "no_client" else ""
        return protocol.Result(cmd.id, True, text=f"asked, no boundary yet{why}")

    def _until_words(self) -> str:
        """', until 18:00 CET' where the override in force has an end."""
        until = self._job.overrides.until_s
        if until is None:
            return ""
        return f", until {units.fmt_named_clock(until, self._job.clock.now())}"

    async def _await_cap(self, cmd: protocol.Cmd, watts: float) -> protocol.Result:
        """'capped' once the boards have taken it, why not where none did, or 'asked' after two seconds."""
        job = self._job
        asked = f"{watts:g} W per GPU"
        due = time.monotonic() + ACK_WAIT_S
        while time.monotonic() < due:
            await asyncio.sleep(ACK_LOOK_S)
            if job.decision.state in ("waiting", "unloaded"):
                return protocol.Result(cmd.id, True, text=f"asked for {asked}: set when it starts")
            if job.control.limit_w == watts and not job.hands.limiting:
                refused, why = job.hands.refused_cap()
                if refused is not None:
                    return protocol.Result(cmd.id, True, text=f"asked for {asked}, not capped: {why}")
                notes = [o.text for r in job.devices if (o := job.agent.outcomes.get(r.uuid)) and o.ok and o.text]
                told = f"asked for {asked}: {'; '.join(dict.fromkeys(notes))}" if notes else f"capped at {asked}"
                return protocol.Result(cmd.id, True, text=told + self._until_words())
        return protocol.Result(cmd.id, True, text=f"asked for {asked}; the driver has not answered yet")

    def _cannot_cap(self, value: float | None) -> str:
        """Why a cap cannot be set; '' when it can."""
        job = self._job
        if value is None:
            return "cap needs watts per GPU, like 300W"
        if not job.options.cap:
            return "caps are off for this job (--no-cap)"
        if not job.agent.readings.mono_s:
            return "the GPU driver has not answered yet; try again in a moment"
        if not job.devices:
            return "no GPU of this job has a power limit to set"
        for reading in job.devices:
            cap = reading.caps.get("limit", Capability("unknown"))
            if cap.support not in ("yes", "unknown"):
                return f"{reading.name}: {cap.why or cap.support}{'; ' + cap.fix if cap.fix else ''}"
            low, high, top = reading.limit_min_w, reading.limit_top_w or reading.limit_max_w, reading.limit_max_w
            if low is not None and value < low:
                return f"{value:g} W is below what {reading.name} takes; at least {low:g} W"
            if top is not None and value > top:
                return f"{value:g} W is above what {reading.name} takes; at most {top:g} W"
            if high is not None and value > high and not job.options.allow_raise:
                return f"{value:g} W is above the limit found ({high:g} W); carbontui run --allow-raise permits it"
        return ""

    def notices(self, now: float) -> list[str]:
        """What a person's override does to the budget, and the disk."""
        job = self._job
        found: list[str] = []
        left, deadline = job.progress.left_s, job.deadline_s()
        held = job.overrides.current
        if held is not None and held.mode == "pause" and left is not None and deadline is not None:
            latest, until = deadline - left, job.overrides.until_s
            if until is None and latest > now:
                found.append(f"paused beyond {units.fmt_clock(latest, now)} the budget becomes unreachable")
            elif until is None or until > latest:
                found.append("this pause makes the budget unreachable")
        try:
            folder = Path(job.options.log).parent
            disk = os.statvfs(folder)
            if disk.f_bavail * disk.f_frsize < 1 << 30:
                found.append(f"less than 1 GB is free where run.log lies ({folder})")
        except OSError:
            pass
        return found


def _no(cmd: protocol.Cmd, why: str, code: int) -> protocol.Result:
    return protocol.Result(cmd.id, False, error=why, exit_code=code)
