"""What must hold for every problem: the planner against trying everything, and against itself under changes."""

import contextlib
import itertools
import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from msgspec import structs
from plan_helpers import best_by_trying, tiny

from carbontui.plan.evaluation import evaluate
from carbontui.plan.frontier_curve import frontier
from carbontui.plan.planner import solve
from carbontui.plan.problem import STANDS_STILL, Infeasible, Problem, ProblemLevel, problem_from_dict
from carbontui.plan.rolling import replan

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TINY_TOL = 1e-9


def optimum(problem: Problem) -> float:
    """The optimum as closely as the planner can: small corridors, hence exact."""
    return solve(problem, tol=TINY_TOL).objective


@contextlib.contextmanager
def feasible():
    """A problem without any plan is no example."""
    try:
        yield
    except Infeasible:
        reject()


@settings(few, max_examples=150)
@given(tiny(shadows=True))
def test_the_plan_is_the_optimum_and_its_bound_holds(problem):
    truth = best_by_trying(problem)
    try:
        plan = solve(problem)
    except Infeasible:
        assert truth is None
        return
    got = evaluate(problem, plan.levels)
    assert (got.objective, got.kwh, got.finish_s) == pytest.approx((plan.objective, plan.kwh, plan.finish_s), rel=1e-9)
    assert plan.lower_bound <= plan.objective
    if truth is None:
        assert plan.late_s > 0 or plan.violations
        return
    assert got.feasible
    assert plan.lower_bound <= truth + 1e-9 * abs(truth)
    assert truth - 1e-9 * abs(truth) <= plan.objective <= truth + 1.01e-3 * abs(truth)
    for rival in plan.baselines:
        if rival.feasible:
            assert plan.objective <= rival.objective


@few
@given(tiny(shadows=True), st.data())
def test_a_fixed_slot_is_obeyed_and_the_rest_is_planned_around_it(problem, data):
    problem = replace(problem, min_run_slots=1, min_pause_slots=1, max_resumes=None)
    slot = data.draw(st.integers(0, len(problem.dur_s) - 1))
    level = data.draw(st.integers(0, len(problem.levels) - 1))
    with feasible():
        plan = solve(problem, fixed={slot: level})
    assert plan.levels[slot] in (level, -1)
    truth = best_by_trying(problem, {slot: level})
    if truth is not None:
        assert plan.late_s == 0
        assert plan.objective <= truth + 1.01e-3 * abs(truth)


@few
@given(tiny(shadows=True), st.data())
def test_slots_that_must_stand_still_do_and_the_proof_is_of_that_problem(problem, data):
    problem = replace(problem, min_run_slots=1, min_pause_slots=1, max_resumes=None)
    slots = data.draw(st.sets(st.integers(0, len(problem.dur_s) - 1), min_size=1, max_size=3))
    with feasible():
        plan = solve(problem, fixed=dict.fromkeys(slots, STANDS_STILL))
    assert not any(plan.levels[slot] >= 0 and problem.levels[plan.levels[slot]].running for slot in slots)
    still = [j for j, level in enumerate(problem.levels) if not level.running]
    truths = (
        best_by_trying(problem, dict(zip(slots, held, strict=True)))
        for held in itertools.product(still, repeat=len(slots))
    )
    known = [truth for truth in truths if truth is not None]
    if known:
        assert plan.late_s == 0
        assert plan.lower_bound <= min(known) + 1e-9 * abs(min(known))
        assert plan.objective <= min(known) + 1.01e-3 * abs(min(known))


@few
@given(tiny(), st.sampled_from([0.95, 1.0, 1.2]))
def test_it_is_late_only_when_nothing_is_on_time(problem, work_share):
    problem = replace(problem, work_s=sum(problem.dur_s) * work_share)
    with feasible():
        plan = solve(problem)
    assume(plan.late_s > 0)
    assert best_by_trying(problem) is None
    flat = evaluate(problem, ())
    if not flat.violations:
        assert plan.late_s <= flat.late_s + 1e-6


