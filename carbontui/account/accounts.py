"""From joules and realised intensity to grams and money.

Energy is kept in bins of five minutes of the job's clock, the finest step any provider gives, so that every joule
meets the intensity of its own slot even when that intensity is only published (or revised) hours later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from carbontui import units

BIN_S = 300.0

Lookup = Callable[[float], float | None]
"""Epoch seconds of a bin's start -> value in that bin, or None when nobody knows."""


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over bins; `unknown_j` joules met no known value and were counted at the mean of the known ones."""

    value: float
    joules: float
    unknown_j: float


def split(t0: float, t1: float, bin_s: float = BIN_S) -> Iterator[tuple[float, float]]:
    """(bin start, share of [t0, t1) in it), shares summing to one; an empty interval yields its bin whole."""
    if t1 <= t0:
        yield math.floor(t0 / bin_s) * bin_s, 1.0
        return
    start = math.floor(t0 / bin_s) * bin_s
    while start < t1:
        overlap = min(t1, start + bin_s) - max(t0, start)
        if overlap > 0:
            yield start, overlap / (t1 - t0)
        start += bin_s


def weigh(bins: Iterable[tuple[float, float]], lookup: Lookup) -> Total:
    """Sum of kWh x value over (bin start, joules); value in gCO2/kWh gives grams, in currency/kWh money."""
    known = unknown = total = 0.0
    for start, joules in bins:
        value = lookup(start)
        if value is None:
            unknown += joules
        else:
            known += joules
            total += units.joules_to_kwh(joules) * value
    if unknown and known:
        total *= (known + unknown) / known
    return Total(total, known + unknown, unknown)


def run_now(start_s: float, work_done_s: float, wall_w: float, lookup: Lookup) -> Total:
    """What the work done so far would have emitted flat out from the start: `wall_w` watts for `work_done_s` seconds.

    `wall_w` includes CPU, host and PUE, as the emitted side does.
    """
    joules = wall_w * work_done_s
    shares = split(start_s, start_s + work_done_s)
    return weigh(((start, joules * share) for start, share in shares), lookup)
