"""The same work started at other hours, and under other budgets, on the grid's forecast."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from carbontui import units
from carbontui.account.compare import Elsewhere, Work
from carbontui.account.expected_end import Stretch, to_come
from carbontui.assumed.bounded import bounded
from carbontui.assumed.job import assumed, on_hours
from carbontui.assumed.signals import ExpectedSignal
from carbontui.grid.types import GridForecast
from carbontui.plan.planner import solve
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
        part = Stretch(hour.at_s, hour.at_s + work.work_s, watts)
        grams = to_come([part], outlook.start_s, outlook.step_s, outlook.mean)
        cost = to_come([part], outlook.start_s, outlook.step_s, outlook.price) if outlook.price else None
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
