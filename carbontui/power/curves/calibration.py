"""Calibration on the running job, as a pure state machine that the supervisor drives about once a second.

    calibration = Calibration(spec)
    action = calibration.next(observation)    # until action is Finished or GivenUp

Five caps below the watts that the job draws, each settled and measured, with a visit to full between any two of them:
a job whose speed drifts (longer batches, a warming board) is compared with itself at about the same time. A window is
extended until its rate is known well enough, at most to `measure_max_s` without stalls. A final pause gives the parked
watts. What was known before is combined with it by inverse variance; where that was known better, nothing is learned.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from carbontui.power.curves.curve import Curve, Point, before, combined, fitted, useful
from carbontui.power.curves.step_rate import RateEstimate, WindowRate, estimated, rate_at, window_rate

SHARES = (0.86, 0.72, 0.60, 0.48, 0.38)
"""Caps as shares of the watts drawn at full."""
CAP_SE, FULL_SE = 0.006, 0.0095
"""Target relative standard errors of a window's rate: visits to full serve all caps, so less precision suffices."""
WATTS_SE = 0.01
"""Target for its watts: a board that has cooled in a stall draws less for a while."""
SYSTEMATIC_SE = 0.004
"""Systematic error not visible in a window: temperature, and leakage with it, lags power by tens of seconds."""
LIMIT_TOLERANCE_W = 2.0
NO_WATTS = "watts could not be read"
STALLS_S = 300.0
"""An evaluation may last this long within a window."""
LEAST_CERTAIN = 0.05
"""Relative standard error of a speed that nothing was known of; at more, the level is not planned with."""
PATIENCE_S = 30.0
"""For a pause to be acknowledged, or for the first step after it."""


class CalibrationSpec(Struct, frozen=True, kw_only=True):
    """The bounds of a calibration. Watts of limits are per GPU."""

    gpu: str
    gpus: int
    fingerprint: str
    can_cap: bool
    limit_min_w: float | None = None
    limit_found_w: float | None = None
    can_pause: bool = True
    prior: tuple[Point, ...] = ()
    """What is known of the levels so far."""
    simulated: bool = False
    settle_s: float = 6.0
    measure_s: float = 15.0
    measure_max_s: float = 70.0
    why_not_cap: str = ""


class CalibrationInput(Struct, frozen=True, kw_only=True):
    """The supervisor's current observation."""

    mono_s: float
    wall_s: float
    step: int
    """Steps done, as the client last reported."""
    timed: tuple[float, int] | None
    """Monotonic time of the end of a step since about the last look, and its count; None before the first."""
    energy_j: float
    """Metered joules of the job's GPUs so far."""
    energy_mono_s: float
    """Until when they are counted: the meter's last sample, up to a second ago."""
    limit_w: float | None = None
    """The lowest limit among the job's GPUs."""
    paused: bool = False
    disturbed: str = ""
    """Why measuring is not possible (an override, a foreign process, ...): gives up."""
    refused: str = ""
    """Why the last limit could not be set."""


class TryLimit(Struct, frozen=True):
    watts_per_gpu: float | None


class Pause(Struct, frozen=True):
    pass


class Resume(Struct, frozen=True):
    pass


class Wait(Struct, frozen=True):
    """Nothing to do; `text` says what is being measured, `share` is the progress (0..1)."""

    text: str
    share: float


class Finished(Struct, frozen=True):
    curve: Curve


class GivenUp(Struct, frozen=True):
    """Restore limits and resume; nothing was learned."""

    why: str


Phase = Literal["ask", "settle", "measure", "pausing", "parked", "resuming"]
Action = TryLimit | Pause | Resume | Wait | Finished | GivenUp


class _Visit(Struct, frozen=True):
    """One window at one level."""

    cap_w: float | None
    rate: WindowRate
    power_w: float
    power_se: float


