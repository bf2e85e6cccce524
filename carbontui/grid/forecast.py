"""Our own forecast, blended with published ones, with an adaptive conformal 80 % band. Runs in the numpy worker.

Methods: direct multi-step ridge regression on lags and calendar (ridge.py); stacking of forecasts (stack.py);
split conformal bands on the last weeks, held at their coverage by adaptive conformal inference (Gibbs and
Candes 2021, arXiv 2106.00170). Series finer than an hour are modelled hourly, then get back their shape in the hour.
Sources are late: every forecast is made from the last known value on, and the slots that have passed are dropped, so
that leads, errors and bands count from that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carbontui.grid import resample, ridge, stack
from carbontui.grid.issues import ForecastAnswer, ForecastRequest, Issue, merged
from carbontui.grid.ridge import HORIZON_H, WARM_H, Array, Ridge

WINDOW_H = 28 * 24
"""Past forecast origins on which the published and our own forecast are compared and the band is measured."""
MISS = 0.2
"""An 80 % band misses one value in five."""
STEP_OF_ADAPTATION = 0.01
FADE_S = 6 * 3600.0
LEAST_KNOWN_H = 30
"""Known hours needed of the last 72; with fewer, most lags would be filled in."""
UNIT_SLIP = 20.0
"""A published value this many times above or below the median is in another unit, or wrong."""
DAY_KEPT, SIMPLE_FADE_S = 0.55, 18 * 3600.0
"""For histories too short to learn them: the share of a day's departure from the week's mean that remains on the next,
and how fast the newest departure fades. Error over two days at 15 instead of 6 h, six recorded grids: 1 to 5 % less."""
OF_SPREAD, OF_LEVEL = 0.3, 0.055
"""Before anything has been scored, the square of the band is made of the change from day to day, this share of the
variance, and this share of the level as a floor: at these every recorded zone (PJM to Great Britain) covers 65 to 92 %
with two days of history."""
SCORED_EVERY_H, SCORED_H, PRIOR_ORIGINS = 5, 48, 5
"""A short history's own forecast is scored from each of these hours on, over so many; the spread of its values counts
as so many of these origins."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """By slot, the first one at the time of the forecast: mean is the conditional mean, lo to hi the 80 % band."""

    mean: Array
    lo: Array
    hi: Array
    provenance: str


@dataclass(slots=True)
class _Band:
    """Widening factor per slot ahead, adapted at every miss and hit of the earlier bands."""

    factor: Array
    given: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    last_slot: int | None = None

    def learn(self, slot: int, values: Array) -> None:
        """Score earlier bands on the values that are new. values[-1] is the slot before `slot`."""
        first = slot - 1 if self.last_slot is None else max(self.last_slot, slot - values.size)
        for target, value in enumerate(values[values.size - (slot - first) :], first):
            for origin, (lo, hi) in self.given.items():
                ahead = target - origin
                if 0 <= ahead < min(lo.size, self.factor.size) and np.isfinite(value):
                    missed = not lo[ahead] <= value <= hi[ahead]
                    self.factor[ahead] *= np.exp(STEP_OF_ADAPTATION * (missed - MISS) / MISS)
        np.clip(self.factor, 0.5, 3.0, out=self.factor)
        self.last_slot = slot
        for origin in [origin for origin, (lo, _) in self.given.items() if origin + lo.size <= slot or origin > slot]:
            del self.given[origin]


@dataclass(slots=True)
class Forecaster:
    """Fitted on a history; predicts from recent values and published forecasts. Create it with `fit`."""

    step_s: float
    model: Ridge | None
    tail_s: float
    tail: Array
    band: _Band
    lowest: float = 0.0
    issues: dict[float, tuple[Array, Array]] = field(default_factory=dict)

    @classmethod
    def fit(cls, times_s: ArrayLike, values: ArrayLike, *, signed: bool = False) -> Forecaster:
        """Fit to a history: starts in epoch seconds at the series' own resolution, values in gCO2/kWh (NaN: gap), or
        `signed` ones such as prices.

        Times in any order, with gaps. Raises ValueError for unequal lengths or fewer than two values.
        """
        stamps, numbers = resample.columns(times_s, values)
        if stamps.size < 2:
            raise ValueError(f"a history needs at least two values, got {stamps.size}")
        steps = np.diff(stamps)
        kinds, counts = np.unique(steps[steps > 0], return_counts=True)
        if kinds.size == 0:
            raise ValueError("a history needs at least two different times")
        step_s = float(kinds[np.argmax(counts)])
        start_s = float(stamps[0])
        known = stamps[np.isfinite(numbers)]
        last_s = known[-1] if known.size else stamps[-1]
        dense = resample.dense(stamps, numbers, start_s, step_s, round((last_s - start_s) / step_s) + 1)
        model = None
        per_hour = resample.per_hour(step_s)
        if per_hour:
            hours = dense.size // per_hour
            cut = dense[dense.size - hours * per_hour :]
            first_s = start_s + (dense.size - hours * per_hour) * step_s
            model = Ridge.fit(resample.means(cut, per_hour), first_s / 3600, signed=signed)
        keep = min(dense.size, round((WINDOW_H + WARM_H) * 3600 / step_s))
        horizon = HORIZON_H * max(1, per_hour)
        tail_s = start_s + (dense.size - keep) * step_s
        lowest = -np.inf if signed else 0.0
        return cls(step_s, model, tail_s, dense[dense.size - keep :], _Band(np.ones(horizon)), lowest)

    def predict(
        self,
        now_s: float,
        recent_s: ArrayLike,
        recent_values: ArrayLike,
        horizon_slots: int,
        published: Sequence[Issue] = (),
    ) -> Forecast:
        """`horizon_slots` slots from `now_s` on; slot 0 starts then and its own value is not yet known.

        Values and issues that begin later are ignored. Raises ValueError for unequal lengths, a horizon below one slot
        or when no value before `now_s` is known.
        """
        if horizon_slots < 1:
            raise ValueError(f"a forecast needs at least one slot, got {horizon_slots}")
        at_s, native = self._known(now_s, recent_s, recent_values)
        silent = round((now_s - at_s) / self.step_s)
        slots = silent + horizon_slots
        per_hour = resample.per_hour(self.step_s)
        hourly = resample.means(native, per_hour) if per_hour else native
        known = np.isfinite(hourly[-72:]).sum() if hourly.size >= WARM_H else 0
        if self.model is None or known < LEAST_KNOWN_H or not np.isfinite(hourly[-24:]).any():
            mean, lo, hi = _simple(native, self.step_s, slots, self.lowest)
            provenance = "own forecast: same time on the last days"
        else:
            blended, low, high, used = self._hourly(at_s, now_s, hourly, published)
            mean, lo, hi = resample.refine(native, per_hour, blended, low, high, slots, self.lowest)
            provenance = "own forecast: ridge" + (" blended with the published one" if used else "")
        mean, lo, hi = self._adapt(at_s, native, mean, lo, hi)
        return Forecast(mean[silent:], lo[silent:], hi[silent:], provenance)

    def _known(self, now_s: float, times_s: ArrayLike, values: ArrayLike) -> tuple[float, Array]:
        """When the last value known before now ends, and the dense native values up to then: the recent ones, with
        gaps filled from the end of the history."""
        stamps, numbers = resample.columns(times_s, values)
        tail: Array = self.tail_s + np.arange(self.tail.size, dtype=float) * self.step_s
        stamps, numbers = np.concatenate([tail, stamps]), np.concatenate([self.tail, numbers])
        known = np.isfinite(numbers) & (stamps < now_s - 1e-6 * self.step_s)
        if not known.any():
            raise ValueError("no value is known before now")
        newest = np.floor((stamps[known].max() - now_s) / self.step_s + 1e-6)
        at_s = now_s + float(newest + 1) * self.step_s
        slots = round((WINDOW_H + WARM_H) * 3600 / self.step_s)
        start_s = at_s - slots * self.step_s
        merged = resample.dense(stamps[known], numbers[known], start_s, self.step_s, slots)
        # shorter than the window: drop the unknown start, in whole days so that the time of day is kept
        day = round(86400 / self.step_s)
        first = int(np.argmax(np.isfinite(merged)))
        if at_s >= self.tail_s + self.tail.size * self.step_s:
            # values are kept, so that callers may pass only new ones
            self.tail_s, self.tail = start_s, merged
        return at_s, merged[max(0, (first // day) * day) :]

    def _hourly(
        self, at_s: float, now_s: float, hourly: Array, published: Sequence[Issue]
    ) -> tuple[Array, Array, Array, bool]:
        """Of the hours from `at_s` on, where the values end: mean and band, and whether an issue was blended in."""
        assert self.model is not None
        values = ridge.fill(hourly)
        clean = ridge.despike(values)
        first_h = at_s / 3600 - values.size
        origins = np.arange(max(WARM_H, values.size - WINDOW_H), values.size + 1)
        # one hour beyond the known values, so that their end is an origin too
        own = self.model.rows(np.append(values, np.nan), np.append(clean, np.nan), first_h, origins)
        at = origins[:, None] + np.arange(HORIZON_H)[None, :]
        truth = np.append(hourly, np.full(HORIZON_H + 1, np.nan))[at]
        # an hour that was filled in is no origin: nothing would have been forecast from it
        truth[~np.isfinite(hourly[origins - 1])] = np.nan
        spread, last, age = self._published(at_s, now_s, published, origins, values.size)
        usual = float(np.median(values))
        spread[~((spread > usual / UNIT_SLIP) & (spread < usual * UNIT_SLIP))] = np.nan
        last[~((last > usual / UNIT_SLIP) & (last < usual * UNIT_SLIP))] = np.nan
        used = bool(np.isfinite(spread[-1]).any())
        result = own
        if used:
            own_last = np.concatenate([[np.nan], own[:-1, 0]])
            error = stack.nowcast_error(values[origins - 1], last, own_last)
            result = np.maximum(stack.blend(own, spread, error, age, truth, (now_s - at_s) / 3600), self.model.floor)
        learned = (first_h + origins < self.model.until_h)[:, None]
        low, high = _quantiles((truth - result) * np.where(learned, self.model.optimism, 1.0))
        return result[-1], result[-1] + low, result[-1] + high, used

    def _published(
        self, at_s: float, now_s: float, published: Sequence[Issue], origins: NDArray[np.int64], size: int
    ) -> tuple[Array, Array, Array]:
        """Per origin: the hours of the newest issue as of then and the time since `at_s` (NaN: none), the value
        published for the hour before, the issue's age in hours."""
        spread = np.full((origins.size, HORIZON_H), np.nan)
        last = np.full(origins.size, np.nan)
        age = np.full(origins.size, 12.0)
        issues = merged((issue for issue in published if issue["issued_at_s"] <= now_s + 1e-6), now_s)
        times = [issue["issued_at_s"] for issue in issues]
        begin_s, silent_s = at_s - size * 3600, now_s - at_s  # hour index 0
        length = size + HORIZON_H + 1
        said = np.full(length, np.nan)
        self.issues = {at: self.issues[at] for at in times if at in self.issues}
        for issued_s, end_s, issue in zip(times, [*times[1:], np.inf], issues, strict=False):
            if issued_s not in self.issues:
                self.issues[issued_s] = resample.columns(issue["times_s"], issue["values"])
            newer = resample.to_hours(*self.issues[issued_s], begin_s, length)
            said = np.where(np.isfinite(newer), newer, said)
            # an older issue says what was before this one, not what comes after it
            hours = np.where(begin_s + np.arange(1, length + 1) * 3600 <= issued_s, said, newer)
            starts = begin_s + silent_s + origins * 3600.0
            mine = np.flatnonzero((starts >= issued_s - 1e-6) & (starts < end_s - 1e-6))
            if mine.size:
                spread[mine] = hours[origins[mine][:, None] + np.arange(HORIZON_H)[None, :]]
                last[mine] = said[origins[mine] - 1]
                age[mine] = np.minimum(23.0, (starts[mine] - issued_s) / 3600)
        return spread, last, age

    def _adapt(self, at_s: float, native: Array, mean: Array, lo: Array, hi: Array) -> tuple[Array, Array, Array]:
        slot = round(at_s / self.step_s)
        self.band.learn(slot, native)
        own = np.minimum(np.arange(mean.size), self.band.factor.size - 1)
        factor = self.band.factor[own]
        lo, hi = np.maximum(self.lowest, mean + (lo - mean) * factor), mean + (hi - mean) * factor
        lo, hi = np.minimum(lo, mean), np.maximum(hi, mean)
        self.band.given[slot] = (lo, hi)
        return mean, lo, hi


