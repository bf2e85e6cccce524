"""The same work under other terms, on the grid's forecast: started at other hours, under other budgets, planned by the
other signal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from carbontui.account.compare import Elsewhere, Work
from carbontui.assumed.job import ExpectedSignal, TypicalDays, assumed, bounded, planned
from carbontui.grid.types import GridForecast
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem
from carbontui.plan.results import Schedule
from carbontui.text import figures


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
