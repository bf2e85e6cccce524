"""An objective of grams and money: `carbon=0.7,cost=0.3`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from carbontui.plan.problem import Problem


class Weight(NamedTuple):
    """Shares of carbon and of cost in the objective; they sum to 1."""

    carbon: float
    cost: float

    def scaled(self, ci_g_per_kwh: Sequence[float], price_per_kwh: Sequence[float]) -> tuple[float, float]:
        """(alpha, beta) of a problem: grams count by the share of carbon, and money so that a mean kWh of these
        intensities and prices is worth its share of cost, in grams. Prices count by their size: their mean may be
        zero or below. With no intensity or no price at all, the other counts alone."""
        grams = math.fsum(ci_g_per_kwh) / len(ci_g_per_kwh) if ci_g_per_kwh else 0.0
        money = math.fsum(map(abs, price_per_kwh)) / len(price_per_kwh) if price_per_kwh else 0.0
        if money <= 0 or grams <= 0:
            return (1.0, 0.0) if money > 0 else (0.0, 1.0)
        return self.cost * grams / money, self.carbon


def weighed(problem: Problem, weight: Weight | None) -> Problem:
    """The problem with the weights of its own slots; unchanged for None."""
    if weight is None:
        return problem
    alpha, beta = weight.scaled(problem.ci_g_per_kwh, problem.price_per_kwh or ())
    return replace(problem, alpha=alpha, beta=beta)


def parse(weighting: str) -> Weight:
    """`carbon=0.7,cost=0.3`, in any order and of any sum above zero. Raises ValueError naming the repair."""
    repair = f"{weighting[:40]!r} is no weighting; write it like carbon=0.7,cost=0.3"
    given: dict[str, float] = {}
    for part in weighting.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            number = float(value)
        except ValueError:
            raise ValueError(repair) from None
        if name not in Weight._fields or name in given or not (math.isfinite(number) and number >= 0):
            raise ValueError(repair)
        given[name] = number
    total = sum(given.values())
    if total <= 0:
        raise ValueError(repair)
    return Weight(given.get("carbon", 0.0) / total, given.get("cost", 0.0) / total)
