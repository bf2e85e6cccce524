"""The frontier: the least objective for every deadline, from one search.

The search of stage 2 does not depend on the deadline: the best finish found in slots 0..k answers a deadline at the end
of slot k. So one pass without a corridor, all finishes, and a running minimum give the whole curve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from carbontui.plan import rivals
from carbontui.plan.buckets import everything, fill, finishes, quantum, trace_many
from carbontui.plan.dual import search_price
from carbontui.plan.evaluation import evaluate
from carbontui.plan.graph import Fixed, Floats, Graph, Ints, build
from carbontui.plan.problem import Problem, ProblemError
from carbontui.plan.results import PlanFrontier, PlanFrontierPoint, run_lengths

FINEST, GOOD, COARSEST = 512, 16, 4
"""Buckets in a slot at full speed: `GOOD` resolves a resume; short horizons allow more, long ones fewer."""
CELLS_CAP = 24_000_000


def frontier(problem: Problem, fixed: Fixed = None) -> PlanFrontier:
    """The best schedule for each deadline at a slot boundary up to the horizon, constant levels included.

    Points rise in finish time and fall in objective. No points when the work does not fit in the horizon. Raises
    ProblemError when the problem is too large.
    """
    slots = len(problem.dur_s)
    if problem.work_s <= problem.finish_tolerance:
        figures = evaluate(problem, ())
        point = PlanFrontierPoint(0.0, figures.gco2, figures.cost, figures.kwh, figures.objective, ())
        return PlanFrontier((point,), (0,) * slots)
    graph = build(problem, fixed)
    if not graph.work.any():
        # fixed to levels that do no work
        return PlanFrontier((), (-1,) * slots)
    simple = _simple(graph) if fixed is None else np.empty((0, slots), dtype=np.int64)
    prices = search_price(graph, np.inf, 0.0, rounds=2)
    tables = fill(
        graph,
        float(prices.lams[prices.best]),
        quantum(graph, _fineness(graph)),
        everything(graph),
        certify=False,
    )
    found = finishes(tables)
    order = np.lexsort((found.objective, found.slot))
    _, first = np.unique(found.slot[order], return_index=True)
    best = order[first]
    best = best[_falling(found.objective[best])]
    searched = trace_many(tables, found.slot[best], found.state[best], found.level[best], found.bucket[best])
    schedules = np.vstack([simple, searched])
    sums = _figures(graph, schedules)
    order = np.lexsort((sums.objective, sums.slot))
    order = order[np.isfinite(sums.objective[order])]
    kept = order[_falling(sums.objective[order])]
    kept_slots = sums.slot[kept]
    # of several finishes in one slot, keep only the last, which is the best
    kept = kept[np.append(kept_slots[1:] != kept_slots[:-1], True)] if len(kept) else kept
    points = tuple(
        PlanFrontierPoint(
            finish_s=float(sums.finish_s[i]),
            gco2_g=float(sums.gco2[i]),
            cost=float(sums.cost[i]),
            kwh=float(sums.kwh[i]),
            objective=float(sums.objective[i]),
            levels=run_lengths(schedules[i, : sums.slot[i] + 1].tolist()),
        )
        for i in kept
    )
    at = np.searchsorted(sums.slot[kept], np.arange(slots), side="right") - 1
    return PlanFrontier(points, tuple(at.tolist()))


def _fineness(graph: Graph) -> int:
    """Buckets per slot that the horizon allows. Raises ProblemError when it allows too few."""
    full = float(np.median(graph.problem.dur_s)) * float(graph.speed.max())
    most = np.minimum(np.cumsum(graph.work.max(axis=(1, 2))), graph.problem.work_s)
    allowed = CELLS_CAP / (graph.states * float(most.sum()) / full)
    if allowed < COARSEST:
        raise ProblemError("slots.dur_s", f"{graph.slots} slots with {graph.states} states are too many for a frontier")
    wanted = max(min(GOOD, 8000 // graph.slots), min(FINEST, 2400 // graph.slots))
    return int(max(COARSEST, min(wanted, allowed)))


def _simple(graph: Graph) -> Ints:
    """Run now and each constant level, where feasible: exact points that rounding must not lose."""
    table = np.array([levels for _, levels in rivals.steady(graph)])
    sound = [evaluate(graph.problem, levels.tolist()).feasible for levels in table]
    return np.asarray(table[np.array(sound)], dtype=np.int64)


def _falling(values: Floats) -> Ints:
    """Indices at which a sequence reaches a new minimum."""
    before = np.concatenate([[np.inf], np.minimum.accumulate(values)[:-1]]) if len(values) else values
    return np.flatnonzero(values < before)


@dataclass(frozen=True)
class _Figures:
    """[P] sums of schedules by the planner's arrays; objective inf where a schedule does not finish."""

    slot: Ints
    objective: Floats
    gco2: Floats
    cost: Floats
    kwh: Floats
    finish_s: Floats


def _figures(graph: Graph, levels: Ints) -> _Figures:
    problem = graph.problem
    held = np.maximum(levels, 0)
    before = np.empty_like(held)
    before[:, 0], before[:, 1:] = problem.initial_level, held[:, :-1]
    at, row = np.arange(graph.slots), np.arange(len(levels))
    cls = graph.cls_of_level[before]
    active = levels >= 0
    work = np.where(active, graph.work[at, cls, held], 0.0)
    done = np.cumsum(work, axis=1)
    enough = (done >= problem.work_s - problem.finish_tolerance) & active
    last = np.argmax(enough, axis=1)
    upto = at <= last[:, None]
    over = np.maximum(done[row, last] - problem.work_s, 0.0)
    final = held[row, last]
    early = np.divide(over, graph.speed[final], out=np.zeros_like(over), where=graph.speed[final] > 0)

    energy = np.where(upto, graph.energy[at, cls, held], 0.0)
    watts = np.array([level.power_w for level in problem.levels]) + problem.host_w
    unit = graph.energy_per_j * watts[final] * early
    energy[row, last] -= unit
    rent = np.array([level.rent_per_h for level in problem.levels]) / 3600.0
    dur = np.array(problem.dur_s)
    held_s = np.where(upto, dur, 0.0)
    held_s[row, last] -= early
    cost = (rent[held] * held_s).sum(axis=1)
    if problem.price_per_kwh is not None:
        cost = cost + energy @ np.array(problem.price_per_kwh)
    gco2 = energy @ np.array(problem.ci_g_per_kwh)
    total = problem.alpha * cost + problem.beta * gco2
    if problem.shadow_per_h is not None:
        total = total + (np.array(problem.shadow_per_h)[at, held] / 3600.0 * held_s).sum(axis=1)
    objective = np.where(enough.any(axis=1), total, np.inf)
    return _Figures(last, objective, gco2, cost, energy.sum(axis=1), np.cumsum(dur)[last] - early)
