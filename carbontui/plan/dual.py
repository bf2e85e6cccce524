"""Stage 1: with a price on work, the problem reduces to a shortest path.

Pay `lam` for every unit of work done. The cheapest path from (slot k, state s) is then V[k, s], found backwards, a
path being free to stop anywhere; lam * work + V[0, start] is a lower bound on the objective for *any* lam >= 0 (weak
duality; a finish in mid-slot costs something linear in the work done there, so its minimum lies at one of the slot's
ends, both of which are in the relaxation). A forward pass gives F[k, s], the cheapest way to get there. Many prices
go through each pass at once.

The best price closes most of the gap. Its paths do too much or too little work; cutting each where the work is done and
crossing them where they meet gives a good schedule, and F + V says which states, arcs and amounts of work can still be
part of a better one: the corridor that stage 2 searches.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from carbontui.plan.graph import Floats, Graph, Ints, sources

STEP = 0.2
"""Initial step, as a share of the bound divided evenly among the limits."""
DECAY = 0.975
"""Factor on the step per pass: small enough at the end for the third digit of the bound."""
MOMENTUM, SPREAD = 0.8, 0.95
STALL_PASSES, STALL = 12, 2e-4
"""Stop when this many passes have not raised the bound by this share."""


class Response(NamedTuple):
    """The jobs' response to given prices: their joint cost including the prices paid, and the load of each limit (1:
    full)."""

    cost: float
    filled: Floats


class Climbed(NamedTuple):
    """`worth`: the price of each limit as a whole; no solution costs less than `bound`."""

    worth: Floats
    bound: float


def climb(answer: Callable[[Floats], Response], start: Floats, passes: int) -> Climbed:
    """The best prices found in at most `passes` passes from `start`."""
    worth, count_of = start, len(start)
    best, best_worth, level = -np.inf, worth, 0.0
    mean, square = np.zeros(count_of), np.zeros(count_of)
    bests: list[float] = []
    for count in range(1, passes + 1):
        cost, filled = answer(worth)
        value = cost - float(worth.sum())
        if value > best:
            best, best_worth = value, worth
        bests.append(best)
        over = filled - 1.0
        if not np.any((over > 0) | (worth > 0)):
            break  # all limits hold with every job at its own optimum
        if count > STALL_PASSES and best - bests[-STALL_PASSES - 1] < STALL * abs(best):
            break
        level = level or STEP * abs(value) / count_of
        slope = np.where((worth <= 0) & (over < 0), 0.0, over)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * slope
        square = SPREAD * square + (1 - SPREAD) * slope * slope
        ahead = (mean / (1 - MOMENTUM**count)) / (np.sqrt(square / (1 - SPREAD**count)) + 1e-3)
        worth = np.maximum(0.0, worth + level * DECAY**count * ahead)
    return Climbed(best_worth, best)


_SPREAD = np.array([0.3, 0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.3, 1.6, 2.2, 4.0])
_BETWEEN = np.arange(1, 10) / 10
_BEYOND = np.array([1.5, 2.0, 4.0, 8.0, 16.0])
_ROUNDS = 3
_PATHS = 8


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


def guess(graph: Graph) -> float:
    """A starting price: the marginal price at which the work fits in the fractional problem without switching."""
    per_second = graph.rate * graph.speed
    watts = np.array([level.power_w for level in graph.problem.levels]) + graph.problem.host_w
    running = graph.speed > 0
    idle = np.flatnonzero(~running)
    dur = np.array(graph.problem.dur_s)
    parked = graph.weight * (float(watts[idle].min()) if len(idle) else 0.0) + graph.problem.price_of_time
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
    reduced = _reduced(graph, lams)
    # stopping at once inside a running slot costs its switch: below zero only at negative weights
    stop = np.minimum(np.where(graph.speed > 0, graph.entry, np.inf).min(axis=2), 0.0)[:, graph.cls]
    out = np.full((slots + 1, count, states + 1), np.inf)
    out[slots, :, :states] = 0.0
    held = (graph.fixed >= 0).tolist()
    tables = _targets(graph)
    cls = None if states == graph.cost.shape[1] else graph.cls
    for k in range(slots - 1, -1, -1):
        step = out[k + 1].take(tables[held[k]], axis=1)
        step += reduced[k] if cls is None else reduced[k].take(cls, axis=1)
        np.minimum(np.minimum.reduce(step, axis=2), stop[k], out=out[k, :, :states])
    return out


def forward(graph: Graph, lams: Floats) -> Floats:
    """[T+1, M, S+1] cheapest reduced cost of reaching (k, s) at each price; inf in the extra column."""
    slots, states, count = graph.slots, graph.states, len(lams)
    reduced = _reduced(graph, lams)
    width = reduced.shape[3]
    out = np.full((slots + 1, count, states + 1), np.inf)
    out[0, :, graph.start] = 0.0
    into = [sources(table) for table in _targets(graph)]
    held = (graph.fixed >= 0).tolist()
    cls = None if states == graph.cost.shape[1] else graph.cls
    flat = np.full((count, states * width + 1), np.inf)
    inner = flat[:, :-1].reshape(count, states, width)
    for k in range(slots):
        np.add(out[k, :, :states, None], reduced[k] if cls is None else reduced[k].take(cls, axis=1), out=inner)
        np.minimum.reduce(flat.take(into[held[k]], axis=1), axis=2, out=out[k + 1, :, :states])
    return out


def _reduced(graph: Graph, lams: Floats) -> Floats:
    """[T, M, C, C'] reduced cost of the best level of each class: levels of a class are equivalent afterwards."""
    count = graph.cost.shape[1]
    out = np.empty((graph.slots, len(lams), count, count))
    for c in range(count):
        levels = np.flatnonzero(graph.cls_of_level == c)
        cost, work = graph.cost[:, None, :, levels], graph.work[:, None, :, levels]
        np.minimum.reduce(cost - lams[None, :, None, None] * work, axis=3, out=out[..., c])
    return out


def _targets(graph: Graph) -> list[Ints]:
    """[S, C] state that each class of levels leads to, for free and for fixed slots."""
    first = [int(np.flatnonzero(graph.cls_of_level == c)[0]) for c in range(graph.cost.shape[1])]
    return [np.ascontiguousarray(table[:, first]) for table in graph.target]


@dataclass(frozen=True)
class Prices:
    """All prices tried [M], their backward potentials [T+1, M, S+1] and bounds [M]."""

    lams: Floats
    back: Floats
    bounds: Floats

    @property
    def best(self) -> int:
        return int(np.argmax(self.bounds))


def search_price(graph: Graph, upper: float, tol: float, rounds: int = _ROUNDS) -> Prices:
    """Search prices in one broad round, then between the neighbours of the best, until the bound stops rising."""
    work = graph.problem.work_s
    lams = guess(graph) * _SPREAD
    tables = [backward(graph, lams)]
    found = [lams]
    bounds = lams * work + tables[0][0, :, graph.start]
    best = -np.inf
    for _ in range(rounds - 1):
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
            lams = low + (known[order][top + 1] - low) * _BETWEEN
        else:
            lams = known[order][top] * _BEYOND
        tables.append(backward(graph, lams))
        found.append(lams)
        bounds = np.concatenate([bounds, lams * work + tables[-1][0, :, graph.start]])
    return Prices(np.concatenate(found), np.concatenate(tables, axis=1), bounds)


def solve_dual(graph: Graph, upper: float, tol: float) -> Dual:
    """The best price, and the potentials of the prices that prune most."""
    prices = search_price(graph, upper, tol)
    known, top = prices.lams, prices.best
    # the potentials that prune most: around the best price, and a few far from it
    order = np.argsort(known)
    place = int(np.flatnonzero(order == top)[0])
    near = order[max(0, place - 4) : place + 5]
    far = order[:: max(1, len(order) // 6)]
    keep = np.unique(np.concatenate([near, far]))
    lams = known[keep]
    lower = float(prices.bounds[top])
    return Dual(lams, prices.back[:, keep], forward(graph, lams), prices.bounds[keep], float(known[top]), lower)


def paths(graph: Graph, dual: Dual) -> tuple[Ints, Ints]:
    """The paths of the best prices: levels [T, M] and states [T+1, M]; they continue after the work is done."""
    best = np.argsort(-dual.bounds, kind="stable")[:_PATHS]
    reduced = graph.cost[:, None] - dual.lams[best][None, :, None, None] * graph.work[:, None]
    back = dual.back[:, best]
    count = len(best)
    rows = np.arange(count)
    states = np.empty((graph.slots + 1, count), dtype=np.int64)
    levels = np.empty((graph.slots, count), dtype=np.int64)
    states[0] = graph.start
    for k in range(graph.slots):
        s = states[k]
        dst = graph.target[int(graph.fixed[k] >= 0)][s]
        step = reduced[k, rows, graph.cls[s]] + back[k + 1, rows[:, None], dst]
        levels[k] = j = np.argmin(step, axis=1)
        states[k + 1] = dst[rows, j]
    return levels, states


def crossings(graph: Graph, levels: Ints, states: Ints) -> tuple[float, Ints] | None:
    """The best schedule made of the start of one path and the end of another (or the same), cut where the work is done,
    with its objective by the planner's own sums."""
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
    return best, schedule
