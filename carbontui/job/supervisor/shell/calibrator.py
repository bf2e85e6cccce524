"""Calibration of a running job: drives the pure Calibration from the supervisor's loop, keeps and reuses its curve.

By itself it starts only inside the budget's slack and never under an override; a person's word, a foreign process or
the deadline end it at once, and what was learned so far is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carbontui.job.supervisor.core import problem
from carbontui.job.supervisor.core.control import FULL, Level
from carbontui.power import curve as curves
from carbontui.power.calibration import (
    Calibration,
    CalibrationInput,
    CalibrationSpec,
    Finished,
    GivenUp,
    Pause,
    Resume,
    SetLimit,
    Wait,
)
from carbontui.power.curve import Curve, Point
from carbontui.power.messages import Code, Outcome, Reading

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor

TAKES_S = (300.0, 900.0)
"""What a calibration takes: with steps all alike, and where one second's steps vary by a tenth."""
SLACK_S = 1800.0
"""By itself only with this much slack: a calibration costs about two minutes of flat-out work."""
WARM_S = 120.0
"""By itself only after this long at full: compilation and warm-up are over."""
LOWER = 1.03
"""Flat out above the limit found now by more than this: the curve was measured under a higher one."""
PASSING: frozenset[Code] = frozenset({"outside", "held", "foreign", "lost", "error"})
"""Refusals that say nothing of what these boards can do at another time."""