class Calibration:
    """One run over all levels. Deterministic: the same observations give the same actions."""

    def __init__(self, spec: CalibrationSpec) -> None:
        self.spec = spec
        self._todo: list[float | None] = [None]
        self._visits: list[_Visit] = []
        self._window: list[CalibrationInput] = []
        self._phase: Phase = "ask"
        self._since_s = 0.0
        self._caps_chosen = False
        self._parked: tuple[float, float] | None = None
        self._refused = ""
        self._step_at_pause = 0
        self._pause_s: float | None = None
        self._resume_s: float | None = None
        self._ended = False

    def next(self, now: CalibrationInput) -> Action:
        """The next action. After Finished or GivenUp the original limit must be restored and the job resumed."""
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

    def _ask(self, now: CalibrationInput) -> Action:
        if not self._todo and not self.spec.can_pause:
            return self._learned(now)
        if not self._todo:
            self._enter("pausing", now)
            return Pause()
        self._enter("settle", now)
        return TryLimit(self._todo[0])

    def _settle(self, now: CalibrationInput) -> Action:
        cap = self._todo[0]
        if cap is not None and now.refused:
            # no permission after all: still measure what is possible without caps
            self._refused = now.refused
            self._todo.clear()
            self._phase = "ask"
            return TryLimit(None)
        wanted = cap if cap is not None else self.spec.limit_found_w
        stands = wanted is None or now.limit_w is None or abs(now.limit_w - wanted) <= LIMIT_TOLERANCE_W
        if not stands and now.mono_s - self._since_s > PATIENCE_S:
            return GivenUp(f"the limit does not stay at {wanted:.0f} W")
        if not stands or now.mono_s - self._since_s < self.spec.settle_s:
            return self._wait("settling")
        self._enter("measure", now)
        return self._wait("measuring")

    def _measure(self, now: CalibrationInput) -> Action:
        self._window.append(now)
        elapsed = now.mono_s - self._since_s
        # the first window also measures how much this job's step times vary
        least = self.spec.measure_s * (1 if self._visits else 2)
        if elapsed < least:
            return self._wait("measuring")
        found = window_rate([o.timed for o in self._window if o.timed is not None and o.timed[0] >= self._since_s])
        length = 0.0 if found is None else found.length_s
        if elapsed < self.spec.measure_max_s or (length < 0.8 * least and elapsed < STALLS_S):
            ends = not self._visits or len(self._todo) == 1
            wanted_se = FULL_SE if self._todo[0] is None and not ends else CAP_SE
            if found is None or self._rate(found, found).se > wanted_se * found.rate:
                return self._wait("measuring")
            watts, watts_se = self._watts(found.spans)
            if watts_se > WATTS_SE * watts:
                return self._wait("measuring")
        if found is None:
            return GivenUp(f"no step in {elapsed:.0f} s, or too few to time them")
        if self._unreadable():
            return GivenUp(NO_WATTS)
        self._visits.append(_Visit(self._todo.pop(0), found, *self._watts(found.spans)))
        if not self._caps_chosen:
            self._choose_caps()
        self._phase = "ask"
        return self._ask(now)

    def _rate(self, window: WindowRate, *more: WindowRate) -> RateEstimate:
        return estimated(window, [*(visit.rate for visit in self._visits), *more])

    def _unreadable(self) -> bool:
        """Whether the meter counted for less than half of the window: a hung driver, a lost board."""
        first, last = self._window[0], self._window[-1]
        return last.energy_mono_s - first.energy_mono_s < 0.5 * (last.mono_s - first.mono_s)

    def _watts(self, spans: Sequence[tuple[float, float]] = ()) -> tuple[float, float]:
        """Mean watts of the window, or over exactly the steps timed without stalls, and their standard error."""
        # beside a stall a count between two looks is half of the stall: only whole looks are taken there
        inside = [counted(self._window, *span, whole=len(spans) > 1) for span in spans]
        counts = joined([part for part in inside if len(part) > 1])
        if len(counts) < 2:
            counts = counted(self._window, -math.inf, math.inf)
        first, last = counts[0], counts[-1]
        if last.mono_s <= first.mono_s:
            return 0.0, math.inf
        return (last.joules - first.joules) / (last.mono_s - first.mono_s), spread(counts)

    def _choose_caps(self) -> None:
        self._caps_chosen = True
        spec = self.spec
        if not spec.can_cap or spec.limit_min_w is None or spec.limit_found_w is None:
            self._refused = spec.why_not_cap or "limits cannot be set here"
            return
        drawn = self._visits[0].power_w / spec.gpus
        for share in SHARES:
            cap = float(max(round(share * drawn), math.ceil(spec.limit_min_w)))
            if cap < min(drawn, spec.limit_found_w) * 0.97 and cap not in self._todo:
                self._todo += [cap, None]

    # --- parked -----------------------------------------------------------------------------------------------

    def _park(self, now: CalibrationInput) -> Action:
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
                return self._wait("measuring watts while paused")
            if self._unreadable():
                return GivenUp(NO_WATTS)
            self._parked = self._watts()
            self._enter("resuming", now)
            return Resume()
        if now.step > self._step_at_pause:
            self._resume_s = waited
            return self._learned(now)
        if waited > PATIENCE_S:
            return GivenUp("no step after the pause")
        return self._wait("resuming")

    # --- the result -------------------------------------------------------------------------------------------

    def _learned(self, now: CalibrationInput) -> Finished | GivenUp:
        """The curve, if it is better than what was known."""
        curve = self._curve(now)
        caps = [point for point in curve.points if point.kind == "cap"]
        known = [(point, prior) for point in caps if (prior := before(self.spec.prior, point)) is not None]
        worse = [pair for pair in known if pair[0].speed_se > pair[1].speed_se]
        if worse and 2 * len(worse) >= len(known):
            point, prior = max(worse, key=lambda pair: pair[0].speed_se)
            told = f"to {100 * point.speed_se:.0f} %, less well than before ({100 * prior.speed_se:.0f} %)"
            return GivenUp(f"this job's pace varies too much: the speed of a level was measured {told}")
        unknown = {p.cap_w for p in caps if before(self.spec.prior, p) is None and p.speed_se > LEAST_CERTAIN * p.speed}
        better = [p if (prior := before(self.spec.prior, p)) is None else combined(p, prior) for p in curve.points]
        points = fitted([point for point in better if point.cap_w not in unknown or point.kind == "full"])
        levels = useful(points, curve.parked_w)
        return Finished(msgspec.structs.replace(curve, points=points, levels=levels))

    def _curve(self, now: CalibrationInput) -> Curve:
        fulls = [visit for visit in self._visits if visit.cap_w is None]
        rates = [self._rate(visit.rate) for visit in fulls]
        usual = sum(rate.value for rate in rates) / len(rates)
        watts = sum(visit.power_w for visit in fulls) / len(fulls)
        watts_se = max(visit.power_se for visit in fulls) / math.sqrt(len(fulls))
        usual_se = max(rate.se for rate in rates) / math.sqrt(len(rates))
        points = [_point(None, watts, watts_se, 1.0, usual_se / usual, usual)]
        for visit in self._visits:
            if visit.cap_w is not None:
                rate = self._rate(visit.rate)
                full = rate_at(rates, rate.at_s)
                speed = rate.value / full.value
                error = speed * math.hypot(rate.se / rate.value, full.se / full.value, SYSTEMATIC_SE)
                points.append(_point(visit.cap_w, visit.power_w, visit.power_se, speed, error, usual))
        fit = fitted(points)
        parked_w, parked_se = self._parked or (None, None)
        return Curve(
            gpu=self.spec.gpu,
            gpus=self.spec.gpus,
            fingerprint=self.spec.fingerprint,
            measured_s=now.wall_s,
            simulated=self.spec.simulated,
            rate_steps_per_s=usual,
            points=fit,
            levels=useful(fit, parked_w),
            parked_w=parked_w,
            parked_se=parked_se,
            pause_s=self._pause_s,
            resume_s=self._resume_s,
            note=f"without caps: {self._refused}" if self._refused else "",
        )

    def _wait(self, text: str) -> Wait:
        level = "full" if not self._todo or self._todo[0] is None else f"{self._todo[0]:.0f} W"
        done = len(self._visits) + (self._parked is not None)
        total = max(done + len(self._todo) + (1 if self.spec.can_pause else 0), 2 if self._caps_chosen else 12)
        return Wait(f"{text} {level}" if self._todo else text, done / total)

    def _enter(self, phase: Phase, now: CalibrationInput) -> None:
        self._phase, self._since_s, self._window = phase, now.mono_s, [now] if phase == "measure" else []


