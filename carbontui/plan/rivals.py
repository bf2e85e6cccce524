"""Baselines that a plan is compared with: the simple policies of users and other tools.

Each is made as good as its rule allows: it starts as soon as its first switch is allowed, and cheapest slots are added
until the work, switching included, is done in time.
"""

from typing import NamedTuple

import numpy as np

from carbontui.plan.evaluation import evaluate
from carbontui.plan.graph import Floats, Graph, Ints, build
from carbontui.plan.problem import Problem
from carbontui.plan.results import PolicyResult, policy_result


def baselines(problem: Problem) -> tuple[PolicyResult, ...]:
    """'run now', 'constant NAME' for each running level, 'best window', 'best window with caps', 'cheapest slots', each
    evaluated."""
    if problem.work_s <= problem.finish_tolerance:
        return (policy_result("run now", (), evaluate(problem, ())),)
    return evaluated(problem, schedules(build(problem)))


def evaluated(problem: Problem, named: list[tuple[str, Ints]]) -> tuple[PolicyResult, ...]:
    """The named schedules with their figures."""
    plain = ((name, tuple(levels.tolist())) for name, levels in named)
    return tuple(policy_result(name, levels, evaluate(problem, levels)) for name, levels in plain)


def schedules(graph: Graph) -> list[tuple[str, Ints]]:
    """The schedules of all baselines, levels [T] each; some may be infeasible."""
    named = steady(graph)
    rest = _resting_level(graph)
    if rest is not None:
        window = _best_window(graph, rest, graph.problem.fastest)
        if window is not None:
            named.append(("best window", window))
        capped = [j for j, speed in enumerate(graph.speed) if speed > 0 and j != graph.problem.fastest]
        found = [held for j in capped if (held := _best_window(graph, rest, j)) is not None]
        if found:
            best = int(np.argmin(ends(graph, np.array(found)).objective))
            named.append(("best window with caps", found[best]))
        named.append(("cheapest slots", _cheapest(graph, rest)))
    return named


def steady(graph: Graph) -> list[tuple[str, Ints]]:
    """Run now, and then each running level throughout, from the first chance on."""
    problem = graph.problem
    running = ((f"constant {level.name}", j) for j, level in enumerate(problem.levels) if level.running)
    return [(name, _from_first_chance(graph, j)) for name, j in (("run now", problem.fastest), *running)]


class Ends(NamedTuple):
    """[P] of schedules by the planner's sums: the slot of the finish, the seconds of it left over, and the objective,
    inf where the work does not fit or a switch is not allowed."""

    slot: Ints
    left_s: Floats
    objective: Floats


def ends(graph: Graph, levels: Ints) -> Ends:
    """Where the schedules `levels` [P, T] (-1 from the finish on) end. Dwell and resumes are not checked."""
    held = np.maximum(levels, 0)
    cls = graph.cls_of_level[before(graph, held)]
    at, row = np.arange(graph.slots), np.arange(len(levels))
    work = np.cumsum(np.where(levels >= 0, graph.work[at, cls, held], 0.0), axis=1)
    done = (work >= graph.problem.work_s - graph.problem.finish_tolerance) & (levels >= 0)
    last = np.argmax(done, axis=1)
    over, final = np.maximum(work[row, last] - graph.problem.work_s, 0.0), held[row, last]
    cost = np.cumsum(graph.cost[at, cls, held], axis=1)[row, last] - over * graph.rate[last, final]
    left_s = np.divide(over, graph.speed[final], out=np.zeros_like(over), where=graph.speed[final] > 0)
    return Ends(last, left_s, np.where(done.any(axis=1), cost, np.inf))


def before(graph: Graph, levels: Ints) -> Ints:
    """[P, T] the level before each slot of `levels`."""
    first = np.full((len(levels), 1), graph.problem.initial_level)
    return np.hstack([first, levels[:, :-1]])


def _from_first_chance(graph: Graph, level: int) -> Ints:
    """`level` in every slot, after staying at the initial level while `level` cannot be entered yet."""
    problem = graph.problem
    out = np.full(graph.slots, level, dtype=np.int64)
    here = problem.initial_level
    running = graph.speed[here] > 0
    wait = 0
    if (graph.speed[level] > 0) != running:
        wait = max(0, (problem.min_run_slots if running else problem.min_pause_slots) - problem.initial_age_slots)
    possible = np.isfinite(graph.cost[:, graph.cls_of_level[here], level])
    possible[:wait] = False
    out[: int(np.argmax(possible))] = here
    return out


