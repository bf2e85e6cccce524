"""The same work under other terms, on the grid's forecast: started at other hours, under other budgets, planned by the
other signal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from carbontui import units
from carbontui.account.compare import Elsewhere, Work, gains
from carbontui.account.expected_end import WorkSegment, remaining_total
from carbontui.assumed.job import ExpectedSignal, TypicalDays, assumed, bounded, planned
from carbontui.grid.types import GridForecast
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem
from carbontui.plan.results import Schedule
from carbontui.text import figures

GAIN_HOURS = (2.0, 8.0, 24.0)


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
    work: Work, outlook: GridForecast, factors: Iterable[float], now_s: float, patience_pct: float = 0.0
) -> list[Elsewhere]:
    """The plan of the work, started now or later, within each multiple of its time at full speed. Levels are those
    expected of any board from public measurements; without a board none is slower. Raises ProblemError where the
    forecast is too short."""
    board = assumed(work.boards_w or work.rest_w, caps=work.boards_w > 0, running=False)
    job = replace(bounded(board, "given-back", host_w=work.boards_w and work.rest_w), patience_pct=patience_pct)
    found = []
    for factor in factors:
        _, plan = planned(job, ExpectedSignal(outlook), work.work_s, now_s, now_s + factor * work.work_s, tol=1e-3)
        how = f"certified within {figures.percent(plan.gap, 2)}; {outlook.how}: {outlook.source}"
        found.append(Elsewhere(f"{factor:g}x", work.work_s / plan.finish_s, plan.finish_s, plan.kwh, plan.gco2, how))
    return found


def gain_words(outlook: GridForecast, now_s: float) -> str:
    """'a job of 2 h emits 31% less if started 12:00; of 8 h: 12% less, 09:00; of 24 h: now is as good'."""
    told: list[str] = []
    for hours, best in gains((outlook.mean, outlook.start_s, outlook.step_s), GAIN_HOURS, now_s):
        waits = best.begin_s > now_s
        when, less = figures.clock(best.begin_s, now_s), f"{figures.percent(best.saved)} less"
        if not told:
            lead = f"a job of {hours:.0f} h emits"
            told.append(f"{lead} {less} if started {when}" if waits else f"{lead} least if started now")
        else:
            told.append(f"of {hours:.0f} h: {f'{less}, {when}' if waits else 'now is as good'}")
    return "; ".join(told) or "no forecast reaches far enough"


def gain_brief(outlook: GridForecast, now_s: float) -> str:
    """'now as good as waiting', or '8 h of work −12 % from 09:00': the most that waiting gives one of GAIN_HOURS."""
    found = gains((outlook.mean, outlook.start_s, outlook.step_s), GAIN_HOURS, now_s)
    waits = [(best.saved, hours, best.begin_s) for hours, best in found if best.begin_s > now_s and best.saved >= 0.01]
    if not waits:
        return "now as good as waiting" if found else ""
    saved, hours, begin_s = max(waits)
    return f"{hours:.0f} h of work −{figures.percent(saved)} from {figures.clock(begin_s, now_s)}"


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