def _quantiles(missed: Array) -> tuple[Array, Array]:
    """10th and 90th percentile of the errors per horizon, smoothed over neighbouring horizons."""
    ordered = np.sort(missed, axis=0)  # NaN last
    count = np.isfinite(missed).sum(axis=0)
    column = np.arange(missed.shape[1])
    known = np.maximum(count, 1)
    low = ordered[np.floor(0.5 * MISS * (known - 1)).astype(int), column]
    high = ordered[np.ceil((1 - 0.5 * MISS) * (known - 1)).astype(int), column]
    good = (count >= 20) & np.isfinite(low) & np.isfinite(high)
    if not good.any():
        spread = float(np.nanstd(missed)) if count.any() else 0.0
        return np.full(column.size, -1.28 * spread), np.full(column.size, 1.28 * spread)
    low, high = np.interp(column, column[good], low[good]), np.interp(column, column[good], high[good])
    return _smooth(np.minimum(low, 0.0)), _smooth(np.maximum(high, 0.0))


def _smooth(values: Array) -> Array:
    padded = np.concatenate([values[:1], values, values[-1:]])
    return 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]


def _simple(native: Array, step_s: float, slots: int, lowest: float) -> tuple[Array, Array, Array]:
    """For short histories: the mean of the same time on the last days, plus the fading departures of yesterday and
    today. The band is as wide as the same forecast was wrong within the history."""
    known = native[np.isfinite(native)]
    floor = ridge.FLOOR_SHARE * float(known.min()) if np.isfinite(lowest) else lowest
    mean = np.maximum(floor, _same_days(native, step_s, slots))
    reach = max(1, round(SCORED_H * 3600 / step_s))
    growth = np.sqrt(1.03 - np.exp(-2 * np.arange(max(slots, reach)) * step_s / SIMPLE_FADE_S))
    day = max(1, round(86400 / step_s))
    change = np.nan_to_num(resample.known_mean((native[day:] - native[:-day]) ** 2, 0), nan=known.var())
    squares = [float(change + OF_SPREAD * known.var() + (OF_LEVEL * known.mean()) ** 2)] * PRIOR_ORIGINS
    for origin in range(2 * day, native.size, max(1, round(SCORED_EVERY_H * 3600 / step_s))):
        if np.isfinite(native[origin - 1]):
            truth = native[origin : origin + reach]
            missed = (truth - _same_days(native[:origin], step_s, truth.size)) / growth[: truth.size]
            if np.isfinite(missed).any():
                squares.append(float(np.nanmean(missed**2)))
    width = 1.28 * float(np.sqrt(np.mean(squares))) * growth[:slots]
    return mean, mean - width, mean + width


