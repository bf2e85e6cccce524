"""Solves a problem for a plan with a certificate, in stages, each run only where the one before left a gap.

0. Nothing to choose: no work, or it does not fit. Then the plan is at full speed, with the least possible lateness.
1. The dual (dual.py): a price on work, a lower bound, and paths that cross. Enough when the grid is smooth.
2. Buckets (buckets.py) over what stage 1 could not rule out: nearly the optimum, and a tight bound.
3. The same with finer buckets, in the corridor that the better plan has narrowed, until the gap is closed or the
   search becomes too large; then the remaining gap is reported.

The plan is compared with every simple policy before it is returned: it is never worse than a feasible one.
"""

import math
from dataclasses import dataclass

import numpy as np

from carbontui.plan import rivals
from carbontui.plan.buckets import Corridor, corridor, fill, finishes, path_cost, quantum, trace
from carbontui.plan.dual import Dual, crossings, paths, solve_dual
from carbontui.plan.evaluation import evaluate, spelled_out
from carbontui.plan.graph import Fixed, Graph, Ints, build, reach
from carbontui.plan.problem import Problem
from carbontui.plan.results import Schedule, plan_of

CELLS = 100_000
"""Buckets of the first search; each refinement may use four times as many, up to the cap."""
CELLS_CAP = 12_000_000
COARSEST, FINEST = 4, 4096
TIE = 1e-6
"""Share of the objective within which two schedules are as good as each other: then the earlier finish decides."""
PRUNE = 0.2
"""Share of the tolerance given away when pruning: improvements smaller than this are not searched for."""


@dataclass
class _Search:
    """The best schedule and bound so far."""

    graph: Graph
    upper: float = math.inf
    levels: Ints | None = None
    lower: float = -math.inf

    def offer(self, objective: float, levels: Ints) -> None:
        if objective < self.upper and path_cost(self.graph, levels) is not None:
            self.upper, self.levels = objective, levels

    def closed(self, tol: float) -> bool:
        return math.isfinite(self.upper) and self.upper - self.lower <= tol * abs(self.upper)


def solve(problem: Problem, tol: float = 1e-3, fixed: Fixed = None, compare: bool = True) -> Schedule:
    """The best schedule within `tol` (relative) of the optimum, with its certificate.

    `fixed` holds slots to a level ({slot: level} or one entry per slot with None where free), or to any that does not
    run (STANDS_STILL), for overrides; dwell is waived there. With `compare` the simple policies are returned in
    `baselines`. Raises Infeasible when no schedule ever finishes, ProblemError when the problem is too large or `fixed`
    names an unknown slot or level.
    """
    if problem.work_s <= problem.finish_tolerance:
        nothing = evaluate(problem, ())
        return plan_of((-1,) * len(problem.dur_s), nothing, nothing.objective, 0, tol, ())
    graph = build(problem, fixed)
    free = not (graph.fixed >= 0).any()
    named = rivals.schedules(graph) if free else []
    search = _Search(graph)
    if named:
        table = np.array([levels for _, levels in named])
        objectives = rivals.ends(graph, table).objective
        for k in np.argsort(objectives, kind="stable"):
            search.offer(float(objectives[k]), table[k])
    if not math.isfinite(search.upper):
        room = reach(graph)
        if not room.fits:
            return _late(problem, graph, room.levels, tol, named if compare else [])
        schedule = np.array(room.levels)
        search.offer(path_cost(graph, schedule) or math.inf, schedule)
    dual = solve_dual(graph, search.upper, tol)
    search.lower = dual.lower
    crossed = crossings(graph, *paths(graph, dual))
    if crossed is not None:
        search.offer(*crossed)
    stage = 1
    cells = CELLS
    while not search.closed(tol) and cells <= CELLS_CAP and _refine(search, dual, tol, cells):
        stage = min(stage + 1, 3)
        cells *= 4
    if search.levels is None:
        raise AssertionError("the work fits, but no schedule was found")
    levels = tuple(search.levels.tolist())
    figures = evaluate(problem, levels)
    for rival in (baseline := rivals.evaluated(problem, named)) if compare else ():
        gain, tie = figures.objective - rival.objective, TIE * abs(figures.objective)
        if rival.feasible and (gain > tie or (gain >= -tie and rival.finish_s < figures.finish_s)):
            levels, figures = rival.levels, rival
    levels = spelled_out(problem, levels, figures.finish_s)
    return plan_of(levels, figures, search.lower, stage, tol, baseline if compare else ())


def _refine(search: _Search, dual: Dual, tol: float, cells: int) -> bool:
    """Search the corridor once with about `cells` buckets; False when even the coarsest would need too many."""
    graph = search.graph
    limit = search.upper - PRUNE * tol * abs(search.upper)
    if not math.isfinite(limit):
        # nothing known yet: more than any schedule can cost
        limit = 1.0 + 2.0 * float(np.abs(np.where(np.isfinite(graph.cost), graph.cost, 0.0)).max(axis=(1, 2)).sum())
    left = corridor(graph, dual, limit)
    unit = _unit(graph, left, cells)
    if unit is None:
        return False
    tables = fill(graph, dual.lam, unit, left, certify=True)
    found = finishes(tables)
    search.lower = max(search.lower, min(found.lower, search.upper))
    best = np.argsort(found.objective)[:8]
    best = best[found.objective[best] < search.upper]
    named = (found.slot, found.state, found.level, found.bucket)
    for levels in trace(tables, *(column[best] for column in named)):
        exact = path_cost(graph, levels)
        if exact is not None:
            search.offer(exact, levels)
            break
    return True


def _unit(graph: Graph, left: Corridor, cells: int) -> float | None:
    """The bucket size at which the corridor needs about `cells` buckets; None when it needs too many at any size."""
    first = np.where(left.states, left.least, np.inf).min(axis=1)
    last = np.where(left.states, left.most, -np.inf).max(axis=1)
    span = np.where(left.states.any(axis=1), last - first, 0.0).sum()
    full = float(np.median(graph.problem.dur_s)) * float(graph.speed.max())
    per_slot = cells / graph.states * full / max(span, full)
    if per_slot * CELLS_CAP < COARSEST * cells:
        return None
    return quantum(graph, int(min(max(per_slot, COARSEST), FINEST)))


def _late(
    problem: Problem, graph: Graph, soonest: tuple[int, ...], tol: float, named: list[tuple[str, Ints]]
) -> Schedule:
    """The plan if the work does not fit: at full speed, or the soonest finish where full speed breaks a rule or is
    later."""
    levels: tuple[int, ...] = soonest
    figures = evaluate(problem, levels)
    if not (graph.fixed >= 0).any():
        flat = (problem.fastest,) * len(problem.dur_s)
        flat_figures = evaluate(problem, flat)
        if not flat_figures.violations and flat_figures.late_s <= figures.late_s + 1e-6:
            levels, figures = flat, flat_figures
    return plan_of(levels, figures, figures.objective, 0, tol, rivals.evaluated(problem, named))
