"""The frontier: the least objective for every deadline, from one search.

The search of stage 2 does not depend on the deadline: the best finish found in slots 0..k answers a deadline at the end
of slot k. So one pass without a corridor, all finishes, and a running minimum give the whole curve.
"""

from dataclasses import replace

import numpy as np

from carbontui.plan import rivals
from carbontui.plan.buckets import everything, fill, finishes, quantum, trace
from carbontui.plan.dual import search_price
from carbontui.plan.evaluation import evaluate
from carbontui.plan.graph import Fixed, Floats, Graph, Ints, build
from carbontui.plan.problem import Problem, ProblemError
from carbontui.plan.results import PlanFrontier, PlanFrontierPoint, run_lengths
from carbontui.units import J_PER_KWH

FINEST, GOOD, COARSEST = 512, 16, 4
"""Buckets in a slot at full speed: `GOOD` resolves a resume; short horizons allow more, long ones fewer."""
CELLS_CAP = 24_000_000


def frontier(problem: Problem, fixed: Fixed = None) -> PlanFrontier:
    """The best schedule for each deadline at a slot boundary up to the horizon, constant levels included; time has no
    price here.

    Points rise in finish time and fall in objective. No points when the work does not fit in the horizon. Raises
    ProblemError when the problem is too large.
    """
    slots = len(problem.dur_s)
    if problem.work_s <= problem.finish_tolerance:
        figures = evaluate(problem, ())
        point = PlanFrontierPoint(0.0, figures.gco2, figures.cost, figures.kwh, figures.objective, ())
        return PlanFrontier((point,), (0,) * slots)
    problem = replace(problem, price_of_time=0.0)
    graph = build(problem, fixed)
    if not graph.work.any():
        # fixed to levels that do no work
        return PlanFrontier((), (-1,) * slots)
    simple = _simple(graph) if fixed is None else np.empty((0, slots), dtype=np.int64)
    prices = search_price(graph, np.inf, 0.0, rounds=2)
    tables = fill(
        graph, float(prices.lams[prices.best]), quantum(graph, _fineness(graph)), everything(graph), certify=False
    )
    found = finishes(tables)
    order = np.lexsort((found.objective, found.slot))
    _, first = np.unique(found.slot[order], return_index=True)
    best = order[first]
    best = best[_falling(found.objective[best])]
    searched = trace(tables, found.slot[best], found.state[best], found.level[best], found.bucket[best])
    schedules = np.vstack([simple, searched])
    ends = rivals.ends(graph, schedules)
    order = np.lexsort((ends.objective, ends.slot))
    order = order[np.isfinite(ends.objective[order])]
    kept = order[_falling(ends.objective[order])]
    kept_slots = ends.slot[kept]
    # of several finishes in one slot, keep only the last, which is the best
    kept = kept[np.append(kept_slots[1:] != kept_slots[:-1], True)] if len(kept) else kept
    points = _points(graph, schedules[kept], rivals.Ends(ends.slot[kept], ends.left_s[kept], ends.objective[kept]))
    at = np.searchsorted(ends.slot[kept], np.arange(slots), side="right") - 1
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


def _points(graph: Graph, levels: Ints, ends: rivals.Ends) -> tuple[PlanFrontierPoint, ...]:
    """The schedules [P, T] with their figures, by the planner's sums."""
    problem, held = graph.problem, np.maximum(levels, 0)
    at, row = np.arange(graph.slots), np.arange(len(levels))
    upto, final = at <= ends.slot[:, None], held[row, ends.slot]
    energy = np.where(upto, graph.energy[at, graph.cls_of_level[rivals.before(graph, held)], held], 0.0)
    watts = np.array([level.power_w for level in problem.levels]) + problem.host_w
    energy[row, ends.slot] -= problem.pue / J_PER_KWH * watts[final] * ends.left_s
    held_s = np.where(upto, problem.dur_s, 0.0)
    held_s[row, ends.slot] -= ends.left_s
    rent = np.array([level.rent_per_h for level in problem.levels]) / 3600.0
    cost = (rent[held] * held_s).sum(axis=1)
    if problem.price_per_kwh is not None:
        cost = cost + energy @ np.array(problem.price_per_kwh)
    columns = (held_s.sum(axis=1), energy @ np.array(problem.ci_g_per_kwh), cost, energy.sum(axis=1), ends.objective)
    runs = (run_lengths(one[: last + 1].tolist()) for one, last in zip(levels, ends.slot, strict=True))
    figures = zip(*(column.tolist() for column in columns), runs, strict=True)
    return tuple(PlanFrontierPoint(*point) for point in figures)