def _same_days(native: Array, step_s: float, slots: int) -> Array:
    day = max(1, round(86400 / step_s))
    shape = resample.same_slot(native, day)
    ahead = np.arange(slots)
    yesterday = native[-day:] if native.size >= day else shape
    apart = DAY_KEPT * (np.where(np.isfinite(yesterday), yesterday, shape) - shape)
    # from the last value on as on the days before; what has faded by the same hour of tomorrow ends there, so that the
    # day after, which keeps a share of this one, begins where it ends
    departure = native[-1] - shape[-1] - apart[0]
    until_s = (day - np.arange(day)) * step_s
    apart += departure * np.exp((until_s - 86400 - step_s) / SIMPLE_FADE_S) * np.minimum(1.0, until_s / FADE_S)
    out: Array = shape[ahead % day] + DAY_KEPT ** (ahead // day) * apart[ahead % day]
    return out


class Fitted(NamedTuple):
    """A model fitted at `at_s` on a history that starts and steps by `grid` (epoch seconds, seconds)."""

    at_s: float
    grid: tuple[float, float]
    forecaster: Forecaster


_fitted: dict[str, Fitted] = {}
REFIT_S = 86400.0
FITTED_MAX = 2
"""One series of intensities and one of prices per job."""


def answer(request: ForecastRequest) -> ForecastAnswer:
    """The worker's answer to `Feed.forecast_request` and `Feed.price_request`: mean, lo and hi per slot of the series'
    own step from now_s.

    The fitted model is kept for a day per series. With too little history for a model, the result is averaged with the
    feed's expectation from typical days.
    """
    step_s, now_s, start_s = request["step_s"], request["now_s"], request["start_s"]
    values = np.array([np.nan if value is None else value for value in request["values"]], dtype=float)
    times_s = start_s + np.arange(values.size) * step_s
    signed, key = bool(request.get("signed")), request.get("key", "")
    fitted = _fitted.get(key)
    if fitted is None or fitted.grid != (start_s, step_s) or not 0 <= now_s - fitted.at_s < REFIT_S:
        forecaster = Forecaster.fit(times_s, values, signed=signed)
        if fitted and fitted.grid[1] == step_s:
            forecaster.band = fitted.forecaster.band
        _fitted.pop(key, None)
        while len(_fitted) >= FITTED_MAX:
            del _fitted[next(iter(_fitted))]
        fitted = _fitted[key] = Fitted(now_s, (start_s, step_s), forecaster)
    forecaster = fitted.forecaster
    made = forecaster.predict(now_s, times_s, values, request["horizon"], request.get("published", ()))
    mean, provenance = made.mean, made.provenance
    expected = request.get("typical") or []
    if forecaster.model is None and len(expected) == mean.size and None not in expected:
        # the last days outweigh the typical year: more so further ahead, and with more days of history
        days = values.size * step_s / 86400
        # `near` counts from the last known value, which may be hours old
        silent = int(np.argmax(np.isfinite(values[::-1])))
        near = np.exp(-(np.arange(mean.size) + silent) * step_s / FADE_S)
        share = days / (days + 1) * (1 - near) + 0.3 * near
        mean = share * mean + (1 - share) * np.array(expected, dtype=float)
        provenance += ", averaged with typical days"
    shift = mean - made.mean
    return {
        "now_s": now_s,
        "step_s": step_s,
        "mean": mean.tolist(),
        "lo": np.maximum(forecaster.lowest, made.lo + shift).tolist(),
        "hi": (made.hi + shift).tolist(),
        "provenance": provenance,
    }
