"""Stage 1: put a price on work, and the problem falls apart into a shortest path.

Pay `lam` for every unit of work done. The cheapest path from (slot k, state s) is then V[k, s], found backwards, a
path being free to stop anywhere; lam * work + V[0, start] is a lower bound on the objective for *any* lam >= 0 (weak
duality; a finish in mid-slot costs something linear in the work done there, so its minimum lies at one of the slot's
ends, both of which are in the relaxation). A forward pass gives F[k, s], the cheapest way to get there. Many prices
go through each pass at once.

The best price closes most of the gap. Its paths do too much or too little work; cutting each where the work is done and
crossing them where they meet gives a good schedule, and F + V says which states, arcs and amounts of work can still be
part of a better one: the corridor that stage 2 searches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from carbontui.plan.graph import Floats, Graph, Ints

_SPREAD = np.array([0.3, 0.6, 0.8, 0.95, 1.1, 1.4, 2.0, 4.0])
_ROUNDS = 5


@dataclass(frozen=True)
class Dual:
    """Prices [M] and for each the potentials back [T+1, M, S+1], ahead [T+1, M, S+1] (inf in the last column), the
    bound [M], the price of the best bound and that bound."""

    lams: Floats
    back: Floats
    ahead: Floats
    bounds: Floats
    lam: float
    lower: float


@dataclass(frozen=True)
class Candidate:
    """A schedule that finishes in time, by the planner's own sums."""

    objective: float
    levels: Ints


def guess(graph: Graph) -> float:
    """A price to start from: of the fractional problem without switching, the marginal price at which the work fits."""
    per_second = graph.rate * graph.speed
    watts = np.array([level.power_w for level in graph.problem.levels]) + graph.problem.host_w
    running = graph.speed > 0
    idle = np.flatnonzero(~running)
    dur = np.array(graph.problem.dur_s)
    parked = graph.weight * (float(watts[idle].min()) if len(idle) else 0.0)
    price = (per_second[:, running] - parked[:, None]) / graph.speed[running]
    best = np.argmin(price, axis=1)
    at = np.arange(graph.slots)
    cheapest, amount = price[at, best], dur * graph.speed[running][best]
    order = np.argsort(cheapest)
    full = np.cumsum(amount[order])
    last = min(int(np.searchsorted(full, graph.problem.work_s)), graph.slots - 1)
    value = float(cheapest[order][last])
    return value if value > 0 else float(np.abs(graph.rate[:, running]).max()) or 1e-9


def backward(graph: Graph, lams: Floats) -> Floats:
    """[T+1, M, S+1] cheapest reduced cost from (k, s) on at each price; inf in the extra column."""
    slots, states, count = graph.slots, graph.states, len(lams)
    reduced = graph.cost[:, None] - lams[None, :, None, None] * graph.work[:, None]
    # stopping at once inside a running slot costs its switch: below zero only at negative weights
    stop = np.minimum(np.where(graph.speed > 0, graph.entry, np.inf).min(axis=2), 0.0)[:, graph.cls]
    out = np.full((slots + 1, count, states + 1), np.inf)
    out[slots, :, :states] = 0.0
    pieces = _tables(graph)
    for k in range(slots - 1, -1, -1):
        dst = pieces[int(graph.fixed[k] >= 0)]
        step = reduced[k][:, graph.cls] + out[k + 1][:, dst]
        np.minimum(step.min(axis=2), stop[k], out=out[k, :, :states])
    return out


def forward(graph: Graph, lams: Floats) -> Floats:
    """[T+1, M, S+1] cheapest reduced cost of reaching (k, s) at each price; inf in the extra column."""
    slots, states, count = graph.slots, graph.states, len(lams)
    width = len(graph.speed)
    reduced = graph.cost[:, None] - lams[None, :, None, None] * graph.work[:, None]
    out = np.full((slots + 1, count, states + 1), np.inf)
    out[0, :, graph.start] = 0.0
    sources = [_sources(table, states) for table in graph.target]
    flat = np.full((count, states * width + 1), np.inf)
    for k in range(slots):
        step = out[k, :, :states, None] + reduced[k][:, graph.cls]
        flat[:, :-1] = step.reshape(count, -1)
        flat[:, sources[int(graph.fixed[k] >= 0)]].min(axis=2, out=out[k + 1, :, :states])
    return out


def _tables(graph: Graph) -> tuple[Ints, Ints]:
    return graph.target[0], graph.target[1]


def _sources(target: Ints, states: int) -> Ints:
    """[S, P] arcs (state * L + level) that lead into each state, padded with the index of an unreachable one."""
    width = target.shape[1]
    into: list[list[int]] = [[] for _ in range(states)]
    for s in range(states):
        for j in range(width):
            if target[s, j] >= 0:
                into[int(target[s, j])].append(s * width + j)
    most = max(1, max(len(arcs) for arcs in into))
    table = np.full((states, most), states * width, dtype=np.int64)
    for s, arcs in enumerate(into):
        table[s, : len(arcs)] = arcs
    return table


