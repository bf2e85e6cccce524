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
SYSTEMATIC_SE = 0.004
"""What no window shows: the board's temperature lags its power by tens of seconds, and its leakage with it."""
LIMIT_TOLERANCE_W = 2.0
NO_WATTS = "watts could not be read"
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
    energy_mono_s: float
    """Until when they are counted: the meter's last look, up to a second ago."""
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
        self._walks: list[float] = []
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
        # the first window also learns how much this job's step times wander, which no later one may underrate
        if length < self.spec.measure_s * (1 if self._walks else 2):
            return self._wait("measuring")
        known = sum(self._walks) / len(self._walks) if self._walks else 0.0
        rate, rate_se, walk = slope([(o.step_mono_s, float(o.step)) for o in self._window], known)
        if rate <= 0 and length >= self.spec.measure_max_s:
            return GivenUp(f"no step in {length:.0f} s")
        if (rate <= 0 or rate_se > RATE_SE * rate) and length < self.spec.measure_max_s:
            return self._wait("measuring")
        if self._blind():
            return GivenUp(NO_WATTS)
        cap = self._todo.pop(0)
        self._walks.append(walk)
        self._visits.append(self._visit(cap, "full" if cap is None else "cap", rate, rate_se))
        if not self._caps_chosen:
            self._choose_caps()
        self._phase = "ask"
        return self._ask(now)

    def _blind(self) -> bool:
        """Whether the meter counted for less than half of the window: a hung driver, a lost board."""
        first, last = self._window[0], self._window[-1]
        return last.energy_mono_s - first.energy_mono_s < 0.5 * (last.mono_s - first.mono_s)

    def _visit(self, cap: float | None, kind: Literal["full", "cap", "pause"], rate: float, rate_se: float) -> _Visit:
        first, last = self._window[0], self._window[-1]
        power = (last.energy_j - first.energy_j) / (last.energy_mono_s - first.energy_mono_s)
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
            if self._blind():
                return GivenUp(NO_WATTS)
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
                reference, reference_se = _reference(fulls, visit.middle_s)
                speed = visit.rate / reference
                error = speed * math.hypot(visit.rate_se / visit.rate, reference_se / reference, SYSTEMATIC_SE)
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


def _reference(fulls: Sequence[_Visit], at_s: float) -> tuple[float, float]:
    """Rate at full and its error at a moment: a line through all visits to full if it fits, else the two around it."""
    n = len(fulls)
    if n == 1:
        return fulls[0].rate, fulls[0].rate_se
    if n > 3:
        mean_t = sum(visit.middle_s for visit in fulls) / n
        mean_rate = sum(visit.rate for visit in fulls) / n
        stt = sum((visit.middle_s - mean_t) ** 2 for visit in fulls)
        tilt = sum((visit.middle_s - mean_t) * (visit.rate - mean_rate) for visit in fulls) / stt
        line = [mean_rate + tilt * (visit.middle_s - mean_t) for visit in fulls]
        misfit = sum(((v.rate - fit) / v.rate_se) ** 2 for v, fit in zip(fulls, line, strict=True)) / (n - 2)
        if misfit < 3.0:
            typical = sum(visit.rate_se for visit in fulls) / n * math.sqrt(max(1.0, misfit))
            error = typical * math.sqrt(1 / n + (at_s - mean_t) ** 2 / stt)
            return mean_rate + tilt * (at_s - mean_t), error
    before = [visit for visit in fulls if visit.middle_s <= at_s]
    after = [visit for visit in fulls if visit.middle_s > at_s]
    if not before or not after:
        only = before[-1] if before else after[0]
        return only.rate, only.rate_se
    a, b = before[-1], after[0]
    share = (at_s - a.middle_s) / (b.middle_s - a.middle_s)
    return a.rate + share * (b.rate - a.rate), math.hypot((1 - share) * a.rate_se, share * b.rate_se)


def slope(points: Sequence[tuple[float, float]], known_walk: float = 0.0) -> tuple[float, float, float]:
    """Least-squares steps per second of (seconds, steps done), its standard error, and how much the steps wander.

    The last is the relative variance of one second's steps; `known_walk` is what earlier windows found. Step times
    wander (a random walk in the count) and counts are whole (white noise of variance 1/12). Residuals of the line would
    hide the first, so it is taken from differences at a few seconds' distance, less the 1/6 of the second. A line
    through a random walk has 6/5 of the variance of its mean step.
    """
    points = list(dict.fromkeys(points))
    n = len(points)
    length = points[-1][0] - points[0][0] if points else 0.0
    if n < 3 or length <= 0:
        return 0.0, math.inf, 0.0
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    sxx = sum((x - mean_x) ** 2 for x, _ in points)
    found = sum((x - mean_x) * (y - mean_y) for x, y in points) / sxx
    lag = max(1, n // 5)
    pairs = list(zip(points, points[lag:], strict=False))
    rest = [(y1 - y0) - found * (x1 - x0) for (x0, y0), (x1, y1) in pairs]
    span = sum(x1 - x0 for (x0, _), (x1, _) in pairs) / len(pairs)
    walk = max(0.0, sum(r * r for r in rest) / len(rest) - 1 / 6) / span
    used = max(walk, known_walk * found**2)
    return found, math.sqrt(1.2 * used / length + 1 / (12 * sxx)), walk / found**2 if found > 0 else 0.0


def spread(window: Sequence[Observation]) -> float:
    """Standard error of the mean watts of a window: from its quarters, and the counter's tick at both ends."""
    first, last = window[0], window[-1]
    length = last.energy_mono_s - first.energy_mono_s
    if length <= 0:
        return math.inf
    mean = (last.energy_j - first.energy_j) / length
    tick = 0.1 * mean / length
    parts: list[float] = []
    start = first
    for observation in window[1:]:
        if observation.energy_mono_s - start.energy_mono_s >= length / 4.001:
            parts.append((observation.energy_j - start.energy_j) / (observation.energy_mono_s - start.energy_mono_s))
            start = observation
    if len(parts) < 2:
        return tick
    middle = sum(parts) / len(parts)
    variance = sum((part - middle) ** 2 for part in parts) / (len(parts) - 1)
    return math.hypot(math.sqrt(variance / len(parts)), tick)