@few
@given(tiny(slots=5, shadows=True))
def test_every_frontier_point_is_what_it_says_and_the_best_for_its_deadline(problem):
    problem = replace(problem, price_of_time=0.0)  # the frontier has none
    with feasible():
        curve = frontier(problem)
    values = [point.objective for point in curve]
    assert values == sorted(values, reverse=True)
    for point in curve:
        levels = [level for level, count in point.levels for _ in range(count)]
        got = evaluate(problem, levels)
        assert got.feasible
        assert (got.objective, got.gco2, got.cost, got.kwh, got.finish_s) == pytest.approx(
            (point.objective, point.gco2_g, point.cost, point.kwh, point.finish_s), rel=1e-9, abs=1e-9
        )
    assume(problem.price_per_kwh is None or min(problem.price_per_kwh) >= 0)
    for k in range(len(problem.dur_s)):
        cut = replace(
            problem,
            dur_s=problem.dur_s[: k + 1],
            ci_g_per_kwh=problem.ci_g_per_kwh[: k + 1],
            price_per_kwh=problem.price_per_kwh and problem.price_per_kwh[: k + 1],
            shadow_per_h=problem.shadow_per_h and problem.shadow_per_h[: k + 1],
        )
        truth, at = best_by_trying(cut), curve.at[k]
        found = curve.points[at].objective if at >= 0 else None
        if truth is not None and found is not None:
            assert truth - 1e-9 * abs(truth) <= found <= truth + 2e-3 * abs(truth)
        elif found is not None:
            raise AssertionError("a frontier point where nothing is feasible")


@few
@given(tiny(prices=False), st.sampled_from([0.5, 3.0]))
def test_scaling(problem, factor):
    problem = replace(problem, price_of_time=0.0)
    levels = tuple(structs.replace(level, embodied_g_per_h=0.0) for level in problem.levels)
    with feasible():
        assert optimum(replace(problem, beta=factor)) == pytest.approx(optimum(problem) * factor, rel=1e-6)
        base = optimum(problem := replace(problem, levels=levels))
    assert optimum(replace(problem, pue=problem.pue * factor)) == pytest.approx(base * factor, rel=1e-6)
    ci = tuple(value * factor for value in problem.ci_g_per_kwh)
    # rent is money and has no price here (alpha = 0), so intensity alone scales the objective
    assert optimum(replace(problem, ci_g_per_kwh=ci)) == pytest.approx(base * factor, rel=1e-6)


@few
@given(tiny(prices=False))
def test_host_watts_are_watts_of_every_level_and_switch(problem):
    moved = replace(
        problem,
        host_w=0.0,
        levels=tuple(structs.replace(level, power_w=level.power_w + problem.host_w) for level in problem.levels),
        switch_w=tuple(tuple(w + problem.host_w for w in row) for row in problem.switch_w),
    )
    with feasible():
        assert optimum(moved) == pytest.approx(optimum(problem), rel=1e-9)


@few
@given(tiny(), st.randoms(use_true_random=False))
def test_the_order_of_levels_does_not_matter(problem, random):
    order = list(range(len(problem.levels)))
    random.shuffle(order)
    shuffled = replace(
        problem,
        levels=tuple(problem.levels[i] for i in order),
        switch_s=tuple(tuple(problem.switch_s[i][j] for j in order) for i in order),
        switch_w=tuple(tuple(problem.switch_w[i][j] for j in order) for i in order),
        initial_level=order.index(problem.initial_level),
    )
    with feasible():
        plan, other = solve(problem, tol=TINY_TOL), solve(shuffled, tol=TINY_TOL)
    assert other.late_s == pytest.approx(plan.late_s)
    if plan.late_s == 0:  # a late plan is the soonest one, and of those with the same finish any will do
        assert other.objective == pytest.approx(plan.objective, rel=1e-6)


@few
@given(tiny(prices=False, dwell=1), st.sampled_from(["power", "tau", "work"]))
def test_more_freedom_never_costs(problem, what):
    # a switch that draws less than running is a saving in itself; here it never does
    problem = replace(problem, switch_w=tuple(tuple(700.0 for _ in row) for row in problem.switch_w))
    with feasible():
        plan = solve(problem, tol=TINY_TOL)
        assume(plan.late_s == 0)
        if what == "power":
            easier = replace(problem, levels=tuple(structs.replace(v, power_w=v.power_w * 0.8) for v in problem.levels))
        elif what == "tau":
            times = tuple(tuple(None if t is None else t / 2 for t in row) for row in problem.switch_s)
            easier = replace(problem, switch_s=times)
        else:
            easier = replace(problem, work_s=problem.work_s * 0.9)
        assert optimum(easier) <= plan.objective * (1 + 1e-6)


