"""Steps per second from timed steps, and their uncertainty.

Whole counts sampled once a second are not enough: with steps of about a second they alias, undetectably. Between the
ends of two steps there is no rounding; what remains is the variation of step times. That is estimated over all windows
of a job together: one short window alone may look steady by chance.

A checkpoint, an evaluation or an empty loader is not the pace of a level. A stretch between two timed steps that took
far longer than the window's steps usually do is left out, of the rate as of the watts.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

BLOCK_S = 5.0
"""Neighbouring steps are correlated; neighbouring blocks of this length hardly are."""
PRIOR_BLOCKS = 30.0
"""A window of this many blocks weighs as much for its own variability as all windows together."""
TIMING_S = 0.02
"""How late the report of a step's end may arrive."""
MISFIT = 4.0
"""Above this mean squared misfit (in standard errors) the drift was not linear."""


STALL_PACE, STALL_SPREADS, STALL_S = 1.5, 9.0, 0.5
"""A stretch is a stall above this multiple of the median pace, plus this many median deviations (six standard ones),
if that makes this many seconds."""
STRETCHES = 4
"""Of fewer, the median tells nothing."""
Mark = tuple[float, int]
"""The time of a step's end, and its count."""


class WindowRate(Struct, frozen=True):
    """Steps per second over a window."""

    rate: float
    middle_s: float
    length_s: float
    variability: float
    """Relative variance of one second's steps."""
    blocks: float
    """The number of independent blocks behind it."""
    spans: tuple[tuple[float, float], ...]
    """The stretches without stalls, from and to."""


class RateEstimate(Struct, frozen=True):
    """Steps per second at one moment, and the standard error."""

    at_s: float
    value: float
    se: float


def without_stalls(marks: Sequence[Mark]) -> list[tuple[Mark, Mark]]:
    """The stretches between neighbouring marks in which steps were made at the window's usual pace."""
    stretches = list(pairwise(marks))
    paces = [(end_s - start_s) / (count1 - count0) for (start_s, count0), (end_s, count1) in stretches]
    if len(paces) < STRETCHES:
        return stretches
    usual = statistics.median(paces)
    spread = statistics.median(abs(pace - usual) for pace in paces)
    most = STALL_PACE * usual + STALL_SPREADS * spread
    steps = [stretch[1][1] - stretch[0][1] for stretch in stretches]
    stalled = [pace > most and (pace - usual) * n > STALL_S for pace, n in zip(paces, steps, strict=True)]
    return [stretch for stretch, out in zip(stretches, stalled, strict=True) if not out]


def window_rate(timed: Sequence[Mark]) -> WindowRate | None:
    """The rate of steps timed in a window, stalls left out; None while too few to show their variation."""
    ordered = sorted({count: at_s for at_s, count in reversed(timed)}.items())
    kept = without_stalls([(at_s, count) for count, at_s in ordered])
    if len(kept) < 2:
        return None
    # what is left is moved together, as if the stalls had not been
    marks = [(0, 0.0)]
    for (since_s, before), (until_s, after) in kept:
        marks.append((marks[-1][0] + after - before, marks[-1][1] + until_s - since_s))
    (count0, start_s), (count1, end_s) = marks[0], marks[-1]
    length_s = end_s - start_s
    if length_s <= 0:
        return None
    rate = (count1 - count0) / length_s
    overlapping: list[tuple[float, float]] = []
    """Overlapping blocks: their seconds, and the seconds their steps would take at the mean rate."""
    for count, at_s in marks:
        later = next((mark for mark in marks if mark[1] - at_s >= BLOCK_S), None)
        if later is not None:
            overlapping.append((later[1] - at_s, (later[0] - count) / rate))
    if not overlapping:
        return None
    block_s = sum(seconds for seconds, _ in overlapping) / len(overlapping)
    # the rate is fitted to the same steps, so their scatter about it is smaller: one degree of freedom is lost
    blocks = length_s / block_s - 1
    if blocks < 0.5:
        return None
    off = sum((steps_s - seconds) ** 2 / seconds for seconds, steps_s in overlapping) / len(overlapping)
    middle_s = sum((until - since) * (since + until) / 2 for (since, _), (until, _) in kept) / length_s
    spans: list[tuple[float, float]] = []
    for (since, _), (until, _) in kept:
        joined = spans and spans[-1][1] == since
        spans[-1:] = [(spans[-1][0], until)] if joined else [*spans[-1:], (since, until)]
    return WindowRate(rate, middle_s, length_s, off * (blocks + 1) / blocks, blocks, tuple(spans))


def estimated(window: WindowRate, windows: Sequence[WindowRate]) -> RateEstimate:
    """The rate of one window with its standard error, given all windows of the job (its own among them)."""
    blocks = sum(each.blocks for each in windows)
    usual = sum(each.blocks * each.variability for each in windows) / blocks
    # n blocks give a variance to a relative sqrt(2 / n): use its upper end, so that luck does not end a window early
    usual *= 1 + math.sqrt(2 / blocks)
    own = (window.blocks * window.variability + PRIOR_BLOCKS * usual) / (window.blocks + PRIOR_BLOCKS)
    error = math.hypot(math.sqrt(own / window.length_s), TIMING_S / window.length_s)
    return RateEstimate(window.middle_s, window.rate, window.rate * error)


def rate_at(rates: Sequence[RateEstimate], at_s: float) -> RateEstimate:
    """The rate at one moment: on a line through all estimates if one fits, else between the two around it."""
    if len(rates) > 3:
        weights = [rate.se**-2 for rate in rates]
        total = sum(weights)
        mean_s = sum(w * rate.at_s for w, rate in zip(weights, rates, strict=True)) / total
        mean = sum(w * rate.value for w, rate in zip(weights, rates, strict=True)) / total
        sxx = sum(w * (rate.at_s - mean_s) ** 2 for w, rate in zip(weights, rates, strict=True))
        tilt = sum(w * (rate.at_s - mean_s) * rate.value for w, rate in zip(weights, rates, strict=True)) / sxx
        off = [(rate.value - mean - tilt * (rate.at_s - mean_s)) / rate.se for rate in rates]
        misfit = sum(o * o for o in off) / (len(rates) - 2)
        if misfit < MISFIT:
            error = math.sqrt(max(1.0, misfit) * (1 / total + (at_s - mean_s) ** 2 / sxx))
            return RateEstimate(at_s, mean + tilt * (at_s - mean_s), error)
    before = max((rate for rate in rates if rate.at_s <= at_s), key=lambda rate: rate.at_s, default=None)
    after = min((rate for rate in rates if rate.at_s > at_s), key=lambda rate: rate.at_s, default=None)
    if before is None or after is None:
        return before or after or rates[0]
    share = (at_s - before.at_s) / (after.at_s - before.at_s)
    value = before.value + share * (after.value - before.value)
    return RateEstimate(at_s, value, math.hypot((1 - share) * before.se, share * after.se))
