"""The same work under other terms, on the grid's forecast: started at other hours, under other budgets, planned by the
other signal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from carbontui import units
from carbontui.account.compare import Elsewhere, Work
from carbontui.account.expected_end import WorkSegment, remaining_total
from carbontui.assumed.job import TypicalDays, assumed, bounded, on_hours
from carbontui.grid.types import GridForecast
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemError
from carbontui.plan.results import Schedule
from carbontui.text import figures


class StartHour(NamedTuple):
    """A start time, epoch seconds, and its name for the user."""

    at_s: float
    name: str


def start_hours(now_s: float) -> list[StartHour]:
    """Now, in a few hours, tonight at 22:00 and tomorrow at 06:00 and 12:00 local time, in order."""
    found = [StartHour(now_s, "now")] + [StartHour(now_s + 3600.0 * h, f"in {h} h") for h in (1, 3, 6, 12)]
    today = datetime.fromtimestamp(now_s)
    tomorrow = today + timedelta(days=1)
    named = ((today, 22, "tonight 22:00"), (tomorrow, 6, "tomorrow 06:00"), (tomorrow, 12, "tomorrow 12:00"))
    for day, hour, name in named:
        at_s = day.replace(hour=hour, minute=0, second=0, microsecond=0).timestamp()
        if at_s > now_s:
            found.append(StartHour(at_s, name))
    return sorted(found)


def at_hours(work: Work, outlook: GridForecast, hours: Iterable[StartHour], now_s: float) -> list[Elsewhere]:
    """The work started at each hour, at full speed; its time includes the waiting. Cost in the outlook's currency,
    where every price is known."""
    watts = work.boards_w + work.rest_w
    found = []
    for hour in hours:
        part = WorkSegment(hour.at_s, hour.at_s + work.work_s, watts)
        grams = remaining_total([part], outlook.start_s, outlook.step_s, outlook.mean)
        cost = remaining_total([part], outlook.start_s, outlook.step_s, outlook.price) if outlook.price else None
        found.append(
            Elsewhere(
                hour.name,
                1.0,
                hour.at_s + work.work_s - now_s,
                units.joules_to_kwh(watts * work.work_s),
                grams,
                f"{outlook.how}: {outlook.source}",
                cost,
            )
        )
    return found


def within_budgets(work: Work, outlook: GridForecast, factors: Iterable[float], now_s: float) -> list[Elsewhere]:
    """The best plan of the work, started now or later, within each multiple of its time at full speed. Levels are those
    expected of any board from public measurements. Raises ProblemError where the forecast is too short."""
    grid = ExpectedSignal(outlook)
    job = bounded(assumed(work.boards_w, caps=True, running=False), "given-back", host_w=work.rest_w)
    found = []
    for factor in factors:
        plan = solve(on_hours(job, grid, work.work_s, now_s, now_s + factor * work.work_s))
        how = f"certified within {figures.percent(plan.gap, 2)}; {outlook.how}: {outlook.source}"
        found.append(Elsewhere(f"{factor:g}x", work.work_s / plan.finish_s, plan.finish_s, plan.kwh, plan.gco2, how))
    return found


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
