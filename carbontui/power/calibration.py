"""Calibration on the running job, as a pure state machine that the supervisor drives about once a second.

    calibration = Calibration(spec)
    action = calibration.next(observation)    # until action is Finished or GivenUp

Five caps below the watts that the job draws, each settled and measured, with a visit to full between any two of them:
a job whose speed drifts (longer batches, a warming board) is compared with itself at about the same time. A window
grows until the rate is known to RATE_SE, at most to `measure_max_s`. At the end a pause gives the parked watts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from carbontui.power.curve import Curve, Point, fitted, useful

SHARES = (0.86, 0.72, 0.60, 0.48, 0.38)
"""Caps as shares of the watts drawn at full."""
RATE_SE = 0.006
LIMIT_TOLERANCE_W = 2.0
PATIENCE_S = 30.0
"""For a pause to be acknowledged, or for the first step after it."""


class CalibrationSpec(Struct, frozen=True, kw_only=True):
    """What may be done. Watts of limits are per GPU."""

    gpu: str
    gpus: int
    fingerprint: str
    can_cap: bool
    limit_min_w: float | None = None
    limit_found_w: float | None = None
    can_pause: bool = True
    simulated: bool = False
    settle_s: float = 6.0
    measure_s: float = 15.0
    measure_max_s: float = 60.0
    why_not_cap: str = ""


class Observation(Struct, frozen=True, kw_only=True):
    """What is so now."""

    mono_s: float
    wall_s: float
    step: int
    """Steps done, as last told by the client."""
    step_mono_s: float
    """When the client said so."""
    energy_j: float
    """Meter's joules of the job's GPUs so far."""
    limit_w: float | None = None
    """The lowest limit among the job's GPUs."""
    paused: bool = False
    disturbed: str = ""
    """Why this is no time to measure (an override, a foreign process...): gives up."""
    refused: str = ""
    """Why the last limit could not be set."""


class SetLimit(Struct, frozen=True):
    watts_per_gpu: float | None


class Pause(Struct, frozen=True):
    pass


class Resume(Struct, frozen=True):
    pass


class Wait(Struct, frozen=True):
    """Nothing to do; `text` says what is being measured, `share` how far it is (0..1)."""

    text: str
    share: float


class Finished(Struct, frozen=True):
    curve: Curve


class GivenUp(Struct, frozen=True):
    """Give limits back, resume; nothing was learned."""

    why: str


Action = SetLimit | Pause | Resume | Wait | Finished | GivenUp


class _Visit(Struct):
    """One window at one level."""

    cap_w: float | None
    kind: Literal["full", "cap", "pause"]
    middle_s: float
    rate: float
    rate_se: float
    power_w: float
    power_se: float


