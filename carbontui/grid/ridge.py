"""Ridge regression on lags and calendar: hourly, one coefficient vector per horizon, no knowledge of the zone.

The target is the departure, on a shifted log scale, from the mean of the same hour on the seven days before; the
features are recent departures, the shape of the day, time of day and week, and products. The penalty is chosen by
blocked cross-validation in time, so a short or erratic history falls back to that mean. Numpy only; runs in the worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HORIZON_H = 96
LAGS_H = 72
WARM_H = 8 * 24
"""Hours before an origin that its features read, rounded up to days."""
LEAST_ORIGINS = 14 * 24
KEY_LAGS = (0, 1, 2, 3, 4, 5, 8, 11, 17, 22, 23, 24)
PENALTIES = (4.0, 12.0, 40.0, 120.0, 400.0, 1200.0, 4000.0, 12000.0)
SPANS = (0, 2, 4, 12, 36, HORIZON_H)
"""Near horizons depend on a few strong lags, far ones on many weak ones: each span has its own penalty."""
KNOTS = (0, 1, 2, 3, 5, 8, 11, 17, 23, 35, 47, 71, 95)
BLOCKS = 5
FLOOR_SHARE = 0.2
LEAP = 6.0
LEAPS_AT_FIRST, LEAP_RETURNS = 3, -0.2
"""Prior before any jump has been scored: three jumps that went back by a fifth."""


def fill(values: Array) -> Array:
    """Fill gaps up to 3 h by interpolation, longer ones from the same hour a day before (else after), else the mean."""
    out: Array = values.copy()
    known = np.flatnonzero(np.isfinite(out))
    if known.size == 0:
        out[:] = 0.0
        return out
    before = np.maximum.accumulate(np.where(np.isfinite(out), np.arange(out.size), -1))
    after = np.minimum.accumulate(np.where(np.isfinite(out), np.arange(out.size), out.size)[::-1])[::-1]
    missing = ~np.isfinite(values)
    short = missing & (after - before <= 4) & (before >= 0) & (after < out.size)
    out[short] = np.interp(np.flatnonzero(short), known, out[known])
    for k in np.flatnonzero(~np.isfinite(out)):
        if k >= 24:
            out[k] = out[k - 24]
    for k in np.flatnonzero(~np.isfinite(out))[::-1]:
        if k + 24 < out.size:
            out[k] = out[k + 24]
    out[~np.isfinite(out)] = float(values[known].mean())
    return out


def despike(values: Array) -> Array:
    """Replace single hours that jump away from two similar neighbours by the neighbours' mean."""
    if values.size < 3:
        return values
    left, right = values[1:-1] - values[:-2], values[1:-1] - values[2:]
    leap = np.minimum(np.abs(left), np.abs(right)) * (np.sign(left) == np.sign(right))
    usual = float(np.median(np.abs(np.diff(values))))
    apart = np.abs(values[2:] - values[:-2])
    bad = np.flatnonzero((leap > 5 * usual) & (leap > 0.08 * np.abs(values[1:-1])) & (apart < 0.5 * leap)) + 1
    out: Array = values.copy()
    out[bad] = 0.5 * (values[bad - 1] + values[bad + 1])
    return out


def same_hour(clean: Array, origins: NDArray[np.int64]) -> Array:
    """(origins, 24): mean over the seven days before of the hour q hours after the origin."""
    at = origins[:, None] + np.arange(24)[None, :]
    base: Array = np.mean([clean[at - 24 * day] for day in range(1, 8)], axis=0)
    return base


def features(values: Array, clean: Array, first_h: float, origins: NDArray[np.int64]) -> tuple[Array, Array]:
    """Feature rows and the (origins, 24) base; only values before each origin are read. first_h: epoch hours of [0]."""
    base = same_hour(clean, origins)
    lags = np.arange(1, LAGS_H + 1)
    recent = clean[origins[:, None] - lags[None, :]]
    recent[:, 0] = values[origins - 1]  # whether the newest value is a spike is not known yet
    apart = recent - base[:, (-lags) % 24]
    hours: Array = first_h + origins.astype(float)
    wave = _waves(hours, 24, range(1, 5))
    week = _waves(hours, 168, (k for k in range(1, 18) if k % 7))
    level = (recent[:, :24].mean(axis=1) - base.mean(axis=1))[:, None]
    shape = (base - base.mean(axis=1, keepdims=True))[:, ::3]
    last_week = clean[origins[:, None] + np.arange(24)[None, :] - 168] - base
    key = np.concatenate([apart[:, KEY_LAGS], level], axis=1)
    products = (key[:, None, :] * wave[:, :, None]).reshape(origins.size, -1)
    one = np.ones((origins.size, 1))
    parts = [apart, wave, week, level, base.std(axis=1)[:, None], shape, last_week, products, one]
    return np.concatenate(parts, axis=1), base