class Trial:
    """At most one calibration at a time; `level` is what control should ask of the job now."""

    def __init__(self, job: Supervisor) -> None:
        self._job = job
        self._running: Calibration | None = None
        self._warm_since_s: float | None = None
        self._tried = False
        self._looked = False
        self._asked_s = 0.0
        self._must_run = False
        self.level: Level | None = None
        self.text = ""
        self.curve: Curve | None = None

    # --- asking -----------------------------------------------------------------------------------------------

    def refusal(self) -> str:
        """Why no calibration can start now; '' when it can."""
        job = self._job
        if self._running is not None:
            return f"a calibration is running ({self.text})"
        if job.clock.replay:
            return "a replay cannot be calibrated: its watts are those of a model or of another time"
        if not job.devices:
            return "there is no GPU to calibrate on"
        if not job.server.ranks:
            return "no training step has been seen yet"
        if job.overrides.current is not None:
            return f"the job is under an override of {job.overrides.current.by}; clear it first: carbontui resume"
        if job.decision.state not in ("running", "throttled"):
            return f"the job is {job.decision.state}"
        foreign = [pid for reading in job.devices for pid in reading.foreign_pids]
        if foreign:
            return f"other processes use its GPU (pid {foreign[0]}): what they do would be measured too"
        if any(reading.mig for reading in job.devices):
            return "its GPU is shared by MIG slices: what they do would be measured too"
        if self._must_run:
            return "no slack is left before the deadline; give it some: carbontui budget 1.5x"
        return ""

    def start(self, mono_s: float, by: str) -> str:
        """Begin; returns why not, or ''."""
        why = self.refusal()
        if why:
            return why
        job, devices = self._job, self._job.devices
        bad = next((r.caps["limit"] for r in devices if "limit" in r.caps and r.caps["limit"].support != "yes"), None)
        lows = [reading.limit_min_w for reading in devices if reading.limit_min_w is not None]
        founds = [reading.limit_found_w for reading in devices if reading.limit_found_w is not None]
        self._running = Calibration(
            CalibrationSpec(
                gpu=devices[0].name,
                gpus=len(devices),
                fingerprint=self._fingerprint(),
                can_cap=job.options.cap and bad is None and len(lows) == len(founds) == len(devices),
                limit_min_w=max(lows, default=None),
                limit_found_w=min(founds, default=None),
                simulated=any(reading.simulated for reading in devices),
                why_not_cap="--no-cap" if not job.options.cap else bad.why if bad else "",
            )
        )
        self.level, self.text, self._tried, self._asked_s = FULL, "starting", True, mono_s
        job.event("calibration", by=by, action="start")
        job.log(f"calibration started by {by}")
        return ""

    # --- the loop ---------------------------------------------------------------------------------------------

    def tick(self, now_s: float, mono_s: float, *, must_run: bool) -> None:
        """Once per tick of the supervisor, before it decides."""
        self._must_run = must_run
        try:
            self._advance(now_s, mono_s, must_run)
        except Exception as error:
            # a measurement must never leave the job at one of its own levels
            self._tried = True
            self._end(f"calibration given up: {type(error).__name__}: {error}")

    def _advance(self, now_s: float, mono_s: float, must_run: bool) -> None:
        if self._running is None:
            self._reuse()
            self._by_itself(now_s, mono_s, must_run)
            return
        action = self._running.next(self._observe(mono_s, must_run))
        if isinstance(action, SetLimit):
            watts = action.watts_per_gpu
            self._asked_s = mono_s
            self.level = FULL if watts is None else Level(f"cap {watts:.0f} W", "cap", cap_w=watts)
        elif isinstance(action, Pause):
            self.level = Level("pause", "pause", speed=0.0)
        elif isinstance(action, Resume):
            self.level = FULL
        elif isinstance(action, Wait):
            self.text = f"{action.text}, {action.share:.0%} done"
        elif isinstance(action, Finished):
            self._finish(action.curve)
        elif isinstance(action, GivenUp):
            self._end(f"calibration given up: {action.why}")

    def _observe(self, mono_s: float, must_run: bool) -> CalibrationInput:
        job = self._job
        leader = next((peer for peer in job.server.ranks if peer.hello and peer.hello.rank == 0), None)
        limits = [limit for reading in job.devices if (limit := in_force_w(reading)) is not None]
        until = (job.books.meter.counted_until_s(reading.uuid) for reading in job.devices)
        counted = [moment for moment in until if moment is not None]
        refused = interrupted = ""
        if self.level is not None and self.level.kind == "cap" and mono_s - self._asked_s > 1.0:
            outcomes = [job.agent.outcomes[r.uuid] for r in job.devices if r.uuid in job.agent.outcomes]
            interrupted, refused = failures(outcomes)
        return CalibrationInput(
            mono_s=mono_s,
            wall_s=job.clock.now(),
            step=leader.obs.step if leader and leader.obs else 0,
            timed=leader.timed if leader else None,
            energy_j=sum(job.books.meter.joules(reading.uuid) for reading in job.devices),
            energy_mono_s=min(counted, default=mono_s),
            limit_w=min(limits, default=None),
            paused=job.decision.state == "paused",
            disturbed=self._disturbance(must_run, connected=leader is not None) or interrupted,
            refused=refused,
        )

    def _disturbance(self, must_run: bool, *, connected: bool) -> str:
        job = self._job
        if job.overrides.current is not None:
            return f"{job.overrides.current.mode} by {job.overrides.current.by}"
        if must_run:
            return "no slack is left before the deadline"
        if not connected:
            return "the training loop has disconnected"
        if job.unseen or any(reading.lost for reading in job.devices):
            return "a GPU was lost"
        if any(reading.foreign_pids for reading in job.devices):
            return "another process uses the GPU"
        return ""

    def _by_itself(self, now_s: float, mono_s: float, must_run: bool) -> None:
        job = self._job
        plain = job.decision.state == "running" and bool(job.server.ranks) and job.control.limit_w is None
        if not plain:
            self._warm_since_s = None
            return
        if self._warm_since_s is None:
            self._warm_since_s = mono_s
        # a curve that knows no caps comes from a time when none could be set
        known = self.curve is not None and not self.curve.note
        if self._tried or known or must_run or mono_s - self._warm_since_s < WARM_S:
            return
        left, deadline = job.progress.left_s, job.deadline_s()
        if left is None or deadline is None or deadline - now_s - left < SLACK_S:
            return
        if self.refusal() or any(r.caps.get("limit", None) is None for r in job.devices):
            return
        if job.options.cap and all(reading.caps["limit"].support == "yes" for reading in job.devices):
            self.start(mono_s, "itself, inside the budget's slack")

    # --- what it found ----------------------------------------------------------------------------------------

    def _finish(self, curve: Curve) -> None:
        try:
            where = str(curves.save(curve))
        except OSError as error:
            where = f"not kept: {error}"
        self._use(curve)
        self._job.event("calibration", action="finished", levels=len(curve.levels), file=where)
        self._end(f"calibrated: {len(curve.levels)} useful levels ({where})")

    def _end(self, text: str) -> None:
        self._running = self.level = None
        self.text = text
        self._job.log(text)
        self._job.event("calibration", action="ended", text=text)
        self._job.planner.surprise(text)

    def _use(self, curve: Curve) -> None:
        self.curve = curve
        self._job.caps = tuple(
            problem.Cap(point.cap_w, point.power_w, point.speed)
            for point in curve.levels
            if point.kind == "cap" and point.cap_w is not None
        )

    def _reuse(self) -> None:
        """A curve of this script on these boards from an earlier job or supervisor."""
        job = self._job
        if self._looked or not job.devices:
            return
        self._looked = True
        if job.clock.replay or not job.options.cap:
            return
        found = curves.load(job.devices[0].name, len(job.devices), self._fingerprint())
        tops = [reading.limit_found_w for reading in job.devices if reading.limit_found_w is not None]
        drawn = next((p.power_w for p in found.points if p.kind == "full"), 0.0) / found.gpus if found else 0.0
        if tops and drawn > LOWER * min(tops):
            job.log(
                f"the speed curve of an earlier run is of {drawn:.0f} W flat out; {min(tops):.0f} W are allowed now"
            )
            return
        low = max((reading.limit_min_w or 0.0 for reading in job.devices), default=0.0)
        if found is not None and found.simulated == job.devices[0].simulated:
            kept = tuple(point for point in found.levels if point.cap_w is None or point.cap_w >= low)
            self._use(msgspec.structs.replace(found, levels=kept))
            job.log(f"speed curve of an earlier run reused: {len(kept)} levels")
            job.planner.surprise("a speed curve was found")

    def _fingerprint(self) -> str:
        return curves.fingerprint(self._job.options.argv, Path(self._job.options.cwd))

    def table(self) -> str:
        """The curve for people, or ''."""
        curve = self.curve
        if curve is None:
            return ""
        lines = [f"{curve.gpu} x {curve.gpus}: {curve.rate_steps_per_s:.3g} steps/s flat out"]
        lines += [f"  {_line(point)}" for point in curve.points]
        if curve.parked_w is not None:
            lines.append(f"  parked      {curve.parked_w:7.1f} W ±{2 * (curve.parked_se or 0):.1f}")
        if curve.pause_s is not None and curve.resume_s is not None:
            lines.append(f"  pause {curve.pause_s:.1f} s, resume {curve.resume_s:.1f} s")
        if curve.simulated:
            lines.append("  SIMULATED GPU: a model, not a measurement")
        return "\n".join(lines + ([f"  {curve.note}"] if curve.note else []))


def failures(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """(what passes and spoils this measurement, why no cap will ever be taken here); '' where neither is so."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    passing = [outcome.text or outcome.code for outcome in failed if outcome.code in PASSING]
    lasting = [outcome.text or outcome.code for outcome in failed if outcome.code not in PASSING]
    return next(iter(passing), ""), next(iter(lasting), "")


def in_force_w(reading: Reading) -> float | None:
    """The cap that holds a board now; 0 while one stands whose effect has not been seen: not to be measured yet."""
    if reading.proving:
        return 0.0
    return reading.limit_w if reading.clocks_w is None else reading.clocks_w


def _line(point: Point) -> str:
    name = "full" if point.cap_w is None else f"cap {point.cap_w:.0f} W"
    joules = "" if point.j_per_step is None else f"  {point.j_per_step:.4g} J/step"
    watts, speed = 2 * point.power_se, 200 * point.speed_se
    return f"{name:<11} {point.power_w:7.1f} W ±{watts:.1f}  speed {100 * point.speed:5.1f} % ±{speed:.1f}{joules}"
