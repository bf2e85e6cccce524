"""How long the rest of a training takes, from times of equal amounts of its work: an estimate with an interval.

Times of equal amounts of work (epochs, or blocks of steps) form a series. The prediction is their mean times the
amount left. Its error has two parts, as for any prediction of a sum: the noise of the remaining work, and the error of
the mean, multiplied by all that is left. Steps are not independent (a busy machine is busy for a while), so the noise
is measured between batches of consecutive times: with m batches of k each, whose means deviate by s, the variance of a
sum over B is s^2 (k B + B^2 / m), and Student's t with m - 1 degrees gives the interval (batch means: Law and Kelton,
Simulation Modeling and Analysis). Batches still correlated with their neighbours widen it by (1 + r) / (1 - r), r being
their lag-1 correlation, bias-corrected for short series (Kendall 1954). If a few times are far above the rest, the
upper end follows Johnson's skewness-corrected t (1978): a checkpoint or another program's burst recurs.
"""

import math
import statistics
from dataclasses import dataclass
from functools import lru_cache
from typing import List, Optional, Sequence, Tuple

BATCHES = 10
"""With more, each is too short to outlast the correlation; with fewer, the deviation itself is poorly known."""
LEAST = 5
"""Minimum number of times for a prediction."""
WARMUP_SHARE = 0.25
"""Warm-up is looked for in the first quarter only."""
WARMUP_MADS = 6.0
"""A first time this many deviations (1.4826 x median absolute deviation) above the median of the rest is warm-up."""
DRIFT_ALPHA = 0.03
"""False-positive rate of the drift test."""
DRIFT_LEAST = 1e-3
"""A smaller relative change is not reported as drift."""
HALF_MOST = 0.95
"""The end of a line fitted to noise may be negative, which no time can be: it is limited to this share of the mean."""
CORRELATED_ABOVE = 1.0
"""A correlation below this many of its standard errors (1 / sqrt(m)) is treated as chance."""
CORRELATION_MOST = 0.9
SKEWED_ABOVE = 1.0
"""Skewness from which the upper end is corrected; independent normal times of ten batches rarely reach it."""
MAD = 1.4826
CONFIDENCE = 0.95
NORMAL_80 = 1.2815515655446004
"""Half the width of the central 80 % of a normal distribution."""


@dataclass(frozen=True)
class Prediction:
    """Seconds (or the unit of the times) for the amount left. `drift` is the change over the observed times relative to
    their beginning; if `drifting` is true the interval does not cover a continued drift."""

    value: float
    lo: float
    hi: float
    mean: float
    timed: int
    warmup: int
    drifting: bool
    drift: float


