"""The worker's answers in the job's own terms: a plan on absolute time, a frontier for the whole job."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from carbontui import protocol, units
from carbontui.job.supervisor.core.planning.problem import PlanningProblem
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.plan import Level, Plan
from carbontui.job.worker.messages import PlanAnswer
from carbontui.plan.results import PlanFrontierPoint, PolicyResult, Window


def from_answer(
    setup: PlanningProblem,
    answer: PlanAnswer,
    made_at_s: float,
    deadline_s: float | None = None,
    work_left_s: float | None = None,
    patience_pct: float = 0.0,
) -> Plan:
    """The worker's answer as a plan on absolute time. `deadline_s` is given if the problem extends beyond it."""
    deadline = setup.deadline_s if deadline_s is None else deadline_s
    solved, per_s = answer.plan, setup.problem.price_of_time
    at_finish = solved.gap_at_finish(per_s) if per_s else None
    indices = solved.levels + (-1,) * (len(setup.durations) - len(solved.levels))
    finish_s = setup.start_s + solved.finish_s
    edges = setup.edges_s
    names = [
        "" if level < 0 or begin >= finish_s else setup.levels[level].name
        for level, begin in zip(indices, edges, strict=False)
    ]
    table = {level.name: level for level in setup.levels}
    run_now = next((entry for entry in answer.baselines if entry.name == "run now"), None)
    view = protocol.PlanView(
        made_at=units.iso(made_at_s),
        start=units.iso(setup.start_s),
        first_s=setup.first_s,
        slot_s=setup.slot_s,
        deadline=units.iso(deadline),
        levels=coded(names),
        table=setup.levels,
        finish=units.iso(finish_s),
        gco2_g=solved.gco2,
        cost=solved.cost,
        kwh=solved.kwh,
        avoided_g=run_now.gco2 - solved.gco2 if run_now else None,
        late_s=max(0.0, finish_s - deadline),
        certificate=protocol.Certificate(solved.lower_bound, solved.gap, solved.stage, at_finish),
        patience_pct=patience_pct,
        price_of_time_g_per_h=3600.0 * per_s,
        baselines=tuple(_baseline(entry, setup.start_s, deadline) for entry in answer.baselines),
        windows=tuple(_window(one, setup) for one in answer.windows),
        weights=answer.weights,
    )
    return Plan(tuple(names), edges, table, view, work_left_s, answer.free_gco2, answer.explanation)


def _window(one: Window, setup: PlanningProblem) -> protocol.PlanWindow:
    start, end = (units.iso(setup.start_s + at) for at in (one.start_s, one.end_s))
    figures = (round(one.ci_g_per_kwh, 2), round(one.kwh, 6), round(one.gco2, 4), round(one.gain, 4))
    return protocol.PlanWindow(start, end, setup.levels[one.level].name, *figures)


def _baseline(entry: PolicyResult, start_s: float, deadline_s: float) -> protocol.Baseline:
    finish_s = start_s + entry.finish_s
    feasible = finish_s <= deadline_s + 1.0 and not entry.violations
    return protocol.Baseline(entry.name, entry.gco2, entry.cost, units.iso(finish_s), feasible)


def with_scarcity(plan: Plan, price_g_per_kwh: Sequence[float]) -> Plan:
    """The same plan with the hours in which other jobs need watts of the site budget as well."""
    scarce = [slot for slot, price in enumerate(price_g_per_kwh) if price >= BUDGET_PRICE_LEAST]
    return replace(plan, scarce_s=(plan.edges_s[scarce[0]], plan.edges_s[scarce[-1] + 1])) if scarce else plan


def coded(names: list[str]) -> tuple[tuple[str, int], ...]:
    """Run-length coded names, without the finished tail."""
    unfinished = itertools.takewhile(bool, names)
    return tuple((name, sum(1 for _ in run)) for name, run in itertools.groupby(unfinished))


BUDGET_PRICE_LEAST = 0.5
"""A shadow price of the site budget below this many g/kWh is not mentioned."""


SAME_FINISH_S = 60.0
"""Frontier points that finish within this of each other are shown as one."""


