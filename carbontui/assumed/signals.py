"""The marginal and the average signal side by side: the plan for each, scored by the other. Each figure is of one
signal; they are never added or averaged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

from carbontui.assumed.job import TypicalDays
from carbontui.grid.types import GridForecast
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemError
from carbontui.plan.results import Schedule


@dataclass(frozen=True, slots=True)
class BySignal:
    """By one signal: grams of the plan made for it, of the plan made for the other signal, and of running now."""

    signal: str
    source: str
    plan_g: float
    other_plan_g: float
    run_now_g: float


class ExpectedSignal:
    """A live source's outlook (gCO2/kWh of equal slots) instead of a recorded grid."""

    def __init__(self, outlook: GridForecast) -> None:
        self._outlook = outlook
        self.source = outlook.source

    def slots(self, edges: list[float]) -> list[float]:
        """gCO2/kWh of each slot between the edges (epoch seconds). Raises ProblemError where one is unknown."""
        known = self._outlook.at(edges)
        if known is None:
            hours = sum(value is not None for value in self._outlook.mean) * self._outlook.step_s / 3600
            raise ProblemError("grid", f"{self.source} is known for {hours:.0f} h; shorten --budget")
        return known


def side_by_side(
    problem: Problem, plan: Schedule, other_g_per_kwh: list[float], names: tuple[str, str], sources: tuple[str, str]
) -> tuple[BySignal, BySignal]:
    """`plan` of `problem` and a plan of the same work by the other signal, each scored by both (own signal first)."""
    other = replace(problem, ci_g_per_kwh=tuple(other_g_per_kwh))
    rival = solve(other)
    found = []
    for k, (here, mine, theirs) in enumerate(((problem, plan, rival), (other, rival, plan))):
        now = next(baseline for baseline in mine.baselines if baseline.name == "run now")
        own_g, other_g = (evaluate(here, made.levels).gco2 for made in (mine, theirs))
        found.append(BySignal(names[k], sources[k], own_g, other_g, now.gco2))
    return found[0], found[1]


def beside_average(
    problem: Problem, plan: Schedule, start_s: float, zone: str, source: str
) -> tuple[BySignal, BySignal] | None:
    """The plan by the marginal signal and one by the zone's typical days; None where those are not known."""
    days = TypicalDays(zone)
    try:
        average = days.slots([start_s, *(start_s + at for at in accumulate(problem.dur_s))])
    except ValueError:
        return None
    return side_by_side(problem, plan, average, ("marginal", "average"), (source, days.source))
