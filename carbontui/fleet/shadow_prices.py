"""Shadow prices per watt and per GPU and slot, under which the jobs' individual choices fit together.

Every pair of prices gives a lower bound on the cost of any schedule; the best (`plan.ascent`) is the certificate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from carbontui.fleet.problem import FleetProblem, Floats
from carbontui.plan.ascent import Response, climb

PASSES_MOST = 80


class Priced(NamedTuple):
    """Prices in grams per watt and slot, and per GPU and slot; no schedule costs less than `bound_g`."""

    watt: Floats
    gpu: Floats
    bound_g: float


def bound_g(problem: FleetProblem, watt: Floats, gpu: Floats) -> float:
    """The lower bound given by any non-negative prices."""
    cost = float(problem.best(watt, gpu).cost.sum())
    return cost - float(watt @ problem.site.power_w) - float(gpu @ problem.site.gpus)


def priced(problem: FleetProblem, *, passes: int = PASSES_MOST, start: Priced | None = None) -> Priced:
    """The prices with the highest bound found; `start` are those of an earlier plan of the same slots."""
    site, t = problem.site, problem.site.slots
    # prices are per whole slot budget, so that watts and GPUs have the same scale
    whole = np.maximum(np.concatenate([site.power_w, site.gpus]), 1e-9)

    def answer(worth: Floats) -> Response:
        choice = problem.best(worth[:t] / whole[:t], worth[t:] / whole[t:])
        return Response(float(choice.cost.sum()), np.concatenate(problem.loads(choice.start, choice.level)) / whole)

    worth = np.zeros(2 * t) if start is None else np.concatenate([start.watt, start.gpu]) * whole
    best = climb(answer, worth, passes)
    return Priced(best.worth[:t] / whole[:t], best.worth[t:] / whole[t:], best.bound)
