"""Combines rows of different ages and steps into one outlook of equal slots, and chooses between two sources of one
zone that differ by a factor of two: pure functions, no numpy."""

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from carbontui.grid import typical
from carbontui.grid.issues import Column, ForecastAnswer, ForecastRequest
from carbontui.grid.types import HOUR_S, Row, Series
from carbontui.grid.typical import ValueAndBand

FULL_ENOUGH = 0.5
"""A slot is known when rows cover at least this share of it."""
MEMORY_S = 6 * 3600.0
"""How fast today's departure from a typical day fades (e-folding), as it does in the zones of the shipped data."""
SHORTEST_STEP_S = 900.0
"""Our own forecasts have slots of at least 15 min."""
LEVEL_WINDOW_S = 72 * 3600.0
LEVEL_NEEDS_S = 6 * 3600.0
LEVEL_RANGE = (0.25, 4.0)
LEAST_BAND = 0.15
NOWCAST_S = 3 * 3600.0
NOWCAST_FADE = 0.9
"""Share of a published forecast's present error that remains after an hour, as in the CarbonCast data set."""

NOTHING: ValueAndBand = (None, None, None)


def slot_means(rows: Sequence[Row], start_s: float, step_s: float, slots: int) -> list[float | None]:
    """Time-weighted mean per slot: finer rows are averaged, coarser ones hold. Rows sorted by start."""
    totals = [0.0] * slots
    covered = [0.0] * slots
    end_s = start_s + slots * step_s
    # rows may be long: start early enough to miss none
    first = bisect.bisect_left(rows, start_s - 6 * 3600.0, key=lambda row: row.start_s)
    for row in rows[first:]:
        if row.start_s >= end_s:
            break
        left, right = max(row.start_s, start_s), min(row.end_s, end_s)
        while left < right - 1e-6:
            k = min(slots - 1, int((left - start_s) / step_s + 1e-9))
            until = min(right, start_s + (k + 1) * step_s)
            if until <= left:
                break
            totals[k] += row.value * (until - left)
            covered[k] += until - left
            left = until
    return [total / part if part >= FULL_ENOUGH * step_s else None for total, part in zip(totals, covered, strict=True)]


def history(rows: Sequence[Row], now_s: float, until_s: float) -> ForecastRequest:
    """What the worker forecasts from: the rows by slots of at least 15 min, up to the slot of `now_s`; the slots from
    there to `until_s` are asked for."""
    step_s = max(SHORTEST_STEP_S, rows[-1].dur_s)
    start_s, here_s = (math.floor(at / step_s) * step_s for at in (rows[0].start_s, now_s))
    values = slot_means(rows, start_s, step_s, round((here_s - start_s) / step_s))
    ahead = math.ceil((until_s - here_s) / step_s)
    return {"now_s": here_s, "start_s": start_s, "step_s": step_s, "values": values, "horizon": ahead}


def slots_of(answer: ForecastAnswer, name: Column, start_s: float, step_s: float, slots: int) -> list[float | None]:
    """The same of one column of the worker's answer."""
    first_s, length = answer["now_s"], answer["step_s"]
    rows = [Row(first_s + k * length, length, value) for k, value in enumerate(answer[name])]
    return slot_means(rows, start_s, step_s, slots)


@dataclass(frozen=True, slots=True)
class Expectation:
    """A typical day scaled to the level of the last days, starting from the last known value."""

    profile: typical.Profile
    level: float
    anomaly_g: float
    last_s: float | None

    @property
    def source(self) -> str:
        return self.profile.source if self.last_s is None else f"{self.profile.unscaled}, scaled to recent values"

    def slot(self, start_s: float, step_s: float) -> typical.Hour:
        """Mean and 80 % band of one slot; the band widens with the distance from the last known value."""
        mean, lo, hi = typical.slot_values(self.profile, start_s, step_s)
        if self.last_s is None:
            return mean, lo, hi
        fade = math.exp(-max(0.0, start_s + step_s / 2 - self.last_s) / MEMORY_S)
        expected = max(0.05 * self.level * mean, self.level * mean + self.anomaly_g * fade)
        width = max(LEAST_BAND, math.sqrt(1 - fade * fade)) * self.level
        return expected, max(0.0, expected - width * (mean - lo)), expected + width * (hi - mean)


def expectation(profile: typical.Profile, actual: Sequence[Row], now_s: float) -> Expectation:
    """Fit level and anomaly to rows that ended by `now_s`; with too few of them the typical day stays unscaled."""
    recent = [row for row in actual if row.end_s <= now_s + 1e-6 and row.start_s >= now_s - LEVEL_WINDOW_S]
    if sum(row.dur_s for row in recent) < LEVEL_NEEDS_S:
        return Expectation(profile, 1.0, 0.0, None)
    typical_sum = sum(row.dur_s * profile.at(row.start_s + row.dur_s / 2)[0] for row in recent)
    actual_sum = sum(row.dur_s * row.value for row in recent)
    level = min(LEVEL_RANGE[1], max(LEVEL_RANGE[0], actual_sum / typical_sum)) if typical_sum > 0 else 1.0
    last = recent[-1]
    anomaly = last.value - level * profile.at(last.start_s + last.dur_s / 2)[0]
    return Expectation(profile, level, anomaly, last.end_s)