def remaining(times: Sequence[float], left: float) -> Optional[Prediction]:
    """What `left` more of the same amount take; None before LEAST times are known. A drifting training is predicted
    from the last half of the times. Raises ValueError for a time that is not finite or negative."""
    if any(not math.isfinite(time) or time < 0 for time in times):
        raise ValueError("times must be finite and not negative")
    warm = warmup(times)
    kept = times[warm:]
    if len(kept) < LEAST:
        return None
    means, size = batches(kept)
    drift, drifting = trend(means)
    if drifting:
        means = means[len(means) // 2 :]
    count, mean, deviation = len(means), statistics.fmean(means), statistics.stdev(means)
    wide = _widening(correlation([value - mean for value in means]))
    t = t_quantile(CONFIDENCE, count - 1)
    half = t * deviation * math.sqrt(wide * (size * left + left * left / count))
    more = left * deviation * _skewed(means, mean, deviation, t)
    value = mean * left
    return Prediction(value, max(0.0, value - half), value + half + more, mean, len(kept), warm, drifting, drift)


def mean_error(values: Sequence[float]) -> Optional[float]:
    """Relative standard error of the mean of a correlated series; wider with few batches (by Student's t over the
    normal quantile of 80 %). None for fewer than LEAST values, or a mean of zero."""
    if len(values) < LEAST:
        return None
    means, _ = batches(values)
    mean, count = statistics.fmean(means), len(means)
    if mean <= 0:
        return None
    wide = _widening(correlation([value - mean for value in means]))
    few = t_quantile(0.8, count - 1) / NORMAL_80
    return few * statistics.stdev(means) * math.sqrt(wide / count) / mean


def _skewed(means: Sequence[float], mean: float, deviation: float, t: float) -> float:
    """Extra distance of a mean's upper end, in deviations, for right-skewed times."""
    count = len(means)
    if deviation <= 0 or count < 3:
        return 0.0
    cubes = math.fsum((value - mean) ** 3 for value in means)
    skewness = cubes / deviation**3 * count / ((count - 1) * (count - 2))
    if skewness < SKEWED_ABOVE:
        return 0.0
    return skewness / (6 * count) + skewness * t * t / (3 * count)


def correlation(deviations: Sequence[float]) -> float:
    """Bias-corrected, non-negative lag-1 correlation of deviations from a mean or a line; 0 if not significant."""
    count = len(deviations)
    power = math.fsum(value * value for value in deviations)
    if power <= 0 or count < LEAST:
        return 0.0
    raw = math.fsum(a * b for a, b in zip(deviations, deviations[1:])) / power
    found = min(CORRELATION_MOST, (raw * count + 1) / (count - 3))
    return found if found > CORRELATED_ABOVE / math.sqrt(count) else 0.0


def _widening(value: float) -> float:
    return (1 + value) / (1 - value)


def warmup(times: Sequence[float]) -> int:
    """How many of the first times are warm-up (compilation, caches, clocks): far slower than the times that follow."""
    most = int(len(times) * WARMUP_SHARE)
    if not most:
        return 0
    middle = statistics.median(times[most:])
    spread = MAD * statistics.median(abs(time - middle) for time in times[most:])
    slow = middle + WARMUP_MADS * max(spread, 1e-3 * middle)
    return next((count for count in range(most, 0, -1) if times[count - 1] > slow), 0)


def batches(times: Sequence[float]) -> Tuple[List[float], int]:
    """Means of BATCHES to 2 x BATCHES - 1 equal batches, and their size; with fewer times each is its own batch. The
    oldest that do not fill a batch are dropped."""
    size = max(1, len(times) // BATCHES)
    count = len(times) // size
    first = len(times) - count * size
    return [statistics.fmean(times[first + k * size : first + (k + 1) * size]) for k in range(count)], size


def trend(means: Sequence[float]) -> Tuple[float, bool]:
    """The change from the first to the last as a share of the first, by least squares, and whether it is more than
    chance."""
    count = len(means)
    middle, centre = statistics.fmean(means), (count - 1) / 2
    spread = math.fsum((k - centre) ** 2 for k in range(count))
    slope = math.fsum((k - centre) * (value - middle) for k, value in enumerate(means)) / spread
    beside = [value - middle - slope * (k - centre) for k, value in enumerate(means)]
    if middle <= 0:
        return 0.0, False
    half = max(-HALF_MOST, min(HALF_MOST, slope * (count - 1) / 2 / middle))
    change = (1 + half) / (1 - half) - 1
    wide = _widening(correlation(beside))
    error = math.sqrt(wide * math.fsum(value * value for value in beside) / (count - 2) / spread)
    real = abs(slope) > t_quantile(1 - DRIFT_ALPHA, count - 2) * error
    return change, real and abs(change) > DRIFT_LEAST


@lru_cache(maxsize=None)
def t_quantile(confidence: float, degrees: int) -> float:
    """Half the width of the central `confidence` of Student's t, in its own units; bisection on the incomplete beta."""
    if degrees < 1:
        return math.inf
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        if _central(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _central(t: float, degrees: int) -> float:
    """P(|T| < t) for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    theta = math.atan2(t, math.sqrt(degrees))
    cos2, sin = math.cos(theta) ** 2, math.sin(theta)
    odd = degrees % 2
    term = total = (math.cos(theta) if degrees > 1 else 0.0) if odd else 1.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    return 2 / math.pi * (theta + sin * total) if odd else sin * total