def solve_dual(graph: Graph, upper: float, tol: float) -> Dual:
    """Search the price: a broad round, then rounds between the neighbours of the best, until the bound stops rising."""
    work = graph.problem.work_s
    lams = guess(graph) * _SPREAD
    tables = [backward(graph, lams)]
    found = [lams]
    bounds = lams * work + tables[0][0, :, graph.start]
    best = -np.inf
    for _ in range(_ROUNDS):
        known = np.concatenate(found)
        order = np.argsort(known)
        top = int(np.argmax(bounds[order]))
        value = float(bounds[order][top])
        size = abs(upper) if math.isfinite(upper) else abs(value)
        if upper - value <= tol * size or value - best <= 0.02 * tol * size:
            break
        best = value
        low = known[order][top - 1] if top else 0.0
        if top + 1 < len(order):
            lams = low + (known[order][top + 1] - low) * np.array([0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875])
        else:
            lams = known[order][top] * np.array([1.5, 2.0, 4.0, 8.0, 16.0])
        tables.append(backward(graph, lams))
        found.append(lams)
        bounds = np.concatenate([bounds, lams * work + tables[-1][0, :, graph.start]])
    known = np.concatenate(found)
    top = int(np.argmax(bounds))
    # the potentials that cut the most: around the best price, and a few far from it
    order = np.argsort(known)
    place = int(np.flatnonzero(order == top)[0])
    near = order[max(0, place - 4) : place + 5]
    far = order[:: max(1, len(order) // 6)]
    keep = np.unique(np.concatenate([near, far]))
    lams = known[keep]
    back = np.concatenate(tables, axis=1)[:, keep]
    return Dual(lams, back, forward(graph, lams), bounds[keep], float(known[top]), float(bounds[top]))


def paths(graph: Graph, dual: Dual) -> tuple[Ints, Ints]:
    """The path of each price: levels [T, M] and states [T+1, M]; it goes on after the work is done."""
    reduced = graph.cost[:, None] - dual.lams[None, :, None, None] * graph.work[:, None]
    count = len(dual.lams)
    rows = np.arange(count)
    states = np.empty((graph.slots + 1, count), dtype=np.int64)
    levels = np.empty((graph.slots, count), dtype=np.int64)
    states[0] = graph.start
    for k in range(graph.slots):
        s = states[k]
        dst = graph.target[int(graph.fixed[k] >= 0)][s]
        step = reduced[k, rows, graph.cls[s]] + dual.back[k + 1, rows[:, None], dst]
        levels[k] = j = np.argmin(step, axis=1)
        states[k + 1] = dst[rows, j]
    return levels, states


def crossings(graph: Graph, levels: Ints, states: Ints) -> Candidate | None:
    """The best schedule made of the start of one path and the end of another (or the same), cut where the work is
    done."""
    slots, count = levels.shape
    at = np.arange(slots)[:, None]
    cls = graph.cls[states[:-1]]
    cost, work = graph.cost[at, cls, levels], graph.work[at, cls, levels]
    rate = graph.rate[at, levels]
    zero = np.zeros((1, count))
    costs, works = np.vstack([zero, np.cumsum(cost, axis=0)]), np.vstack([zero, np.cumsum(work, axis=0)])
    goal = graph.problem.work_s
    best, where = np.inf, None
    for q in range(count):
        # [T, M]: start with path p up to slot k, go on with path q
        meets = states[:-1] == states[:-1, q : q + 1]
        target = goal - works[:-1] + works[:-1, q : q + 1]
        end = np.searchsorted(works[1:, q], target.ravel() - graph.problem.finish_tolerance).reshape(slots, count)
        ok = meets & (end < slots) & (end >= at) & (works[:-1] < goal)
        if not ok.any():
            continue
        end = np.minimum(end, slots - 1)
        over = works[end + 1, q] - target
        with np.errstate(invalid="ignore"):
            total = costs[:-1] + costs[end + 1, q] - costs[:-1, q : q + 1] - over * rate[end, q]
        total = np.where(ok & np.isfinite(total), total, np.inf)
        flat = int(np.argmin(total))
        if total.flat[flat] < best:
            k, p = divmod(flat, count)
            best, where = float(total.flat[flat]), (k, p, q, int(end.flat[flat]))
    if where is None:
        return None
    k, p, q, last = where
    schedule = np.full(slots, -1, dtype=np.int64)
    schedule[:k] = levels[:k, p]
    schedule[k : last + 1] = levels[k : last + 1, q]
    return Candidate(best, schedule)
