"""The rules that other tools publish, each as its source states it, made to finish in time, on the same forecast.

They see what their authors let them see: none knows of idle watts, of caps, or of what a switch costs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from carbontui.assumed.job import Grid
from carbontui.extensions.evaluation.policies import Case, Knowledge, Policy, quantile, threshold, window

NEO_G = 300.0
NEO_WAIT_S = 24 * 3600.0
"""NEO starts at or below this intensity (gCO2/kWh), or after its longest wait."""
CATS_S = 48 * 3600.0
"""CATS looks this far ahead: as far as the British forecast it uses reaches."""


def rules(grid: Grid, known: Knowledge) -> dict[str, Policy]:
    """The rules by name. CarbonShift states two thresholds and leaves open what lies between: its state is kept."""
    return {
        "threshold, CarbonShift": lambda case: threshold(
            grid, case, quantile(grid, case, 0.3), quantile(grid, case, 0.7)
        ),
        "threshold, NEO": lambda case: threshold(grid, case, NEO_G, None, NEO_WAIT_S),
        "window, Let's Wait Awhile": lambda case: _start(case, known, lambda grams, wait_s, run_s, now: grams),
        "cheapest slots, Let's Wait Awhile": lambda case: window(case, known, "cheapest slots"),
        "window, CATS": lambda case: _start(
            case, known, lambda grams, wait_s, run_s, now: grams if wait_s + run_s <= CATS_S else math.inf
        ),
        "window, GAIA": lambda case: _start(
            case, known, lambda grams, wait_s, run_s, now: (grams - now) / (wait_s + run_s)
        ),
    }


def _start(case: Case, known: Knowledge, score: Callable[[float, float, float, float], float]) -> list[int]:
    """Wait at the initial level, then run at full speed: the start of the least `score(sum, wait_s, run_s, sum if
    started now)`, where a sum is gCO2/kWh times seconds of the window; at once where none fits."""
    problem, edges = case.problem, case.edges
    ci = known.intensity(edges)
    fast, first = problem.fastest, problem.initial_level
    into_s = problem.switch_s[first][fast] or 0.0
    run_s = problem.work_s / problem.levels[fast].speed + into_s

    def total(begin: int) -> float:
        end_s = edges[begin] + run_s
        return math.fsum(
            value * max(0.0, min(b, end_s) - a)
            for value, (a, b) in zip(ci[begin:], itertools.pairwise(edges[begin:]), strict=True)
        )

    starts = [k for k in range(len(ci)) if edges[k] + run_s <= edges[-1] + 1e-6] or [0]
    now = total(0)
    best = min(starts, key=lambda k: score(total(k), edges[k] - edges[0], run_s, now))
    return [first] * best + [fast] * (len(ci) - best)
