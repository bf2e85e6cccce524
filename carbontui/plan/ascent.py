"""Prices of limits that several jobs share: the Lagrangian dual of "nothing above its limit", maximised.

Any non-negative prices give a lower bound on the jobs' joint cost; the best bound found is the certificate. Gradient
ascent along the overloads, with a step size per price (Adam, Kingma and Ba, arXiv 1412.6980): limits that swing between
empty and full, as they do among many equal jobs, get small steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

STEP = 0.2
"""Initial step, as a share of the bound divided evenly among the limits."""
DECAY = 0.975
"""Factor on the step per pass: small enough at the end for the third digit of the bound."""
MOMENTUM, SPREAD = 0.8, 0.95
STALL_PASSES, STALL = 12, 2e-4
"""Stop when this many passes have not raised the bound by this share."""


class Response(NamedTuple):
    """The jobs' response to given prices: their joint cost including the prices paid, and the load of each limit (1:
    full)."""

    cost: float
    filled: Floats


class Climbed(NamedTuple):
    """`worth`: the price of each limit as a whole; no solution costs less than `bound`."""

    worth: Floats
    bound: float


def climb(answer: Callable[[Floats], Response], start: Floats, passes: int) -> Climbed:
    """The best prices found in at most `passes` passes from `start`."""
    worth, count_of = start, len(start)
    best, best_worth, level = -np.inf, worth, 0.0
    mean, square = np.zeros(count_of), np.zeros(count_of)
    bests: list[float] = []
    for count in range(1, passes + 1):
        cost, filled = answer(worth)
        value = cost - float(worth.sum())
        if value > best:
            best, best_worth = value, worth
        bests.append(best)
        over = filled - 1.0
        if not np.any((over > 0) | (worth > 0)):
            break  # all limits hold with every job at its own optimum
        if count > STALL_PASSES and best - bests[-STALL_PASSES - 1] < STALL * abs(best):
            break
        level = level or STEP * abs(value) / count_of
        slope = np.where((worth <= 0) & (over < 0), 0.0, over)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * slope
        square = SPREAD * square + (1 - SPREAD) * slope * slope
        ahead = (mean / (1 - MOMENTUM**count)) / (np.sqrt(square / (1 - SPREAD**count)) + 1e-3)
        worth = np.maximum(0.0, worth + level * DECAY**count * ahead)
    return Climbed(best_worth, best)
