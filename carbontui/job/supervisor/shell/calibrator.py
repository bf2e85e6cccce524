"""Calibration of a running job: drives the pure Calibration from the supervisor's loop, keeps and reuses its curve.

It starts automatically only within the budget's slack and never under an override; a user's command, a foreign process
or the deadline end it at once, and the measurements so far are dropped.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from carbontui.job.supervisor.core.advance import CalibrationSaid, CurveMeasured
from carbontui.job.supervisor.core.rules import calibration
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import FULL, PAUSE, Level, cap
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.disk import Recorder
from carbontui.job.supervisor.shell.door import Door
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.power.curves import calibration as power
from carbontui.power.curves import curve as curves
from carbontui.power.curves import files, public
from carbontui.protocol import Statement, statement

ANSWERED_S = 1.0
"""A board has this long to answer a new limit before its last outcome is taken as the answer."""


@dataclass(eq=False)
class Calibrator:
    """At most one calibration at a time; the level it asks for and its progress go through the door."""

    door: Door
    accounting: Accounting
    recorder: Recorder
    replanner: Replanner
    _running: power.Calibration | None = None
    _warm_since_s: float | None = None
    _tried: bool = False
    _polled: bool = False
    _assumed: bool = False
    _brought: curves.Curve | None = None
    _asked_s: float = 0.0

    def start(self, by: str, inputs: Inputs) -> None:
        """Start a calibration. The caller has checked `calibration.refusal`."""
        state = self.door.state
        self._running = power.Calibration(calibration.spec_of(state, inputs, _fingerprint(state)))
        self._tried, self._asked_s = True, inputs.mono_s
        self._say(FULL, statement("calibration_starts"))
        self.recorder.event("calibration", by=by, action="start")
        self.recorder.say(statement("calibration_begun", by=by))

    def tick(self, inputs: Inputs) -> None:
        """Once per tick of the supervisor, before it decides."""
        try:
            self._advance(inputs)
        except Exception as error:
            # a failed measurement must never leave the job at one of its levels
            self._tried = True
            self._end(statement("calibration_given_up", why=f"{type(error).__name__}: {error}"))

    def _advance(self, inputs: Inputs) -> None:
        if self._running is None:
            self._reuse(inputs)
            self._assume(inputs)
            self._by_itself(inputs)
            return
        match self._running.next(self._observe(inputs)):
            case power.TryLimit(watts_per_gpu=watts):
                self._asked_s = inputs.mono_s
                self._ask(FULL if watts is None else cap(watts))
            case power.Pause():
                self._ask(PAUSE)
            case power.Resume():
                self._ask(FULL)
            case power.Wait(text=text, share=share):
                self._say(self.door.state.calibrating.level, statement("calibration_measures", text=text, share=share))
            case power.Finished(curve=curve):
                self._finish(curve)
            case power.GivenUp(why=why):
                self._end(statement("calibration_given_up", why=why))

    def _observe(self, inputs: Inputs) -> power.CalibrationInput:
        state, leader, meter = self.door.state, inputs.leader, self.accounting.meter
        limits = [limit for reading in inputs.devices if (limit := calibration.in_force_w(reading)) is not None]
        uuids = [reading.uuid for reading in inputs.devices]
        refused = interrupted = ""
        level = state.calibrating.level
        if level is not None and level.kind == "cap" and inputs.mono_s - self._asked_s > ANSWERED_S:
            answered = inputs.limits.outcomes
            interrupted, refused = calibration.failures(
                [answered[r.uuid] for r in inputs.devices if r.uuid in answered]
            )
        disturbed = calibration.disturbance(state, inputs)
        return power.CalibrationInput(
            mono_s=inputs.mono_s,
            wall_s=inputs.now_s,
            step=leader.step if leader else 0,
            timed=leader.timed_mono if leader else None,
            energy_j=sum(map(meter.joules, uuids)),
            energy_mono_s=meter.counted_until_s(uuids, inputs.mono_s),
            limit_w=min(limits, default=None),
            paused=state.decision.state == "paused",
            disturbed=self.recorder.words(disturbed) if disturbed else interrupted,
            refused=refused,
        )

    def _by_itself(self, inputs: Inputs) -> None:
        state = self.door.state
        if not calibration.runs_warm(state, inputs):
            self._warm_since_s = None
            return
        if self._warm_since_s is None:
            self._warm_since_s = inputs.mono_s
        if not self._tried and calibration.worth_it(state, inputs, inputs.mono_s - self._warm_since_s):
            self.start("itself, inside the budget's slack", inputs)

    # --- results ----------------------------------------------------------------------------------------------

    def _finish(self, curve: curves.Curve) -> None:
        try:
            where: Statement | str = str(files.save(curve))
        except OSError as error:
            where = statement("not_kept", error=str(error))
        self._take(curve)
        self.recorder.event("calibration", action="finished", levels=len(curve.levels), file=where)
        self._end(statement("calibrated", levels=len(curve.levels), where=where))

    def _ask(self, level: Level) -> None:
        self._say(level, self.door.state.calibrating.said)

    def _say(self, level: Level | None, said: Statement | None) -> None:
        self.door.dispatch(CalibrationSaid(level, said))

    def _take(self, curve: curves.Curve, why: Statement | None = None) -> None:
        self.door.dispatch(CurveMeasured(curve, why))

    def _end(self, said: Statement) -> None:
        self._running = None
        self._say(None, said)
        self.recorder.say(said)
        self.recorder.event("calibration", action="ended", text=said)
        self.replanner.request(said)

    def _reuse(self, inputs: Inputs) -> None:
        """Reuse a curve of this script on these boards from an earlier job or supervisor."""
        state, devices = self.door.state, inputs.devices
        if self._polled or not devices:
            return
        self._polled = True
        if state.clock.replay or not state.spec.cap:
            return
        found = files.load(devices[0].name, len(devices), _fingerprint(state))
        if found is None:
            return
        if found.basis != "measured":
            self._brought = found
            return
        if higher := calibration.too_high_w(found, inputs):
            drawn, allowed = higher
            self.recorder.say(statement("curve_too_high", drawn=drawn, allowed=allowed))
            return
        if found.simulated == devices[0].simulated:
            kept = calibration.usable_levels(found, inputs)
            self.recorder.say(statement("curve_reused", levels=len(kept)))
            self._take(msgspec.structs.replace(found, levels=kept), statement("cause_curve_found"))

    def _assume(self, inputs: Inputs) -> None:
        """Until this job is calibrated, use an imported curve, else one from public measurements."""
        state, devices = self.door.state, inputs.devices
        if state.curve is not None or self._assumed or not self._polled:
            return
        if state.spec.simulated is not None and state.spec.simulated.points and state.spec.cap:
            self._assumed = True
            self._take(calibration.simulated_curve(state, inputs), statement("cause_curve_simulated"))
            return
        full_w = calibration.drawn_w(state, inputs)
        if full_w is None:
            return
        self._assumed = True
        if self._brought is not None:
            known: curves.Curve | None = curves.rescaled(self._brought, full_w)
        else:
            known = public.curve(
                devices[0].name,
                len(devices),
                full_w,
                limit_min_w=max((reading.limit_min_w or 0.0 for reading in devices), default=0.0),
                limit_found_w=min(reading.limit_found_w or 0.0 for reading in devices),
                measured_s=inputs.now_s,
                mark=_fingerprint(state),
            )
        if known is None:
            return
        kept = calibration.usable_levels(known, inputs)
        said = statement("curve_assumed_imported" if self._brought else "curve_assumed_public", levels=len(kept))
        self.recorder.say(said)
        self._take(msgspec.structs.replace(known, levels=kept), statement("cause_curve_assumed"))


def _fingerprint(state: JobState) -> str:
    return files.fingerprint(state.spec.argv, Path(state.spec.cwd))
