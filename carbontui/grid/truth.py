"""Accuracy of this machine's forecasts of its zone: the forecasts 1, 6, 24 and 48 h ahead against the realised values.

One forecast an hour is kept at those leads and scored once its hours are realised: pure functions on a value that the
machine's cache holds for all jobs. Errors are shares of the level (sum of absolute errors over sum of values), because
a mean of percentages is dominated by the few hours near zero.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from carbontui.grid import compose
from carbontui.grid.types import DAY_S, HOUR_S, GridForecast, Row
from carbontui.protocol import ForecastError

LEADS_H = (1, 6, 24, 48)
KEPT_S = 28 * DAY_S
WAITED_S = 4 * DAY_S
"""A realised value later than this is no longer expected."""
LEAST_HOURS = 24
"""Fewer hours are no basis for a figure."""
SIGMA_PER_MEAN = 1.2533
"""Standard deviation over mean absolute deviation of a normal distribution: sqrt(pi / 2)."""


class Said(NamedTuple):
    """The forecast of the hour from `target_s` on, made `lead_h` ahead; the band may be unknown."""

    lead_h: int
    target_s: float
    mean: float
    lo: float | None
    hi: float | None


class Judged(NamedTuple):
    """The same with the realised mean, and the naive forecast: the same hour of the newest known day."""

    lead_h: int
    target_s: float
    mean: float
    lo: float | None
    hi: float | None
    actual: float
    naive: float | None


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """The forecasts and scores kept for one zone and signal."""

    issued_s: float = 0.0
    open: tuple[Said, ...] = ()
    judged: tuple[Judged, ...] = ()


def issued(record: ForecastRecord, outlook: GridForecast, now_s: float) -> ForecastRecord:
    """The record with this outlook's hours added, unless this hour is already in it; the outlook has hourly slots."""
    hour_s = math.floor(now_s / HOUR_S) * HOUR_S
    if hour_s <= record.issued_s <= now_s:
        return record
    first = round((hour_s - outlook.start_s) / HOUR_S)
    said = [
        Said(lead, hour_s + lead * HOUR_S, mean, outlook.lo[k], outlook.hi[k])
        for lead in LEADS_H
        if (k := first + lead) < len(outlook.mean) and (mean := outlook.mean[k]) is not None
    ]
    return replace(record, issued_s=hour_s, open=(*record.open, *said))


def judged(record: ForecastRecord, actual: Sequence[Row], now_s: float) -> ForecastRecord:
    """The record with its past hours scored against `actual` (sorted, of this signal), interpolated and stuck values
    aside; old ones are dropped."""
    actual = [row for row in actual if not row.suspect]
    waiting: list[Said] = []
    done: list[Judged] = []
    for said in record.open:
        came = _hour(actual, said.target_s) if said.target_s + HOUR_S <= now_s else None
        if came is not None:
            before_s = said.target_s - DAY_S * math.ceil(said.lead_h / 24)
            done.append(Judged(*said, came, _hour(actual, before_s)))
        elif said.target_s > now_s - WAITED_S:
            waiting.append(said)
    kept = (one for one in (*record.judged, *done) if now_s - KEPT_S < one.target_s <= now_s)
    return replace(record, open=tuple(waiting), judged=tuple(kept))


def _hour(rows: Sequence[Row], start_s: float) -> float | None:
    return compose.slot_means(rows, start_s, HOUR_S, 1)[0]


def accuracy(record: ForecastRecord) -> tuple[ForecastError, ...]:
    """Accuracy by lead, where enough hours have been scored."""
    found = []
    for lead in LEADS_H:
        mine = [one for one in record.judged if one.lead_h == lead]
        if len(mine) < LEAST_HOURS:
            continue
        compared = [one for one in mine if one.naive is not None]
        held = [one.lo <= one.actual <= one.hi for one in mine if one.lo is not None and one.hi is not None]
        found.append(
            ForecastError(
                lead,
                len(mine),
                round(_share((one.mean - one.actual for one in mine), mine), 4),
                _share((one.naive - one.actual for one in compared if one.naive is not None), compared),
                sum(held) / len(held) if held else None,
            )
        )
    return tuple(found)


def _share(errors: Iterable[float], of: Sequence[Judged]) -> float:
    level = sum(abs(one.actual) for one in of)
    return sum(abs(error) for error in errors) / level if level > 0 else 0.0


def difference_error(record: ForecastRecord) -> float | None:
    """Relative standard error of the difference between two hours of one forecast: tells a better plan from noise.

    Neighbouring leads of one issue are compared (1 with 6 h, 6 with 24, 24 with 48); None while too few were scored.
    """
    by_issue: dict[float, list[Judged]] = {}
    for one in record.judged:
        by_issue.setdefault(one.target_s - one.lead_h * HOUR_S, []).append(one)
    missed, level, count = 0.0, 0.0, 0
    for issue in by_issue.values():
        for near, far in pairwise(sorted(issue, key=lambda one: one.lead_h)):
            missed += abs((far.mean - near.mean) - (far.actual - near.actual))
            level += 0.5 * (abs(far.actual) + abs(near.actual))
            count += 1
    return SIGMA_PER_MEAN * missed / level if count >= LEAST_HOURS and level > 0 else None