def of_the_whole(
    totals: Totals, finish_s: float, gco2_g: float, cost: float, kwh: float, levels: tuple[tuple[str, int], ...]
) -> protocol.FrontierPoint:
    """A plan for the rest as a point for the whole job: with what it has used so far."""
    spent = totals.cost.value if totals.cost else 0.0
    return protocol.FrontierPoint(
        finish_s, (totals.gco2_g or 0.0) + gco2_g, spent + cost, totals.wall_kwh + kwh, levels
    )


def point_of(totals: Totals, plan: protocol.PlanView, budget_start_s: float) -> protocol.FrontierPoint:
    """What the whole job comes to under a plan."""
    finish_s = units.from_iso(plan.finish) - budget_start_s
    return of_the_whole(totals, finish_s, plan.gco2_g, plan.cost, plan.kwh, plan.levels)


def frontier_view(
    points: Sequence[PlanFrontierPoint],
    setup: PlanningProblem,
    plan: protocol.PlanView,
    budget_start_s: float,
    reference_s: float | None,
    totals: Totals,
) -> protocol.Frontier:
    """The worker's frontier as viewers see it: figures for the whole job, finish counted from the budget's start.

    The chosen point is the plan in force itself, which may lie slightly above the curve (a plan is not replaced for a
    small gain): other budgets are compared with what will really happen.
    """
    offset = setup.start_s - budget_start_s
    chosen = point_of(totals, plan, budget_start_s)
    shown = [chosen]
    for found in points:
        finish_s = offset + found.finish_s
        if abs(finish_s - chosen.finish_s) > SAME_FINISH_S:
            coded = tuple((setup.levels[level].name, count) for level, count in found.levels if level >= 0)
            shown.append(of_the_whole(totals, finish_s, found.gco2_g, found.cost, found.kwh, coded))
    shown.sort(key=lambda entry: entry.finish_s)
    return protocol.Frontier(tuple(shown), shown.index(chosen), reference_s)


def fixed_slots(override: protocol.Override | None, until_s: float | None, setup: PlanningProblem) -> dict[int, int]:
    """The slots fixed by a user's override: slot index -> level index.

    Without an end only the current slot is fixed: the rest is planned as if the override ended soon, anew every slot.
    """
    level = None if override is None else level_under(override, setup.levels)
    if level is None:
        return {}
    index = setup.levels.index(level)
    end = until_s if until_s is not None else setup.start_s + setup.first_s
    return {slot: index for slot, begin in enumerate(setup.edges_s[:-1]) if begin < end - 1.0}


def level_under(override: protocol.Override, known: Iterable[Level]) -> Level | None:
    """The level of `known` that an override amounts to; None if there is none: a cap where no curve is known."""
    known = tuple(known)
    if override.mode != "cap":
        kinds = ("full",) if override.mode == "boost" else ("off", "pause")
        return next((level for kind in kinds for level in known if level.kind == kind), None)
    return next((level for level in known if level.kind == "cap" and level.cap_w == override.value_w), None)


def with_price(setup: PlanningProblem, carbon_price: float | None) -> PlanningProblem:
    """The same problem at another carbon price (currency per tonne)."""
    if carbon_price is None:
        return setup
    return replace(setup, problem=msgspec.structs.replace(setup.problem, alpha=1.0, beta=carbon_price / 1e6))


def slot_boundary(now_s: float, slot_s: float) -> float:
    """The next multiple of the slot after now."""
    return (math.floor(now_s / slot_s) + 1) * slot_s


def kept_levels(plan: Plan, setup: PlanningProblem) -> tuple[int, ...] | None:
    """The plan's levels on the slots of a new problem; None when a level no longer exists."""
    index_of = {"": -1} | {level.name: index for index, level in enumerate(setup.levels)}
    kept: list[int] = []
    for begin, end in itertools.pairwise(setup.edges_s):
        index = plan.index_at((begin + end) / 2)
        name = plan.names[index] if index is not None else ""
        if name not in index_of:
            return None
        kept.append(index_of[name])
    return tuple(kept)
