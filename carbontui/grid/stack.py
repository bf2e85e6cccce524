"""Blends the published and our own forecast, weighted by how both did in the last weeks.

At each horizon: own + a (published + nowcast - own) + b nowcast + c + d age (published + nowcast - own), where the
nowcast is the last value minus what was published for it, fading by a tenth per hour. The weights are a ridge
regression on past origins, shrunk to those of the horizon before, the first ones to a 45/55 blend. Numpy only.
"""

import numpy as np
from numpy.typing import NDArray

from carbontui.grid.ridge import HORIZON_H, Array

KNOTS = (0, 1, 2, 3, 5, 8, 11, 15, 19, 23, 29, 35, 41, 47, 59, 71, 95)
FADE = 0.9
FIRST_WEIGHTS = (0.45, 0.0, 0.0, 0.0)
PENALTY = 500.0
PENALTY_PER_H = 0.3
RELATIVE_PENALTY = np.array([1.0, 1.0, 10.0, 1.0])
SUSPECT = 5.0
DOUBT = 0.995
"""Factor per hour ahead on the prior weight of the published forecast, as it passes from knot to knot."""


def nowcast_error(last: Array, published_last: Array, own_last: Array) -> Array:
    """Last value minus its published forecast, per origin; the previous origin's where the value jumps away from both
    forecasts: a jump is more often a glitch than a real change, which the next hour would confirm.
    """
    error = np.nan_to_num(last - published_last)
    own = np.nan_to_num(last - own_last)
    leap = (np.abs(own) > SUSPECT * _spread(own)) & (np.abs(error) > SUSPECT * _spread(error))
    return np.where(leap, np.concatenate([error[:1], error[:-1]]), error)


def _spread(values: Array) -> float:
    return 1.4826 * float(np.median(np.abs(values))) + 1e-9


def blend(own: Array, published: Array, error: Array, age_h: Array, truth: Array, silent_h: float = 0.0) -> Array:
    """Blended forecasts, (origins, HORIZON_H); the last origin is the end of the last value, `silent_h` before now.

    own, published: forecasts per origin (NaN: not published); error, age_h: per origin the nowcast error and the age
    of the issue in hours; truth: realised values, NaN where not yet known. Trust fades from now on: issues that came
    since the last value know more of it than we.
    """
    fade = FADE ** np.arange(HORIZON_H)
    apart = published + error[:, None] * fade - own
    late = (age_h / 23.0 - 0.5)[:, None]
    weights = np.empty((len(FIRST_WEIGHTS), len(KNOTS)))
    prior = np.array(FIRST_WEIGHTS)
    for knot, h in enumerate(KNOTS):
        rows = np.stack([apart[:, h], error * fade[h], np.ones(len(own)), apart[:, h] * late[:, 0]], axis=1)
        missed = truth[:, h] - own[:, h]
        good = np.isfinite(missed) & np.isfinite(apart[:, h])
        penalty = PENALTY * (1 + PENALTY_PER_H * max(0.0, h - silent_h))
        prior = _fit(rows[good], missed[good], own[good, h], penalty, prior)
        weights[:, knot] = prior
        following = KNOTS[min(knot + 1, len(KNOTS) - 1)]
        prior = prior * np.array([DOUBT ** max(0.0, following - max(h, silent_h)), 1.0, 0.9, 1.0])
    a, b, c, d = (np.interp(np.arange(HORIZON_H), KNOTS, row) for row in weights)
    change = (a + d * late) * apart + b * fade * error[:, None] + c
    return own + _carried(change)


def _fit(rows: Array, missed: Array, level: Array, penalty: float, prior: Array) -> Array:
    if len(rows) < 24:
        return prior
    weight = 1 / np.maximum(level, 1e-3 * float(np.mean(level)) + 1e-9)
    weight = weight / weight.mean()
    weighted = rows * weight[:, None]
    shrink = penalty * RELATIVE_PENALTY * (np.mean(rows**2, axis=0) + 1e-9)
    solved: Array = prior + np.linalg.solve(weighted.T @ rows + np.diag(shrink), weighted.T @ (missed - rows @ prior))
    return solved


def _carried(change: Array) -> Array:
    """Let the last change fade beyond the end of an issue, instead of ending in a step."""
    known = np.isfinite(change)
    column = np.arange(change.shape[1])[None, :]
    last: NDArray[np.int64] = np.maximum.accumulate(np.where(known, column, -1), axis=1)
    held = np.take_along_axis(change, np.maximum(last, 0), axis=1)
    return np.where(last >= 0, held * 0.9 ** (column - last), 0.0)
