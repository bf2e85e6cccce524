"""Chooses between two sources of one zone that differ by a factor of two. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from carbontui.grid import compose, typical
from carbontui.grid.types import HOUR_S, Row, Series

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
    ours, theirs = (compose.slot_means(series.rows, start_s, HOUR_S, COMPARED_H) for series in (first, second))
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
    known = [g for g in compose.slot_means(rows, until_s - hours * HOUR_S, HOUR_S, hours) if g is not None]
    if len(known) >= USUAL_LEAST_H:
        return max(1.0, statistics.median(known))
    profile = typical.profile(zone) if typical.is_own(zone) else None
    if profile is None:
        return None
    return max(1.0, statistics.fmean(profile.at(until_s - k * HOUR_S)[0] for k in range(24)))