def _point(cap_w: float | None, power_w: float, power_se: float, speed: float, speed_se: float, rate: float) -> Point:
    return Point(
        kind="full" if cap_w is None else "cap",
        cap_w=cap_w,
        power_w=power_w,
        power_se=power_se,
        speed=speed,
        speed_se=speed_se,
        j_per_step=power_w / (speed * rate),
    )


class Counted(NamedTuple):
    """The meter's joules at one moment."""

    mono_s: float
    joules: float


def counted(window: Sequence[CalibrationInput], start_s: float, end_s: float, *, whole: bool = False) -> list[Counted]:
    """The meter's counts from `start_s` to `end_s`, as far as sampled: both ends are interpolated, unless `whole`."""
    raw_readings = sorted({o.energy_mono_s: o.energy_j for o in window}.items())
    inside = [Counted(at_s, joules) for at_s, joules in raw_readings if start_s < at_s < end_s]
    for edge_s in () if whole else (start_s, end_s):
        for (at_s, joules), (later_s, later) in pairwise(raw_readings):
            if at_s <= edge_s <= later_s:
                inside.append(Counted(edge_s, joules + (later - joules) * (edge_s - at_s) / (later_s - at_s)))
                break
    return sorted(set(inside))


def joined(parts: Sequence[Sequence[Counted]]) -> list[Counted]:
    """Parts of a count as one: the time and the joules between them are left out."""
    found: list[Counted] = []
    for part in parts:
        late_s = part[0].mono_s - found[-1].mono_s if found else 0.0
        spent = part[0].joules - found[-1].joules if found else 0.0
        found += [Counted(each.mono_s - late_s, each.joules - spent) for each in part[1 if found else 0 :]]
    return found


def spread(counts: Sequence[Counted]) -> float:
    """Standard error of a window's mean watts: from its quarters, and the counter's resolution at both ends."""
    first, last = counts[0], counts[-1]
    length = last.mono_s - first.mono_s
    if length <= 0:
        return math.inf
    mean = (last.joules - first.joules) / length
    tick = 0.1 * mean / length
    parts: list[float] = []
    start = first
    for count in counts[1:]:
        if count.mono_s - start.mono_s >= length / 4.001:
            parts.append((count.joules - start.joules) / (count.mono_s - start.mono_s))
            start = count
    if len(parts) < 2:
        return tick
    middle = sum(parts) / len(parts)
    variance = sum((part - middle) ** 2 for part in parts) / (len(parts) - 1)
    return math.hypot(math.sqrt(variance / len(parts)), tick)
