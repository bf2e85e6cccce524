"""Stage 2: a search that is exact up to one rounding, whose error is bounded.

Work is counted in buckets of `unit` seconds. Every arc adds a whole number of buckets, so bucket numbers add up along a
path without error; what rounding hides is the *drift* x - n * unit, carried along exactly. Per (slot, state, bucket)
the path of least reduced cost a - lam * x is kept: in one bucket all paths have nearly the same x left to do, so the
cheapest one is nearly the best. "Nearly" is bounded: next to it go the least and the greatest drift of *any* path in
the bucket, and a finish from a bucket costs at least its least reduced cost plus what is left to do at the finishing
rate, for the most favourable drift. The least over all finishes is a lower bound on every schedule: the certificate.

Only the corridor is searched: states, arcs and amounts of work for which the potentials of stage 1 leave room below
`limit`. Whatever lies outside cannot lead to a schedule below it.

One int64 per bucket holds cost and drift: cost in fixed point above, drift in the low 26 bits. One addition moves
both along an arc and one minimum keeps the better path, over whole rows of buckets at once; back-pointers are not
stored but found again on the way back, the integers being exact.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from carbontui.plan.dual import Dual
from carbontui.plan.graph import Bools, Floats, Graph, Ints, sources

Slab: TypeAlias = tuple[int, int, int, int, int]
"""Class, level, first and last source row, first target row."""

_SHIFT = 26
_COST_BITS = 34
_NONE = 1 << 62
_SOUND = 1 << 61
_NO_DRIFT = 1 << 30
_NEAR = 16


@dataclass(frozen=True)
class Corridor:
    """What may still be part of a schedule below `limit`: arcs [T, S, L], finishing arcs [T, S, L], states [T+1, S],
    and the work done on arrival [T+1, S] from `least` to `most`."""

    limit: float
    arcs: Bools
    finishes: Bools
    states: Bools
    least: Floats
    most: Floats


@dataclass(frozen=True)
class Tables:
    """The filled buckets. Row s of slot k starts at offset[k] + s * width[k] and holds buckets base[k], base[k] + 1,
    ..."""

    graph: Graph
    lam: float
    unit: float
    scale: float
    drift_unit: float
    steps: Ints
    moves: Ints
    offset: Ints
    width: Ints
    base: Ints
    keys: Ints
    drift: NDArray[np.int32] | None
    corridor: Corridor
    drift_low: Floats
    drift_high: Floats


@dataclass(frozen=True)
class Finishes:
    """All ways to finish found in the tables: slot, state, level, bucket and objective of each; `lower` bounds them
    all."""

    slot: Ints
    state: Ints
    level: Ints
    bucket: Ints
    objective: Floats
    lower: float


def corridor(graph: Graph, dual: Dual, limit: float) -> Corridor:
    """Everything that the potentials of stage 1 cannot rule out below `limit`."""
    goal = graph.problem.work_s
    states = graph.states
    lams = dual.lams[None, :, None]
    running = graph.speed > 0
    target = graph.target[(graph.fixed >= 0).astype(np.int64)]
    arc_bound = np.full((graph.slots, states, len(running)), -np.inf)
    end_bound = np.full_like(arc_bound, -np.inf)
    cost, work, entry = graph.cost[:, graph.cls], graph.work[:, graph.cls], graph.entry[:, graph.cls]
    at = np.arange(graph.slots)[:, None, None]
    for m, lam in enumerate(dual.lams):
        reduced = cost - lam * work
        arrive = dual.ahead[:-1, m, :states, None] + lam * goal
        np.maximum(arc_bound, arrive + reduced + dual.back[at + 1, m, target], out=arc_bound)
        np.maximum(end_bound, arrive + np.minimum(reduced, entry), out=end_bound)
    ahead, back = dual.ahead[:, :, :states], dual.back[:, :, :states] + lams * goal
    least, most = np.zeros((graph.slots + 1, states)), np.full((graph.slots + 1, states), goal)
    alive = np.ones((graph.slots + 1, states), dtype=np.bool_)
    for m, lam in enumerate(dual.lams):
        # ahead[m] + lam * x + back[m'] + lam' * (goal - x) must stay below the limit for every pair of prices
        room = limit - ahead[:, m : m + 1] - back
        slope = (lam - dual.lams)[None, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = room / slope
        most = np.minimum(most, np.where(slope > 0, edge, np.inf).min(axis=1))
        least = np.maximum(least, np.where(slope < 0, edge, -np.inf).max(axis=1))
        alive &= room[:, m] > 0
    alive &= least <= most
    arcs = (arc_bound < limit) & alive[:-1, :, None] & alive[at + 1, target]
    finishes = (end_bound < limit) & alive[:-1, :, None] & running & np.isfinite(cost) & (target >= 0)
    return Corridor(limit, arcs, finishes, alive, least, most)


def everything(graph: Graph) -> Corridor:
    """No corridor: every reachable arc, for the frontier, where each deadline is a separate problem."""
    goal, states = graph.problem.work_s, graph.states
    target = graph.target[(graph.fixed >= 0).astype(np.int64)]
    possible = np.isfinite(graph.cost)[:, graph.cls] & (target >= 0)
    speeds = np.cumsum(graph.work.max(axis=(1, 2)))
    most = np.minimum(np.concatenate([[0.0], speeds]), goal)
    shape = (graph.slots + 1, states)
    return Corridor(
        np.inf,
        possible,
        possible & (graph.speed > 0),
        np.ones(shape, dtype=np.bool_),
        np.zeros(shape),
        np.broadcast_to(most[:, None], shape).copy(),
    )


def quantum(graph: Graph, least: int) -> float:
    """Bucket size: about `least` buckets in a slot at full speed, chosen so that the other speeds round well."""
    speeds = np.unique(graph.speed[graph.speed > 0])
    full = float(np.median(graph.problem.dur_s)) * float(speeds[-1])
    if len(speeds) == 1:
        return full / least
    choices = np.arange(least, least + max(4, least // 2) + 1)
    ideal = choices[:, None] * speeds[None, :] / speeds[-1]
    drift = np.abs(np.rint(ideal) - ideal).sum(axis=1)
    return full / float(choices[int(np.argmin(drift + 0.01 * choices / least))])


def fill(graph: Graph, lam: float, unit: float, search: Corridor, certify: bool) -> Tables:
    """Run the search forward through all slots. O(arcs * buckets in the corridor)."""
    slots, states = graph.slots, graph.states
    finite = np.isfinite(graph.cost)
    reduced = np.where(finite, graph.cost - lam * graph.work, 0.0)
    total = float(np.abs(reduced).max(axis=(1, 2)).sum()) or 1.0
    scale = 2.0**_COST_BITS / total
    steps = np.rint(graph.work / unit).astype(np.int64)
    drift = graph.work - steps * unit
    by_class = np.zeros(graph.cost.shape, dtype=np.bool_)
    for c in range(graph.cost.shape[1]):
        by_class[:, c] = search.arcs[:, graph.cls == c].any(axis=1)
    low = np.concatenate([[0.0], np.cumsum(np.where(by_class, drift, 0.0).min(axis=(1, 2)))])
    high = np.concatenate([[0.0], np.cumsum(np.where(by_class, drift, 0.0).max(axis=(1, 2)))])
    spread = max(1.0, high[-1], -low[-1], float(np.abs(drift).max())) / unit + 2
    drift_unit = unit / 2.0 ** (_SHIFT - 2 - math.ceil(math.log2(spread)))
    moved = np.rint(drift / drift_unit).astype(np.int64)
    moves = (np.rint(reduced * scale).astype(np.int64) << _SHIFT) + moved

    first = np.where(search.states, search.least, np.inf).min(axis=1)
    last = np.where(search.states, search.most, -np.inf).max(axis=1)
    empty = ~search.states.any(axis=1)
    first[empty], last[empty] = 0.0, 0.0
    base = np.maximum(0, np.floor((first - high) / unit).astype(np.int64) - 1)
    width = np.maximum(1, np.ceil((last - low) / unit).astype(np.int64) + 2 - base)
    base[0], width[0] = 0, 1
    offset = np.concatenate([[0], np.cumsum(width * states)])
    keys = np.full(int(offset[-1]), _NONE, dtype=np.int64)
    keys[graph.start] = 0
    drifts: NDArray[np.int32] | None = None
    if certify:
        drifts = np.full(2 * int(offset[-1]), _NO_DRIFT, dtype=np.int32)
        drifts[[graph.start, states + graph.start]] = 0
    both = np.stack([moved, -moved], axis=-1).astype(np.int32).reshape(*moved.shape, 2, 1, 1)

    plan = _work_list(graph, search)
    wide, begins, starts = width.tolist(), base.tolist(), offset.tolist()
    step_of, move_of = steps.tolist(), moves.tolist()
    minimum = np.minimum
    here = keys[0:states].reshape(states, 1)
    spans = drifts[: 2 * states].reshape(2, states, 1) if drifts is not None else None
    for k in range(slots):
        w, v = wide[k], wide[k + 1]
        there = keys[starts[k + 1] : starts[k + 2]].reshape(states, v)
        reach = drifts[2 * starts[k + 1] : 2 * starts[k + 2]].reshape(2, states, v) if drifts is not None else None
        moved_by, move_to, ahead = step_of[k], move_of[k], begins[k] - begins[k + 1]
        for c, j, lo, hi, to in plan[k]:
            shift = ahead + moved_by[c][j]
            a, b = max(0, -shift), min(w, v - shift)
            if a >= b:
                continue
            into = there[to : to + hi - lo, a + shift : b + shift]
            minimum(into, here[lo:hi, a:b] + move_to[c][j], out=into)
            if reach is not None and spans is not None:
                range_into = reach[:, to : to + hi - lo, a + shift : b + shift]
                minimum(range_into, spans[:, lo:hi, a:b] + both[k, c, j], out=range_into)
        here, spans = there, reach
    return Tables(
        graph, lam, unit, scale, drift_unit, steps, moves, offset, width, base, keys, drifts, search, low, high
    )


def _work_list(graph: Graph, search: Corridor) -> list[list[Slab]]:
    """Per slot the slabs of arcs that the corridor leaves."""
    out: list[list[Slab]] = [[] for _ in range(graph.slots)]
    for waived, blocks in enumerate(graph.blocks):
        of_kind = (graph.fixed >= 0) == bool(waived)
        for block in blocks:
            alive = search.arcs[:, block.lo : block.hi, block.level].any(axis=1) & of_kind
            slab = (block.cls, block.level, block.lo, block.hi, block.to)
            for k in np.flatnonzero(alive).tolist():
                out[k].append(slab)
    return out


def finishes(tables: Tables) -> Finishes:
    """Every finish from every bucket, by its objective; the bound is -inf when the tables carry no drifts."""
    graph, unit, lam = tables.graph, tables.unit, tables.lam
    goal = graph.problem.work_s
    slot, state, level = (index.astype(np.int64) for index in np.nonzero(tables.corridor.finishes))
    done = graph.work[slot, graph.cls[state], level]
    high, low = tables.drift_high[slot], tables.drift_low[slot]
    if tables.drift is None:
        # without a certificate, search only where finishes are likely, not the worst-case drift
        high, low = np.minimum(high, _NEAR * unit), np.maximum(low, -_NEAR * unit)
    lowest = np.floor((goal - done - high) / unit).astype(np.int64) - 1
    highest = np.ceil((goal - low) / unit).astype(np.int64) + 1
    base, width = tables.base[slot], tables.width[slot]
    lowest, highest = np.maximum(lowest, base), np.minimum(highest, base + width - 1)
    counts = np.maximum(highest - lowest + 1, 0)
    each = np.repeat(np.arange(len(slot)), counts)
    bucket = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts) + lowest[each]
    row = state[each] * width[each] + bucket - base[each]
    key = tables.keys[tables.offset[slot[each]] + row]
    sound = key < _SOUND
    each, bucket, key, row = each[sound], bucket[sound], key[sound], row[sound]
    slot, state, level, done = slot[each], state[each], level[each], done[each]
    cost = (key + (1 << (_SHIFT - 1))) >> _SHIFT
    x = bucket * unit + (key - (cost << _SHIFT)) * tables.drift_unit
    fixed_part = cost / tables.scale + lam * goal + graph.entry[slot, graph.cls[state], level]
    slope = graph.rate[slot, level] - lam
    slack = 0.5 * graph.slots * tables.drift_unit + graph.problem.finish_tolerance
    left = goal - x
    ok = (left > 0) & (left <= done + slack)
    objective = np.where(ok, fixed_part + slope * left, np.inf)
    lower = -np.inf
    if tables.drift is not None:
        at = 2 * tables.offset[slot] + row
        least = bucket * unit + tables.drift[at] * tables.drift_unit - slack
        most = bucket * unit - tables.drift[at + graph.states * tables.width[slot]] * tables.drift_unit + slack
        short, long = np.maximum(goal - most, 0.0), np.minimum(goal - least, done)
        bound = fixed_part + np.minimum(slope * short, slope * long)
        bound = np.where(short <= long, bound, np.inf)
        lower = float(bound.min(initial=np.inf)) - 0.5 * (graph.slots + 1) / tables.scale
        lower = min(lower, tables.corridor.limit)
    keep = np.flatnonzero(ok)
    return Finishes(slot[keep], state[keep], level[keep], bucket[keep], objective[keep], lower)


def trace(tables: Tables, slot: Ints, state: Ints, level: Ints, bucket: Ints) -> Ints:
    """[P, T] the schedules that end at `level` in `slot`, coming from (state, bucket); -1 after it."""
    graph = tables.graph
    count, width = len(slot), len(graph.speed)
    schedules = np.full((count, graph.slots), -1, dtype=np.int64)
    schedules[np.arange(count), slot] = level
    into = [sources(table) for table in graph.target]
    state, bucket = state.copy(), bucket.copy()
    value = tables.keys[tables.offset[slot] + state * tables.width[slot] + bucket - tables.base[slot]]
    for k in range(graph.slots - 1, -1, -1):
        on = np.flatnonzero(slot > k)
        if not len(on):
            continue
        # what each arc into each state adds: first for all states, then for the points' states
        arcs = into[int(graph.fixed[k] >= 0)]
        real = arcs < graph.states * width
        before, j = np.divmod(np.where(real, arcs, 0), width)
        arc = graph.cls[before] * width + j
        w, here = int(tables.width[k]), state[on]
        possible = real & np.isfinite(graph.cost[k].ravel()[arc])
        step, move = tables.steps[k].ravel()[arc], tables.moves[k].ravel()[arc]
        place = bucket[on, None] - (step + int(tables.base[k]))[here]
        inside = possible[here] & (place >= 0) & (place < w)
        key = tables.keys[np.where(inside, place + (before * w + int(tables.offset[k]))[here], 0)]
        hit = inside & (key == value[on, None] - move[here])
        pick = np.argmax(hit, axis=1)
        schedules[on, k] = j[here, pick]
        bucket[on] -= step[here, pick]
        value[on] -= move[here, pick]
        state[on] = before[here, pick]
    return schedules


def path_cost(graph: Graph, schedule: Ints) -> float | None:
    """Objective of a schedule by the planner's own sums; None when it is late or breaks a rule."""
    state, done, spent = graph.start, 0.0, 0.0
    for k in range(graph.slots):
        j = int(schedule[k])
        if j < 0:
            return None
        c = int(graph.cls[state])
        work, cost = float(graph.work[k, c, j]), float(graph.cost[k, c, j])
        state = int(graph.target[int(graph.fixed[k] >= 0), state, j])
        if state < 0 or not math.isfinite(cost):
            return None
        if graph.speed[j] > 0 and done + work >= graph.problem.work_s - graph.problem.finish_tolerance:
            over = max(0.0, done + work - graph.problem.work_s)
            return spent + cost - over * float(graph.rate[k, j])
        done, spent = done + work, spent + cost
    return None