class Calibration:
    """One run over all levels. Deterministic: the same observations give the same actions."""

    def __init__(self, spec: CalibrationSpec) -> None:
        self.spec = spec
        self._todo: list[float | None] = [None]
        self._visits: list[_Visit] = []
        self._window: list[Observation] = []
        self._phase: Literal["ask", "settle", "measure", "pausing", "parked", "resuming"] = "ask"
        self._since_s = 0.0
        self._caps_chosen = False
        self._refused = ""
        self._step_at_pause = 0
        self._pause_s: float | None = None
        self._resume_s: float | None = None
        self._ended = False

    def next(self, now: Observation) -> Action:
        """What to do now. After Finished or GivenUp the limit found must be given back and the job resumed."""
        if now.disturbed:
            return GivenUp(now.disturbed)
        if self._phase == "ask":
            return self._ask(now)
        if self._phase == "settle":
            return self._settle(now)
        if self._phase == "measure":
            return self._measure(now)
        return self._park(now)

    # --- running levels ---------------------------------------------------------------------------------------

    def _ask(self, now: Observation) -> Action:
        if not self._todo:
            return self._end_of_levels(now)
        self._enter("settle", now)
        return SetLimit(self._todo[0])

    def _settle(self, now: Observation) -> Action:
        cap = self._todo[0]
        if cap is not None and now.refused:
            # no permission after all: what can be known without caps is still worth knowing
            self._refused = now.refused
            self._todo.clear()
            self._phase = "ask"
            return SetLimit(None)
        wanted = cap if cap is not None else self.spec.limit_found_w
        stands = wanted is None or now.limit_w is None or abs(now.limit_w - wanted) <= LIMIT_TOLERANCE_W
        if not stands and now.mono_s - self._since_s > PATIENCE_S:
            return GivenUp(f"the limit does not stay at {wanted:.0f} W")
        if not stands or now.mono_s - self._since_s < self.spec.settle_s:
            return self._wait("settling")
        self._enter("measure", now)
        return self._wait("measuring")

    def _measure(self, now: Observation) -> Action:
        self._window.append(now)
        length = now.mono_s - self._since_s
        if length < self.spec.measure_s:
            return self._wait("measuring")
        rate, rate_se = slope([(o.step_mono_s, float(o.step)) for o in self._window])
        if rate <= 0 and length >= self.spec.measure_max_s:
            return GivenUp(f"no step in {length:.0f} s")
        if (rate <= 0 or rate_se > RATE_SE * rate) and length < self.spec.measure_max_s:
            return self._wait("measuring")
        cap = self._todo.pop(0)
        self._visits.append(self._visit(cap, "full" if cap is None else "cap", rate, rate_se))
        if not self._caps_chosen:
            self._choose_caps()
        self._phase = "ask"
        return self._ask(now)

    def _visit(self, cap: float | None, kind: Literal["full", "cap", "pause"], rate: float, rate_se: float) -> _Visit:
        first, last = self._window[0], self._window[-1]
        power = (last.energy_j - first.energy_j) / (last.mono_s - first.mono_s)
        middle = (first.mono_s + last.mono_s) / 2
        return _Visit(cap, kind, middle, rate, rate_se, power, spread(self._window))

    def _choose_caps(self) -> None:
        self._caps_chosen = True
        spec = self.spec
        if not spec.can_cap or spec.limit_min_w is None or spec.limit_found_w is None:
            self._refused = spec.why_not_cap or "limits cannot be set here"
            return
        drawn = self._visits[0].power_w / spec.gpus
        caps: list[float] = []
        for share in SHARES:
            cap = float(max(round(share * drawn), math.ceil(spec.limit_min_w)))
            if cap < min(drawn, spec.limit_found_w) * 0.97 and cap not in caps:
                caps.append(cap)
        for cap in caps:
            self._todo += [cap, None]

    # --- parked -----------------------------------------------------------------------------------------------

    def _end_of_levels(self, now: Observation) -> Action:
        if not self.spec.can_pause:
            return Finished(self._curve(now))
        self._enter("pausing", now)
        return Pause()

    def _park(self, now: Observation) -> Action:
        waited = now.mono_s - self._since_s
        if self._phase == "pausing":
            if now.paused:
                self._pause_s, self._step_at_pause = waited, now.step
                self._enter("parked", now)
            elif waited > PATIENCE_S:
                return GivenUp("the pause was not acknowledged")
            return self._wait("pausing")
        if self._phase == "parked":
            if waited >= self.spec.settle_s:
                self._window.append(now)
            if waited < self.spec.settle_s + self.spec.measure_s:
                return self._wait("measuring parked watts")
            self._visits.append(self._visit(None, "pause", 0.0, 0.0))
            self._enter("resuming", now)
            return Resume()
        if now.step > self._step_at_pause:
            self._resume_s = waited
            return Finished(self._curve(now))
        if waited > PATIENCE_S:
            return GivenUp("no step after the pause")
        return self._wait("resuming")

    # --- the result -------------------------------------------------------------------------------------------

    def _curve(self, now: Observation) -> Curve:
        fulls = [visit for visit in self._visits if visit.kind == "full"]
        parked = next((visit for visit in self._visits if visit.kind == "pause"), None)
        points = [self._full(fulls)]
        for visit in self._visits:
            if visit.kind == "cap":
                reference, reference_se = _interpolate(fulls, visit.middle_s)
                speed = visit.rate / reference
                error = speed * math.hypot(visit.rate_se / visit.rate, reference_se / reference)
                points.append(_point(visit, speed, error))
        fit = fitted(points)
        note = f"without caps: {self._refused}" if self._refused else ""
        return Curve(
            gpu=self.spec.gpu,
            gpus=self.spec.gpus,
            fingerprint=self.spec.fingerprint,
            measured_s=now.wall_s,
            simulated=self.spec.simulated,
            rate_steps_per_s=sum(visit.rate for visit in fulls) / len(fulls),
            points=fit,
            levels=useful(fit, parked.power_w if parked else None),
            parked_w=parked.power_w if parked else None,
            parked_se=parked.power_se if parked else None,
            pause_s=self._pause_s,
            resume_s=self._resume_s,
            note=note,
        )

    def _full(self, fulls: list[_Visit]) -> Point:
        count = len(fulls)
        power = sum(visit.power_w for visit in fulls) / count
        error = max(visit.power_se for visit in fulls) / math.sqrt(count)
        rate = sum(visit.rate for visit in fulls) / count
        rate_se = max(visit.rate_se for visit in fulls) / math.sqrt(count)
        return Point(
            kind="full",
            cap_w=None,
            power_w=power,
            power_se=error,
            speed=1.0,
            speed_se=rate_se / rate,
            j_per_step=power / rate,
        )

    def _wait(self, text: str) -> Wait:
        level = "full" if not self._todo or self._todo[0] is None else f"{self._todo[0]:.0f} W"
        done = len(self._visits)
        total = max(done + len(self._todo) + (1 if self.spec.can_pause else 0), 2 if self._caps_chosen else 12)
        return Wait(f"{text} {level}" if self._todo else text, done / total)

    def _enter(self, phase: Literal["settle", "measure", "pausing", "parked", "resuming"], now: Observation) -> None:
        self._phase, self._since_s, self._window = phase, now.mono_s, [now] if phase == "measure" else []