def _resting_level(graph: Graph) -> int | None:
    """The level at which a simple policy waits: the initial one if it does not run, else the fastest to resume from."""
    problem = graph.problem
    if graph.speed[problem.initial_level] <= 0:
        return problem.initial_level
    back = [
        (problem.switch_s[j][problem.fastest], j)
        for j in range(len(graph.speed))
        if graph.speed[j] <= 0 and problem.switch_s[problem.initial_level][j] is not None
    ]
    reachable = [(time, j) for time, j in back if time is not None]
    return min(reachable)[1] if reachable else None


def _best_window(graph: Graph, rest: int, level: int) -> Ints | None:
    """Wait, then run at `level` without a break: the best start, found from cumulative sums."""
    problem, at = graph.problem, np.arange(graph.slots)
    resting, running = graph.cls_of_level[rest], graph.cls_of_level[level]
    wait_cost = graph.cost[:, resting, rest].copy()
    wait_cost[0] = graph.cost[0, graph.cls_of_level[problem.initial_level], rest]
    waited = np.concatenate([[0.0], np.cumsum(wait_cost)])[:-1]
    cost, work = graph.cost[:, running, level], graph.work[:, running, level]
    costs, works = np.cumsum(cost), np.cumsum(work)
    first = np.where(at == 0, graph.cls_of_level[problem.initial_level], resting)
    enter_cost, enter_work = graph.cost[at, first, level], graph.work[at, first, level]
    goal = works + (problem.work_s - enter_work)
    end = np.searchsorted(works, goal - problem.finish_tolerance)
    end = np.where(enter_work >= problem.work_s - problem.finish_tolerance, at, end)
    ok = end < graph.slots
    end = np.minimum(end, graph.slots - 1)
    with np.errstate(invalid="ignore"):
        total = waited + enter_cost + costs[end] - costs - (works[end] - goal) * graph.rate[end, level]
    started = graph.speed[problem.initial_level] > 0
    aged = at if started else at + problem.initial_age_slots
    ok &= (aged >= problem.min_pause_slots) | ((at == 0) if started else np.zeros(graph.slots, dtype=np.bool_))
    total = np.where(ok & np.isfinite(total), total, np.inf)
    least = float(total.min())
    if not np.isfinite(least):
        return None
    start = int(np.argmax(total <= least + 1e-9 * abs(least)))  # of equal ones the earliest, whatever sums round to
    return np.where(at < start, rest, level)


def _smooth(run: np.ndarray[tuple[int], np.dtype[np.bool_]], least_run: int, least_pause: int) -> None:
    """In place: fill pauses that are too short, then lengthen runs that are too short."""
    for wanted, least in ((False, least_pause), (True, least_run)):
        if least <= 1:
            continue
        edges = np.flatnonzero(np.diff(np.concatenate([[not wanted], run == wanted, [not wanted]])))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if end - begin < least:
                run[begin : (begin + least) if wanted else end] = True


def _cheapest(graph: Graph, rest: int) -> Ints:
    """The cheapest slots at full speed, as many as the work needs, switching between them included."""
    problem, fastest = graph.problem, graph.problem.fastest
    order = np.argsort(graph.weight, kind="stable")
    amount = np.cumsum(np.array(problem.dur_s)[order] * graph.speed[fastest])
    fewest = min(int(np.searchsorted(amount, problem.work_s)) + 1, graph.slots)

    def with_slots(count: int) -> Ints:
        run = np.zeros(graph.slots, dtype=np.bool_)
        run[order[:count]] = True
        _smooth(run, problem.min_run_slots, problem.min_pause_slots)
        return np.where(run, fastest, rest)

    low, high = fewest, graph.slots
    while low < high:
        middle = (low + high) // 2
        if np.isfinite(ends(graph, with_slots(middle)[None]).objective[0]):
            high = middle
        else:
            low = middle + 1
    return with_slots(low)
