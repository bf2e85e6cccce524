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
from carbontui.assumed.job import ExpectedSignal, TypicalDays, assumed, bounded, planned
from carbontui.grid.types import GridForecast
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem
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


def within_budgets(
    work: Work,
    outlook: GridForecast,
    factors: Iterable[float],
    now_s: float,
    patience_pct: float = 0.0,
    *,
    caps: bool = True,
) -> list[Elsewhere]:
    """The plan of the work, started now or later, within each multiple of its time at full speed. With `caps`, those
    expected of any board from public measurements; without a board none. Raises ProblemError where the forecast is too
    short."""
    board = assumed(work.boards_w or work.rest_w, caps=caps and work.boards_w > 0, running=False)
    job = replace(bounded(board, "given-back", host_w=work.boards_w and work.rest_w), patience_pct=patience_pct)
    found = []
    for factor in factors:
        _, plan = planned(job, ExpectedSignal(outlook), work.work_s, now_s, now_s + factor * work.work_s, tol=1e-3)
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


def beside_average(
    problem: Problem, plan: Schedule, start_s: float, zone: str, source: str
) -> tuple[BySignal, BySignal] | None:
    """`plan` by the marginal signal and one of the same work by the zone's typical days, each scored by both, its own
    first; None where those days are not known."""
    days = TypicalDays(zone)
    try:
        average = days.slots([start_s, *(start_s + at for at in accumulate(problem.dur_s))])
    except ValueError:
        return None
    other = replace(problem, ci_g_per_kwh=tuple(average))
    rival = solve(other)

    def scored(signal: str, source: str, here: Problem, mine: Schedule, theirs: Schedule) -> BySignal:
        now = next(baseline for baseline in mine.baselines if baseline.name == "run now")
        own_g, other_g = (evaluate(here, made.levels).gco2 for made in (mine, theirs))
        return BySignal(signal, source, own_g, other_g, now.gco2)

    return scored("marginal", source, problem, plan, rival), scored("average", days.source, other, rival, plan)
