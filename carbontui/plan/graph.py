"""The problem as a graph in layers: one layer per slot boundary, few states in each, one arc per level.

A *class* is a set of levels that are equivalent once entered: same group (running or not), same switches to all other
levels, free switches among themselves. Caps that switch instantly therefore share one class, and the graph stays small
however many there are. A *state* is (class, slots spent in the group up to its minimum dwell, resumes used); an
*arc* takes a state through slot k at level j. What an arc costs and does depends only on (slot, class it leaves,
level).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from carbontui.plan.problem import STANDS_STILL, Infeasible, Problem, ProblemError
from carbontui.units import J_PER_KWH

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Fixed: TypeAlias = Mapping[int, int] | Sequence[int | None] | None

STATES_MAX = 4096
CELLS_MAX = 40_000_000
SECONDS_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Block:
    """Arcs of one class and level with consecutive source and target states: row `lo + i` leads to row `to + i`."""

    cls: int
    level: int
    lo: int
    hi: int
    to: int


@dataclass(frozen=True)
class Graph:
    """Arrays over T slots, C classes, L levels, S states.

    `cost` and `work` [T, C, L]: objective and reference-seconds of a whole slot at the level, inf and 0 where it
    cannot be entered; `entry` [T, C, L]: the switch's part of the cost; `rate` [T, L]: objective per unit of work
    while running; `weight` [T]: objective per joule; `energy` [T, C, L]: kWh of a whole slot.
    `cls` [S]: class of a state. `target` [2, S, L]: state after the arc or -1; row 1 is for slots fixed by a
    user, where dwell is waived. `blocks` are the same arcs as slabs; `fixed` [T] as `fixed_levels` gives it.
    """

    problem: Problem
    cost: Floats
    work: Floats
    entry: Floats
    rate: Floats
    weight: Floats
    energy: Floats
    speed: Floats
    cls: Ints
    cls_of_level: Ints
    target: Ints
    blocks: tuple[tuple[Block, ...], tuple[Block, ...]]
    fixed: Ints
    start: int
    levels_of_state: Ints

    @property
    def slots(self) -> int:
        return len(self.problem.dur_s)

    @property
    def states(self) -> int:
        return len(self.cls)


def fixed_levels(problem: Problem, fixed: Fixed) -> Ints:
    """[T] level that each slot is held at, -1 where the plan is free, the number of levels where it may be any that
    does not run. Raises ProblemError for an unknown level or slot."""
    slots, count = len(problem.dur_s), len(problem.levels)
    out = np.full(slots, -1, dtype=np.int64)
    if fixed is None:
        return out
    pairs = fixed.items() if isinstance(fixed, Mapping) else enumerate(fixed)
    for slot, level in pairs:
        if level is None:
            continue
        if not 0 <= slot < slots:
            raise ProblemError("fixed", f"names slot {slot}, but there are {slots} slots")
        if level == STANDS_STILL:
            if all(one.running for one in problem.levels):
                raise ProblemError("fixed", f"holds slot {slot} at a level that does not run, but every level runs")
            level = count
        elif not 0 <= level < count:
            raise ProblemError("fixed", f"names level {level}, but there are {count} levels")
        out[slot] = level
    return out


def build(problem: Problem, fixed: Fixed = None) -> Graph:
    """Compile `problem` (and the slots fixed by a user). Raises ProblemError when it is too large to plan."""
    asked = fixed_levels(problem, fixed)
    dur = np.array(problem.dur_s)
    weight = problem.pue / J_PER_KWH * problem.beta * np.array(problem.ci_g_per_kwh)
    if problem.price_per_kwh is not None:
        weight = weight + problem.pue / J_PER_KWH * problem.alpha * np.array(problem.price_per_kwh)
    speed = np.array([level.speed for level in problem.levels])
    watts = np.array([level.power_w for level in problem.levels]) + problem.host_w
    per_h = [problem.alpha * level.rent_per_h + problem.beta * level.embodied_g_per_h for level in problem.levels]
    held = np.tile(np.array(per_h) / 3600.0 + problem.price_of_time, (len(dur), 1))
    if problem.shadow_per_h is not None:
        held = held + np.array(problem.shadow_per_h) / 3600.0
    tau, joules = _switches(problem)
    running = speed > 0

    cls_of_level = _classes(running, tau, joules)
    count = int(cls_of_level.max()) + 1
    member = np.array([int(np.flatnonzero(cls_of_level == c)[0]) for c in range(count)])
    in_class = cls_of_level[None, :] == np.arange(count)[:, None]
    tau = np.where(in_class, 0.0, tau[member])
    joules = np.where(in_class, 0.0, joules[member])

    # [T, C, L]
    allowed = np.isfinite(tau)[None] & (tau[None] <= dur[:, None, None] + SECONDS_TOLERANCE)
    is_held = asked >= 0
    if is_held.any():
        meant = np.arange(len(speed)) == asked[is_held, None]
        meant |= (asked[is_held] == len(speed))[:, None] & ~running
        allowed[is_held] = np.isfinite(tau)[None] & meant[:, None, :]
    lost = np.minimum(np.where(np.isfinite(tau), tau, 0.0)[None], dur[:, None, None])
    mean_watts = np.divide(joules, tau, out=np.zeros_like(tau), where=np.isfinite(tau) & (tau > 0))
    entry = weight[:, None, None] * mean_watts * lost + held[:, None, :] * lost
    per_second = weight[:, None] * watts + held
    left = dur[:, None, None] - lost
    cost = np.where(allowed, entry + per_second[:, None, :] * left, np.inf)
    work = np.where(allowed, speed * left, 0.0)
    rate = np.divide(per_second, speed, out=np.zeros_like(per_second), where=running)

    cls, ages, resumes, limit = _states(problem, running[member], bool(is_held.any()))
    states = len(cls)
    if states > STATES_MAX or states * len(speed) * len(dur) > CELLS_MAX:
        raise ProblemError(
            "min_run_slots", f"gives {states} states with min_pause_slots and max_resumes in {len(dur)} slots, too many"
        )
    target, blocks = _arcs(cls, ages, limit, running, running[member], cls_of_level)
    group_dwell = problem.min_run_slots if running[problem.initial_level] else problem.min_pause_slots
    oldest = _dwell(group_dwell, len(dur))
    first_age = max(1, oldest - max(0, group_dwell - problem.initial_age_slots))
    home = cls_of_level[problem.initial_level]
    start = int(np.flatnonzero((cls == home) & (ages == first_age) & (resumes == 0))[0])
    return Graph(
        problem=problem,
        cost=cost,
        work=work,
        entry=np.where(allowed, entry, np.inf),
        rate=rate,
        weight=weight,
        energy=problem.pue / J_PER_KWH * np.where(allowed, mean_watts * lost + watts * left, 0.0),
        speed=speed,
        cls=cls,
        cls_of_level=cls_of_level,
        target=target,
        blocks=blocks,
        fixed=asked,
        start=start,
        levels_of_state=member[cls],
    )


def _switches(problem: Problem) -> tuple[Floats, Floats]:
    """[L, L] seconds (inf where forbidden, 0 on the diagonal) and joules, host included."""
    tau = np.array([[np.inf if t is None else t for t in row] for row in problem.switch_s], dtype=np.float64)
    np.fill_diagonal(tau, 0.0)
    watts = np.array(problem.switch_w, dtype=np.float64) + problem.host_w
    joules = np.where(np.isfinite(tau) & (tau > 0), watts * np.where(np.isfinite(tau), tau, 0.0), 0.0)
    return tau, joules


def _classes(running: Bools, tau: Floats, joules: Floats) -> Ints:
    """[L] class of each level, numbered by first appearance."""
    seen: dict[tuple[bool, bytes, bytes], int] = {}
    return np.array(
        [
            seen.setdefault((bool(running[j]), tau[j].tobytes(), joules[j].tobytes()), len(seen))
            for j in range(len(running))
        ]
    )


def _dwell(minimum: int, slots: int) -> int:
    """The largest age that matters within the horizon."""
    return min(minimum, slots + 1)


def _states(problem: Problem, class_runs: Bools, any_fixed: bool) -> tuple[Ints, Ints, Ints, int]:
    """Class, age and resumes of each state (resumes fastest, then age), and the number of resume counts kept."""
    slots = len(problem.dur_s)
    run, pause = _dwell(problem.min_run_slots, slots), _dwell(problem.min_pause_slots, slots)
    limit = 0
    if problem.max_resumes is not None:
        # a resume needs a whole run and a whole pause before the next one; a limit that cannot be reached is dropped
        most = slots if any_fixed else slots // (run + pause) + 2
        limit = problem.max_resumes + 1 if problem.max_resumes < most else 0
    counts = max(1, limit)
    rows = [
        (c, age, r)
        for c, runs in enumerate(class_runs)
        for age in range(1, (run if runs else pause) + 1)
        for r in range(counts)
    ]
    table = np.array(rows, dtype=np.int64)
    return table[:, 0], table[:, 1], table[:, 2], limit


def _arcs(
    cls: Ints, ages: Ints, limit: int, running: Bools, class_runs: Bools, cls_of_level: Ints
) -> tuple[Ints, tuple[tuple[Block, ...], tuple[Block, ...]]]:
    """Targets [2, S, L] and the slabs of arcs, for free slots and for slots with a fixed level (dwell waived)."""
    counts = max(1, limit)
    first = [int(np.flatnonzero(cls == c)[0]) for c in range(len(class_runs))]
    oldest = [int(ages[cls == c].max()) for c in range(len(class_runs))]
    both: list[list[Block]] = [[], []]
    for c in range(len(class_runs)):
        for j, to in enumerate(cls_of_level):
            for waived, out in enumerate(both):
                if class_runs[c] == class_runs[to]:
                    young = (oldest[c] - 1) * counts
                    if young:
                        out.append(Block(c, j, first[c], first[c] + young, first[to] + counts))
                    out.append(Block(c, j, first[c] + young, first[c] + young + counts, first[to] + young))
                    continue
                used = 1 if limit and running[j] else 0
                for age in range(1, oldest[c] + 1) if waived else (oldest[c],):
                    row = first[c] + (age - 1) * counts
                    if counts > used:
                        out.append(Block(c, j, row, row + counts - used, first[to] + used))
    target = np.full((2, len(cls), len(running)), -1, dtype=np.int64)
    for waived, out in enumerate(both):
        for block in out:
            target[waived, block.lo : block.hi, block.level] = np.arange(block.to, block.to + block.hi - block.lo)
    return target, (tuple(both[0]), tuple(both[1]))


def sources(target: Ints) -> Ints:
    """[S, P] arcs (state * columns + column of `target`) that lead into each state, padded with the number of arcs."""
    into = target.ravel()
    arcs = np.argsort(into, kind="stable")[np.count_nonzero(into < 0) :]
    state = into[arcs]
    place = np.arange(len(arcs)) - np.searchsorted(state, state)
    table = np.full((len(target), int(place.max(initial=0)) + 1), target.size, dtype=np.int64)
    table[state, place] = arcs
    return table


@dataclass(frozen=True)
class Reach:
    """Whether the work fits, and the schedule that shows it: the one that does the most work, or where it does not fit,
    the one with the least lateness."""

    fits: bool
    levels: tuple[int, ...]


def reach(graph: Graph) -> Reach:
    """Whether the work fits before the deadline and, where it does not, the schedule that finishes soonest after it.

    A backward pass over all states, not 'always the fastest level': where the fastest cannot be entered yet, which
    level one waits in decides what can be done later. Raises Infeasible when nothing ever finishes.
    """
    problem = graph.problem
    fastest = problem.fastest
    states = graph.states
    # work lost to the last switch when the job goes on at full speed after the deadline
    tail = np.full(states, -np.inf)
    top = graph.speed[fastest]
    for s in range(states):
        level = int(graph.levels_of_state[s])
        same = graph.cls_of_level[fastest] == graph.cls[s]
        time = 0.0 if same else problem.switch_s[level][fastest]
        spent = problem.max_resumes is not None and graph.target[1, s, fastest] < 0
        if time is not None and not (spent and graph.speed[level] <= 0):
            tail[s] = -time * top
    best = np.full((graph.slots + 1, states + 1), -np.inf)
    best[-1, :-1] = tail
    most = np.full((graph.slots + 1, states + 1), -np.inf)
    most[-1, :-1] = 0.0
    soonest = np.empty((graph.slots, states), dtype=np.int64)
    fullest = np.empty_like(soonest)
    prefer = np.argsort(-graph.speed, kind="stable")
    possible = np.isfinite(graph.cost)
    for k in range(graph.slots - 1, -1, -1):
        dst = graph.target[int(graph.fixed[k] >= 0)]
        gain = np.where(possible[k], graph.work[k], -np.inf)[graph.cls]
        for value, choice in ((most, fullest), (best, soonest)):
            total = gain + value[k + 1][dst]
            choice[k] = prefer[np.argmax(total[:, prefer], axis=1)]
            value[k, :-1] = total.max(axis=1)
        passable = bool(np.isfinite(most[k, graph.start]))
        most[k, :-1] = np.maximum(most[k, :-1], 0.0)  # it may be done before there is no way on
    fits = bool(most[0, graph.start] >= problem.work_s - problem.finish_tolerance)
    if not fits and not np.isfinite(best[0, graph.start]):
        where = "fixed" if (graph.fixed >= 0).any() else "switch.time_s"
        if problem.max_resumes is not None and passable:
            where = "max_resumes"
        raise Infeasible(where, "leaves no schedule that ever finishes the work")
    levels, s = [], graph.start
    for k in range(graph.slots):
        level = int((fullest if fits else soonest)[k, s])
        levels.append(level)
        s = int(graph.target[int(graph.fixed[k] >= 0), s, level])
    return Reach(fits, tuple(levels))