def _waves(hours: Array, period_h: int, orders: Iterable[int]) -> Array:
    angle = (hours % period_h) * (2 * np.pi / period_h)
    return np.stack([part(k * angle) for k in orders for part in (np.sin, np.cos)], axis=1)


_KEYS = len(KEY_LAGS) + 1
SHRINKAGE = np.repeat(
    [0.3, 1.0, 1.0, 1.0, 0.1, 10.0, 15.0, 30.0, 60.0, 1e-8], [2, LAGS_H - 2, 8, 30, 1, 1, 8, 24, 8 * _KEYS, 1]
)
"""Relative penalty per feature, in the order of `features`: low for lags and calendar, high for details."""


@dataclass(frozen=True, slots=True)
class Ridge:
    """Fitted coefficients (features, HORIZON_H) on standardised features of log(value + shift).

    until_h: epoch hour at which the training values end; optimism: per horizon, the ratio of errors on held-out values
    to errors on training values.
    """

    coefficients: Array
    centre: Array
    scale: Array
    shift: float
    reach: float
    floor: float
    until_h: float
    optimism: Array

    @classmethod
    def fit(cls, hourly: Array, first_h: float, *, signed: bool = False) -> Ridge | None:
        """Fit to an hourly series (NaN: gap); None when it is too short, has too many gaps or is constant.

        `signed`: the values may fall below zero, and further than ever seen.
        """
        last = hourly.size - HORIZON_H
        known = np.isfinite(hourly)
        if last - WARM_H < LEAST_ORIGINS or known.mean() < 0.5 or np.ptp(hourly[known]) < 1e-9:
            return None
        raw = fill(hourly)
        shift = float(np.abs(raw).mean() - min(0.0, raw.min()))
        values, clean = _log(raw, shift), _log(despike(raw), shift)
        origins = np.arange(WARM_H, last + 1)
        # skip origins whose week or targets are mostly filled in
        counted = np.concatenate([[0.0], np.cumsum(known)])
        share = (counted[origins + HORIZON_H] - counted[origins - 168]) / (168 + HORIZON_H)
        origins = origins[(share > 0.5) & known[origins - 1]]
        if origins.size < LEAST_ORIGINS:
            return None
        rows, base = features(values, clean, first_h, origins)
        centre, scale = rows.mean(axis=0), rows.std(axis=0)
        centre[-1], scale[-1] = 0.0, 1.0
        scale[scale < 1e-9] = 1.0
        scale *= np.sqrt(SHRINKAGE)
        rows = (rows - centre) / scale
        ahead = np.arange(HORIZON_H)
        targets = values[origins[:, None] + ahead[None, :]] - base[:, ahead % 24]
        coefficients, optimism = _solve(rows, targets)
        floor = -np.inf if signed else FLOOR_SHARE * float(np.nanmin(hourly))
        reach = 2 * float(np.abs(targets).max())
        return cls(coefficients, centre, scale, shift, reach, floor, first_h + hourly.size, optimism)

    def rows(self, values: Array, clean: Array, first_h: float, origins: NDArray[np.int64]) -> Array:
        """(origins, HORIZON_H) predicted values; column h is the hour that starts h hours after the origin."""
        values, clean = _log(values, self.shift), _log(clean, self.shift)
        predicted = self._logs(values, clean, first_h, origins)
        suspect, believed = _tempered(values, predicted[:, 0], origins)
        if suspect.size:
            told = values.copy()
            told[origins[suspect] - 1] = believed
            predicted[suspect] = self._logs(told, clean, first_h, origins[suspect])
        floored: Array = np.maximum(np.exp(predicted) - self.shift, self.floor)
        return floored

    def _logs(self, values: Array, clean: Array, first_h: float, origins: NDArray[np.int64]) -> Array:
        rows, base = features(values, clean, first_h, origins)
        departure = np.clip(((rows - self.centre) / self.scale) @ self.coefficients, -self.reach, self.reach)
        departure += np.tile(base, (1, HORIZON_H // 24))
        return departure


def _tempered(values: Array, following: Array, origins: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """Origins (by index, consecutive ones) whose newest value jumps from its forecast, and the value to use instead.

    Spikes go back in the next hour, real changes stay: the outcomes of earlier jumps decide how much of one to believe.
    """
    leap = np.concatenate([[0.0], values[origins[:-1]] - following[:-1]])
    usual = 1.4826 * float(np.median(np.abs(leap))) + 1e-9
    found: list[int] = []
    for k in np.flatnonzero(np.abs(leap) > LEAP * usual).tolist():
        # the way back from a jump does not count as a jump
        if not (found and found[-1] == k - 1 and leap[k] * leap[k - 1] < 0):
            found.append(k)
    suspect: NDArray[np.int64] = np.array(found, dtype=np.int64)
    judged = suspect[suspect < origins.size - 1]
    back = np.clip((values[origins[judged]] - following[judged]) / leap[judged], -1.0, 1.0)
    so_far = np.concatenate([[0.0], np.cumsum(back)])
    # the outcome of a jump is known two origins later
    count = np.searchsorted(judged, suspect - 1, side="right")
    share = 1 + np.minimum(0.0, (so_far[count] + LEAPS_AT_FIRST * LEAP_RETURNS) / (count + LEAPS_AT_FIRST))
    believed: Array = following[suspect - 1] + share * leap[suspect]
    return suspect, believed


def _log(values: Array, shift: float) -> Array:
    """Logarithm, since errors count relative to the value; the shift keeps low and zero values from dominating."""
    logs: Array = np.log(np.maximum(values + shift, 0.05 * shift))
    return logs


def _solve(rows: Array, targets: Array) -> tuple[Array, Array]:
    """Coefficients, and the optimism per horizon. The penalty of each span of horizons is the one that does best on
    held-out blocks of time (their edges are not scored)."""
    cuts = np.linspace(0, len(rows), BLOCKS + 1).astype(int)
    blocks = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    grams = [rows[block].T @ rows[block] for block in blocks]
    moments = [rows[block].T @ targets[block] for block in blocks]
    gram, moment = np.sum(grams, axis=0), np.sum(moments, axis=0)
    knots = np.array(KNOTS)
    missed = np.zeros((len(PENALTIES), knots.size))
    margin = min(HORIZON_H, len(rows) // BLOCKS // 4)
    judged = np.zeros(0, dtype=np.int64)
    for block, its_gram, its_moment in zip(blocks, grams, moments, strict=True):
        power, turn = np.linalg.eigh(gram - its_gram)
        turned = turn.T @ (moment - its_moment)[:, knots]
        some = np.arange(block.start + margin, block.stop - margin, 3)
        seen, wanted = rows[some] @ turn, targets[np.ix_(some, knots)]
        for k, penalty in enumerate(PENALTIES):
            guess = seen @ (turned / (np.maximum(power, 0.0) + penalty)[:, None])
            missed[k] += np.abs(wanted - guess).sum(axis=0)
        judged = np.concatenate([judged, some])
    power, turn = np.linalg.eigh(gram)
    turned = turn.T @ moment
    chosen = np.empty(knots.size)
    middles, penalties = [], []
    for first, until in itertools.pairwise(SPANS):
        inside = (knots >= first) & (knots < until)
        best = int(np.argmin(missed[:, inside].sum(axis=1)))
        chosen[inside] = missed[best, inside]
        middles.append((first + until - 1) / 2)
        penalties.append(np.log(PENALTIES[best]))
    # between the middles of two spans the penalty passes from one to the other: their edge is no step in the forecast
    passing = np.exp(np.interp(np.arange(HORIZON_H), middles, penalties))
    coefficients = turn @ (turned / (np.maximum(power, 0.0)[:, None] + passing))
    learned = np.abs(targets[np.ix_(judged, knots)] - rows[judged] @ coefficients[:, knots]).sum(axis=0)
    optimism = np.clip(chosen / np.maximum(learned, 1e-9), 1.0, 2.0)
    return coefficients, np.interp(np.arange(HORIZON_H), knots, optimism)
