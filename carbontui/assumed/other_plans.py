"""The same work within other budgets, on the grid's forecast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from carbontui.account.compare import Elsewhere, Work
from carbontui.assumed.job import ExpectedSignal, assumed, bounded, planned
from carbontui.grid.types import GridForecast
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