def _point(visit: _Visit, speed: float, error: float) -> Point:
    return Point(
        kind="cap",
        cap_w=visit.cap_w,
        power_w=visit.power_w,
        power_se=visit.power_se,
        speed=speed,
        speed_se=error,
        j_per_step=visit.power_w / visit.rate,
    )


def _interpolate(fulls: Sequence[_Visit], at_s: float) -> tuple[float, float]:
    """Rate at full and its error at a moment between two visits to full."""
    before = [visit for visit in fulls if visit.middle_s <= at_s]
    after = [visit for visit in fulls if visit.middle_s > at_s]
    if not before or not after:
        only = (before or after)[-1 if before else 0]
        return only.rate, only.rate_se
    a, b = before[-1], after[0]
    share = (at_s - a.middle_s) / (b.middle_s - a.middle_s)
    error = math.hypot((1 - share) * a.rate_se, share * b.rate_se)
    return a.rate + share * (b.rate - a.rate), error


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least-squares slope and its standard error: steps are whole, so two end points alone would be off by a step."""
    points = list(dict.fromkeys(points))
    n = len(points)
    if n < 3:
        return 0.0, math.inf
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    sxx = sum((x - mean_x) ** 2 for x, _ in points)
    if sxx == 0:
        return 0.0, math.inf
    found = sum((x - mean_x) * (y - mean_y) for x, y in points) / sxx
    residual = sum((y - mean_y - found * (x - mean_x)) ** 2 for x, y in points) / (n - 2)
    # a whole step is uncertain by 1/sqrt(12) even when the points happen to lie on a line
    return found, math.sqrt(max(residual, 1 / 12) / sxx)


def spread(window: Sequence[Observation]) -> float:
    """Standard error of the mean watts of a window: from its quarters, and the counter's tick at both ends."""
    first, last = window[0], window[-1]
    length = last.mono_s - first.mono_s
    mean = (last.energy_j - first.energy_j) / length
    tick = 0.1 * mean / length
    parts: list[float] = []
    start = first
    for observation in window[1:]:
        if observation.mono_s - start.mono_s >= length / 4.001:
            parts.append((observation.energy_j - start.energy_j) / (observation.mono_s - start.mono_s))
            start = observation
    if len(parts) < 2:
        return tick
    middle = sum(parts) / len(parts)
    variance = sum((part - middle) ** 2 for part in parts) / (len(parts) - 1)
    return math.hypot(math.sqrt(variance / len(parts)), tick)
