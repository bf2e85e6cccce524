"""Generated grids: a year of hourly intensity around a zone's typical days, and forecasts with the errors of published
ones. Nothing but a seed and the shipped table goes in, so anybody makes the same ones.

A departure from the typical hour is an autoregressive process of which half is left after a day: at 1, 6, 12, 24 and 48
hours the recorded departures of DE 2020, GB 2023, CISO and PJM 2022 correlate by 0.94-0.98, 0.67-0.83, 0.52-0.68,
0.47-0.53 and 0.22-0.32, this one by 0.97, 0.84, 0.71, 0.5 and 0.25. Its size is the band (p10 to p90) of that hour.
"""

from __future__ import annotations

import math
import random

from carbontui.grid import typical
from carbontui.grid.issues import Issue
from carbontui.grid.types import Row, Series
from carbontui.units import from_iso

BEGIN_S = from_iso("2023-01-01T00:00:00Z")
HOURS = 365 * 24
KEPT_PER_H = 0.5 ** (1 / 24)
TENTH = 1.2816
"""Standard deviations between the mean and the 10th or 90th percentile of a normal distribution."""
LEAST = 0.2
"""No hour is cleaner than this share of its typical value."""
ISSUE_H = 96
ERROR_BEGIN, ERROR_PER_H = 0.35, 0.006
"""Error of an issue as a share of the departures' standard deviation, at its first hour and per hour ahead: at four
days as large as the departures nearly, as CarbonCast's published forecasts of DE were (8.7 to 20 % by day)."""


def generated(zone: str, seed: int) -> tuple[Series, list[Issue]]:
    """A year of the zone, gCO2/kWh by hour, and one issue a day at 00:00 UTC of the four days ahead. Raises ValueError
    where it has no typical days of its own."""
    days = typical.recorded().get(zone)
    if days is None:
        raise ValueError(f"{zone} has no typical days to generate a grid from")
    rng = random.Random(f"{zone} {seed}")
    starts = [BEGIN_S + 3600.0 * hour for hour in range(HOURS + ISSUE_H)]
    departures = _process(rng, len(starts))

    def value(hour: int, departure: float) -> float:
        mean, low, high = days.at(starts[hour])
        width = (high - mean if departure > 0 else mean - low) / TENTH
        return round(max(LEAST * mean, mean + departure * width), 1)

    rows = tuple(Row(starts[hour], 3600.0, value(hour, departures[hour])) for hour in range(HOURS))
    issues = []
    for first in range(0, HOURS, 24):
        wrong = _process(rng, ISSUE_H)
        said = []
        for ahead in range(ISSUE_H):
            error = ERROR_BEGIN + ERROR_PER_H * ahead
            # what is to be expected, given a forecast with an error of that size
            expected = (departures[first + ahead] + error * wrong[ahead]) / (1 + error**2)
            said.append(value(first + ahead, expected))
        issues.append(Issue(issued_at_s=starts[first], times_s=starts[first : first + ISSUE_H], values=list(said)))
    name = f"generated from the {days.source}, seed {seed}"
    return Series(zone, days.signal, rows, name), issues


def _process(rng: random.Random, count: int) -> list[float]:
    """Departures with mean 0 and variance 1, by hour."""
    fresh = math.sqrt(1 - KEPT_PER_H**2)
    out = [rng.gauss(0.0, 1.0)]
    while len(out) < count:
        out.append(KEPT_PER_H * out[-1] + fresh * rng.gauss(0.0, 1.0))
    return out