def nowcast(published: Sequence[Row], actual: Sequence[Row], now_s: float) -> tuple[float, float]:
    """How far the last value was from its published forecast (g), and when that value ended."""
    for row in reversed(actual[-4:]):
        if now_s - row.start_s > NOWCAST_S:
            break
        said = slot_means(published, row.start_s, row.dur_s, 1)[0]
        if said is not None and not row.suspect:
            return row.value - said, row.end_s
    return 0.0, now_s


def _shifted(cell: ValueAndBand, by_g: float) -> ValueAndBand:
    mean, lo, hi = (None if value is None else max(0.0, value + by_g) for value in cell)
    return mean, lo, hi


def joined(cells: Sequence[ValueAndBand], best: Sequence[ValueAndBand], step_s: float) -> list[ValueAndBand]:
    """`best` where it has a value, else `cells`, slots of `step_s`; where `best` ends, its departure from them fades,
    so that the curve does not end in a step."""
    out, apart_g = [], 0.0
    for cell, own in zip(cells, best, strict=True):
        if own[0] is None:
            apart_g *= NOWCAST_FADE ** (step_s / 3600)
        elif cell[0] is not None:
            apart_g = own[0] - cell[0]
        out.append(_shifted(cell, apart_g) if own[0] is None else own)
    return out


def overlaid(
    cells: Sequence[ValueAndBand],
    said: Sequence[float | None],
    nowcast_g: float,
    last_s: float,
    start_s: float,
    step_s: float,
) -> list[ValueAndBand]:
    """`cells` with published values plus the fading nowcast error in place of expected ones; band widths stay."""
    out = [NOTHING] * len(cells)
    for k, (cell, value) in enumerate(zip(cells, said, strict=True)):
        if value is not None:
            hours = max(0.0, (start_s + k * step_s - last_s) / 3600)
            mean = max(0.1 * value, value + nowcast_g * NOWCAST_FADE**hours)
            out[k] = mean, *_shifted(cell, mean - (cell[0] or 0.0))[1:]
    return joined(cells, out, step_s)


COMPARED_H = 6
LEAST_H = 2
"""Hours that both must cover."""
FACTOR = 2.0
FLOOR_G = 20.0
"""Below this a factor of two comes from how plants are counted, and changes no plan."""
USUAL_DAYS = 14
USUAL_LEAST_H = 48


class SourceMeans(NamedTuple):
    """Means of two sources over the same hours, and the usual level before, gCO2/kWh."""

    first_g: float
    second_g: float
    usual_g: float

    @property
    def second_is_nearer(self) -> bool:
        return abs(math.log(self.second_g / self.usual_g)) < abs(math.log(self.first_g / self.usual_g))


def disagreement(first: Series, second: Series, before: Series | None, now_s: float) -> SourceMeans | None:
    """The two means and the usual level where the means differ by FACTOR or more; None where they agree, cannot be
    compared (another signal, no common hours) or the usual level is unknown. `before`: the history trusted so far."""
    if first.signal != second.signal:
        return None
    start_s = now_s // HOUR_S * HOUR_S - COMPARED_H * HOUR_S
    ours, theirs = (slot_means(series.rows, start_s, HOUR_S, COMPARED_H) for series in (first, second))
    both = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    if len(both) < LEAST_H:
        return None
    first_g, second_g = (max(1.0, statistics.fmean(column)) for column in zip(*both, strict=True))
    low, high = sorted((first_g, second_g))
    usual_g = usual(before.rows if before else (), first.zone, start_s)
    if high < FACTOR * low or high < FLOOR_G or usual_g is None:
        return None
    return SourceMeans(first_g, second_g, usual_g)


def usual(rows: Sequence[Row], zone: str, until_s: float) -> float | None:
    """Median of the hours of the two weeks before; with too few, the mean of the zone's typical day; None: unknown."""
    hours = USUAL_DAYS * 24
    known = [g for g in slot_means(rows, until_s - hours * HOUR_S, HOUR_S, hours) if g is not None]
    if len(known) >= USUAL_LEAST_H:
        return max(1.0, statistics.median(known))
    profile = typical.profile(zone) if typical.is_own(zone) else None
    if profile is None:
        return None
    return max(1.0, statistics.fmean(profile.at(until_s - k * HOUR_S)[0] for k in range(24)))