@few
@given(tiny(prices=False, dwell=1), st.data())
def test_halving_a_slot_never_costs(problem, data):
    k = data.draw(st.integers(0, len(problem.dur_s) - 1))
    assume(all(t is None or t <= problem.dur_s[k] / 2 for row in problem.switch_s for t in row))
    half = problem.dur_s[k] / 2
    split = replace(
        problem,
        dur_s=(*problem.dur_s[:k], half, half, *problem.dur_s[k + 1 :]),
        ci_g_per_kwh=(*problem.ci_g_per_kwh[: k + 1], *problem.ci_g_per_kwh[k:]),
    )
    with feasible():
        before = solve(problem, tol=TINY_TOL)
    assume(before.late_s == 0 and not before.violations)
    assert optimum(split) <= before.objective * (1 + 1e-6)
    doubled = [level for i, level in enumerate(before.levels) for level in [level] * (2 if i == k else 1)]
    again = evaluate(split, doubled)
    assert (again.objective, again.finish_s) == pytest.approx((before.objective, before.finish_s), rel=1e-9)


@few
@given(tiny(dwell=2))
def test_planning_again_one_slot_later_gives_the_same_cost_to_go(problem):
    assume(len(problem.dur_s) >= 3)
    problem = replace(problem, max_resumes=None)
    with feasible():
        plan = solve(problem, tol=TINY_TOL)
    first = plan.levels[0]
    assume(plan.late_s == 0 and first >= 0 and plan.levels[1] >= 0)
    tau = 0.0 if first == problem.initial_level else problem.switch_s[problem.initial_level][first]
    assert tau is not None
    done = problem.levels[first].speed * (problem.dur_s[0] - tau)
    same = problem.levels[first].running == problem.levels[problem.initial_level].running
    rest = replace(
        problem,
        dur_s=problem.dur_s[1:],
        ci_g_per_kwh=problem.ci_g_per_kwh[1:],
        price_per_kwh=problem.price_per_kwh and problem.price_per_kwh[1:],
        work_s=problem.work_s - done,
        initial_level=first,
        initial_age_slots=min(problem.initial_age_slots, 10) + 1 if same else 1,
    )
    to_go, spent = optimum(rest), evaluate(rest, plan.levels[1:])
    assert to_go == pytest.approx(spent.objective, rel=1e-6)
    kept, changed = replan(rest, plan.levels[1:], uncertainty=0.02)
    assert not changed
    assert kept.objective == pytest.approx(to_go, rel=1e-3)


@few
@given(st.integers(4, 30), st.integers(0, 1000))
def test_a_flat_grid_is_never_paused_for(slots, seed):
    problem = Problem(
        dur_s=(900.0,) * slots,
        ci_g_per_kwh=(300.0 + seed % 7,) * slots,
        levels=(ProblemLevel("pause", 90, 0), ProblemLevel("full", 600, 1.0)),
        switch_s=((0, 0), (0, 0)),
        switch_w=((0, 0), (0, 0)),
        work_s=900.0 * slots * (0.2 + seed % 6 / 10),
        initial_level=1,
    )
    levels = solve(problem, tol=1e-6).levels
    assert 0 not in levels


@few
@given(st.lists(st.integers(10, 900), min_size=4, max_size=40), st.integers(1, 9))
def test_free_pauses_mean_the_cheapest_slots(ci, tenths):
    count = max(1, len(ci) * tenths // 10)
    problem = Problem(
        dur_s=(900.0,) * len(ci),
        ci_g_per_kwh=tuple(map(float, ci)),
        levels=(ProblemLevel("pause", 0, 0), ProblemLevel("full", 600, 1.0)),
        switch_s=((0, 0), (0, 0)),
        switch_w=((0, 0), (0, 0)),
        work_s=900.0 * count,
        initial_level=1,
    )
    expected = math.fsum(sorted(ci)[:count]) * 0.15
    assert solve(problem).objective == pytest.approx(expected, rel=1e-3)


@few
@given(tiny())
def test_a_problem_survives_its_json_to_the_last_bit(problem):
    again = problem_from_dict(problem.to_dict())
    assert again == problem == Problem.from_json(json.dumps(problem.to_dict(), allow_nan=False))
    assert evaluate(again, (1,) * len(again.dur_s)) == evaluate(problem, (1,) * len(problem.dur_s))
