"""Prices per watt and per GPU, slot by slot, under which jobs that each choose for themselves fit together.

The Lagrangian dual of "no slot above its watts and GPUs": every pair of prices gives a lower bound on what any schedule
costs; the best is the certificate. Maximised along the loads with a step size of its own per price (Adam, Kingma and
Ba, arXiv 1412.6980): slots that swing between empty and full, as they do among many equal jobs, get small steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from carbontui.fleet.problem import FleetProblem, Floats

PASSES_MOST = 80
STEP = 0.2
"""Of what all slots' prices would be together if a slot's share of all cost were its budget's price."""
DECAY = 0.975
"""Of the step, from pass to pass: small enough at the end for the third digit of the bound."""
MOMENTUM, SPREAD = 0.8, 0.95
STALL_PASSES, STALL = 12, 2e-4
"""Given up when so many passes have not raised the bound by this share."""


class Priced(NamedTuple):
    """Prices in grams per watt and slot, and per GPU and slot; no schedule costs less than `bound_g`."""

    watt: Floats
    gpu: Floats
    bound_g: float


def bound_g(problem: FleetProblem, watt: Floats, gpu: Floats) -> float:
    """The lower bound that any prices of zero and above give."""
    cost = float(problem.best(watt, gpu).cost.sum())
    return cost - float(watt @ problem.site.power_w) - float(gpu @ problem.site.gpus)


def priced(problem: FleetProblem, *, passes: int = PASSES_MOST, start: Priced | None = None) -> Priced:
    """The prices with the highest bound found; `start` are those of an earlier plan of the same slots."""
    site, t = problem.site, problem.site.slots
    # a slot's budget is priced as a whole: watts and GPUs are then of one size
    whole = np.maximum(np.concatenate([site.power_w, site.gpus]), 1e-9)
    worth = np.zeros(2 * t) if start is None else np.concatenate([start.watt, start.gpu]) * whole
    best, best_worth, level = -np.inf, worth, 0.0
    mean, square = np.zeros(2 * t), np.zeros(2 * t)
    bests: list[float] = []
    for count in range(1, passes + 1):
        choice = problem.best(worth[:t] / whole[:t], worth[t:] / whole[t:])
        value = float(choice.cost.sum()) - float(worth.sum())
        if value > best:
            best, best_worth = value, worth
        bests.append(best)
        over = np.concatenate(problem.loads(choice.start, choice.level)) / whole - 1.0
        if not np.any((over > 0) | (worth > 0)):
            break  # everything fits where it is best for itself
        if count > STALL_PASSES and best - bests[-STALL_PASSES - 1] < STALL * abs(best):
            break
        level = level or STEP * abs(value) / (2 * t)
        slope = np.where((worth <= 0) & (over < 0), 0.0, over)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * slope
        square = SPREAD * square + (1 - SPREAD) * slope * slope
        ahead = (mean / (1 - MOMENTUM**count)) / (np.sqrt(square / (1 - SPREAD**count)) + 1e-3)
        worth = np.maximum(0.0, worth + level * DECAY**count * ahead)
    return Priced(best_worth[:t] / whole[:t], best_worth[t:] / whole[t:], best)
