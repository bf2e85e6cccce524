"""Ridge regression on lags and calendar: hourly, one coefficient vector per horizon, nothing known of the zone.

What is predicted is the departure from the mean of the same hour on the seven days before; the features are recent
departures, the shape of the week, the time of day and their products. Numpy only; runs in the worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HORIZON_H = 96
LAGS_H = 72
WARM_H = 8 * 24
"""Hours before an origin that its features look at, rounded up to days."""
LEAST_ORIGINS = 14 * 24
KEY_LAGS = (0, 1, 2, 3, 4, 5, 8, 11, 17, 22, 23, 24)
# near horizons rest on a few strong lags and want little shrinkage, far ones on many weak ones; chosen on
# 2020 to mid 2021, the same for every zone
PENALTIES = ((2, 25.0), (4, 60.0), (HORIZON_H, 150.0))
FLOOR_SHARE = 0.2


def fill(values: Array) -> Array:
    """Gaps up to 3 h by interpolation, longer ones by the same hour a day before (else after), else the mean."""
    out: Array = values.copy()
    known = np.flatnonzero(np.isfinite(out))
    if known.size == 0:
        out[:] = 0.0
        return out
    if known.size == out.size:
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
    """Single hours that leap from two neighbours that agree with each other are replaced by their mean."""
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
    """(origins, 24): mean over the seven days before of the hour that lies q hours after the origin."""
    at = origins[:, None] + np.arange(24)[None, :]
    base: Array = np.mean([clean[at - 24 * day] for day in range(1, 8)], axis=0)
    return base


def features(values: Array, clean: Array, first_h: float, origins: NDArray[np.int64]) -> tuple[Array, Array]:
    """Feature rows and the (origins, 24) base; only values before each origin are read. first_h: epoch hours of [0]."""
    base = same_hour(clean, origins)
    lags = np.arange(1, LAGS_H + 1)
    recent = clean[origins[:, None] - lags[None, :]]
    recent[:, 0] = values[origins - 1]  # whether the newest value is a spike cannot be known yet
    apart = recent - base[:, (-lags) % 24]
    hours = first_h + origins
    angle = (hours % 24) * (2 * np.pi / 24)
    wave = np.stack([part(k * angle) for k in range(1, 5) for part in (np.sin, np.cos)], axis=1)
    # the epoch began on a Thursday; a day counts as weekend by UTC
    weekend = np.stack([((hours + 12 * k) // 24 + 3) % 7 >= 5 for k in range(5)], axis=1).astype(float)
    level = (recent[:, :24].mean(axis=1) - base.mean(axis=1))[:, None]
    shape = (base - base.mean(axis=1, keepdims=True))[:, ::3]
    last_week = clean[origins[:, None] + np.arange(24)[None, :] - 168] - base
    key = np.concatenate([apart[:, KEY_LAGS], level], axis=1)
    columns = [apart, wave, weekend, level, base.std(axis=1)[:, None], shape, last_week]
    columns += [key * wave[:, k : k + 1] for k in range(wave.shape[1])]
    columns += [shape * wave[:, k : k + 1] for k in range(4)]
    return np.concatenate([*columns, np.ones((origins.size, 1))], axis=1), base


@dataclass(frozen=True, slots=True)
class Ridge:
    """Fitted coefficients (features, HORIZON_H) on standardised features."""

    coefficients: Array
    centre: Array
    scale: Array
    floor: float

    @classmethod
    def fit(cls, hourly: Array, first_h: float) -> Ridge | None:
        """Learn from an hourly series (NaN: gap); None when it is too short, too full of gaps or constant."""
        last = hourly.size - HORIZON_H
        known = np.isfinite(hourly)
        if last - WARM_H < LEAST_ORIGINS or known.mean() < 0.5 or np.ptp(hourly[known]) < 1e-9:
            return None
        values = fill(hourly)
        clean = despike(values)
        origins = np.arange(WARM_H, last + 1)
        # an origin whose week or whose targets were mostly made up teaches nothing
        counted = np.concatenate([[0.0], np.cumsum(known)])
        share = (counted[origins + HORIZON_H] - counted[origins - 168]) / (168 + HORIZON_H)
        origins = origins[(share > 0.75) & known[origins - 1]]
        if origins.size < LEAST_ORIGINS:
            return None
        rows, base = features(values, clean, first_h, origins)
        centre, scale = rows.mean(axis=0), rows.std(axis=0)
        centre[-1], scale[-1] = 0.0, 1.0
        scale[scale < 1e-9] = 1.0
        rows = (rows - centre) / scale
        targets = np.empty((origins.size, HORIZON_H))
        for h in range(HORIZON_H):
            targets[:, h] = values[origins + h] - base[:, h % 24]
        gram, moments = rows.T @ rows, rows.T @ targets
        coefficients = np.empty_like(moments)
        done = 0
        for until, penalty in PENALTIES:
            shrink = np.full(len(gram), penalty)
            shrink[-1] = 1e-6
            coefficients[:, done:until] = np.linalg.solve(gram + np.diag(shrink), moments[:, done:until])
            done = until
        return cls(coefficients, centre, scale, FLOOR_SHARE * float(np.nanmin(hourly)))

    def rows(self, values: Array, clean: Array, first_h: float, origins: NDArray[np.int64]) -> Array:
        """(origins, HORIZON_H) predicted values; column h is the hour that starts h hours after the origin."""
        rows, base = features(values, clean, first_h, origins)
        predicted: Any = np.tile(base, (1, HORIZON_H // 24))
        predicted += ((rows - self.centre) / self.scale) @ self.coefficients
        floored: Array = np.maximum(predicted, self.floor)
        return floored
