"""Traps that planners of this kind have fallen into, one test each."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from msgspec import structs
from plan_helpers import best_by_trying

from carbontui.assumed.job import boundaries
from carbontui.plan.evaluation import evaluate
from carbontui.plan.frontier_curve import frontier
from carbontui.plan.planner import solve
from carbontui.plan.problem import Infeasible, Problem, ProblemError, ProblemLevel
from carbontui.plan.rivals import baselines

CAPS = (
    ProblemLevel("pause", 90, 0.0),
    ProblemLevel("full", 650, 1.0),
    ProblemLevel("c448", 448, 0.9),
    ProblemLevel("c249", 249, 0.55),
)


def job(ci, levels=CAPS, step=900.0, resume=45.0, pause=20.0, **changes):
    """A job on slots of `step` seconds that is running at level 1, with real switch costs."""
    n = len(levels)

    def seconds(i, j):
        a, b = levels[i].running, levels[j].running
        return 0.0 if i == j or a == b else (pause if a else resume)

    base = dict(  # noqa: C408
        dur_s=(step,) * len(ci),
        ci_g_per_kwh=tuple(map(float, ci)),
        levels=levels,
        switch_s=tuple(tuple(seconds(i, j) for j in range(n)) for i in range(n)),
        switch_w=((300.0,) * n,) * n,
        work_s=step * len(ci) * 0.5,
        initial_level=1,
    )
    return Problem(**(base | changes))


def daily(slots, seed=0):
    rng = random.Random(seed)
    return [rng.uniform(100, 600) for _ in range(slots)]


def test_negative_prices_are_planned_with_and_never_break_the_bound():
    for seed in range(12):
        rng = random.Random(seed)
        price = tuple(rng.uniform(-0.3, 0.3) for _ in range(6))
        problem = job(daily(6, seed), levels=CAPS[:3], price_per_kwh=price, alpha=1000.0, beta=1.0)
        plan, truth = solve(problem), best_by_trying(problem)
        assert plan.lower_bound <= truth + 1e-9 * abs(truth)
        assert truth - 1e-9 * abs(truth) <= plan.objective <= truth + 1.01e-3 * abs(truth)
        assert plan.cost == pytest.approx(evaluate(problem, plan.levels).cost, rel=1e-9)


def test_speeds_that_never_fit_the_buckets_do_not_drift_out_of_the_table():
    speeds = (1.0, 0.9137, 0.7731, 0.5519)
    levels = (CAPS[0], *(ProblemLevel(f"s{s}", 650 * s**1.8, s) for s in speeds))
    for seed in range(4):
        problem = job(daily(96, seed), levels=levels, step=899.77, work_s=899.77 * 61.3)
        loose, tight = solve(problem), solve(problem, tol=1e-5)
        assert loose.lower_bound <= tight.objective
        assert tight.lower_bound <= loose.objective
        assert loose.objective <= tight.objective * (1 + 1.01e-3)


@pytest.mark.parametrize("share", [0.97, 0.99, 0.999, 1.0])
def test_a_tight_deadline_is_met_and_beats_every_constant_cap(share):
    problem = job(daily(48, 3), work_s=900.0 * 48 * share)
    plan = solve(problem)
    assert plan.late_s == 0
    for rival in baselines(problem):
        if rival.feasible:
            assert plan.objective <= rival.objective
    # the budget in which a constant cap just fits once made cheap labels drive out the only feasible ones
    capped = solve(replace(problem, work_s=900.0 * 48 * 0.9))
    constant = evaluate(replace(problem, work_s=900.0 * 48 * 0.9), (2,) * 48)
    assert capped.objective <= constant.objective


def test_a_switch_longer_than_the_partial_first_slot_waits_for_the_next():
    problem = job([400, 300, 300], levels=CAPS[:2], work_s=1700.0, initial_level=0)
    problem = replace(problem, dur_s=(30.0, 900.0, 900.0))
    plan = solve(problem)
    assert plan.levels == (0, 1, 1)
    assert plan.late_s == 0
    assert [v.kind for v in evaluate(problem, (1, 1, 1)).violations] == ["switch longer than slot"]


def test_waiting_in_the_wrong_level_is_not_called_late():
    levels = (ProblemLevel("unload", 25, 0.0), ProblemLevel("pause", 90, 0.0), ProblemLevel("full", 600, 1.0))
    problem = Problem(
        dur_s=(30.0, 1800.0, 1800.0),
        ci_g_per_kwh=(400.0, 300.0, 300.0),
        levels=levels,
        switch_s=((0, 5, 300), (5, 0, 45), (20, 20, 0)),
        switch_w=((0, 120, 300), (120, 0, 300), (300, 300, 0)),
        work_s=3500.0,
        initial_level=1,
    )
    assert solve(problem).late_s == 0


def test_ties_of_hourly_data_in_quarter_hours_keep_the_objective_and_the_bound():
    hourly = [value for value in daily(12, 5) for _ in range(4)]
    problem = job(hourly)
    plan = solve(problem, tol=1e-5)
    shuffled = job(hourly, levels=(CAPS[3], CAPS[1], CAPS[0], CAPS[2]))
    assert solve(shuffled, tol=1e-5).objective == pytest.approx(plan.objective, rel=2e-5)


def test_the_hour_that_clocks_show_twice_is_two_hours_here():
    # 2026-10-25 in Germany: local 02:00 to 03:00 happens twice; slots are UTC and all equally long
    start = 1792875600.0  # 2026-10-24T21:00Z
    edges = boundaries(start, start + 8 * 3600, 3600.0)
    assert [b - a for a, b in itertools.pairwise(edges)] == [3600.0] * 8


def test_average_and_marginal_never_meet_in_one_problem():
    # a problem holds one series of intensity; a second one is refused by name
    data = job([300, 200]).to_dict()
    data["slots"]["marginal_g_per_kwh"] = [800, 900]
    from carbontui.plan.problem import problem_from_dict

    with pytest.raises(ProblemError, match=r"slots\.marginal_g_per_kwh"):
        problem_from_dict(data)


def test_work_that_does_not_fit_is_flat_out():
    problem = job(daily(20, 1), work_s=900.0 * 21)
    plan = solve(problem)
    flat = evaluate(problem, ())
    assert (plan.objective, plan.late_s) == (flat.objective, flat.late_s)
    assert plan.late_s == pytest.approx(900.0)
    assert len(frontier(problem).points) == 0


def test_no_resume_left_and_not_running_is_infeasible():
    problem = job([300, 200], initial_level=0, max_resumes=0)
    with pytest.raises(Infeasible, match="max_resumes"):
        solve(problem)


def test_no_work_is_no_plan():
    plan = solve(job([300, 200], work_s=0.0))
    assert (plan.levels, plan.objective, plan.finish_s, plan.gap) == ((-1, -1), 0, 0, 0)
    assert frontier(job([300, 200], work_s=0.0)).points[0].objective == 0


def test_a_grid_of_zero_grams_costs_nothing_and_still_finishes():
    plan = solve(job([0] * 12))
    assert (plan.objective, plan.late_s, plan.certified) == (0, 0, True)


def test_dwell_is_carried_into_the_horizon():
    problem = job([900, 900, 100, 100, 100, 100], levels=CAPS[:2], work_s=1800.0, min_run_slots=4, initial_age_slots=2)
    assert solve(problem).levels[:2] == (1, 1)
    assert solve(replace(problem, initial_age_slots=4)).levels[0] == 0


def test_a_person_may_break_the_dwell_and_the_rest_is_planned_around_it():
    problem = job(daily(16, 2), min_run_slots=6, initial_age_slots=1, work_s=900.0 * 8)
    plan = solve(problem, fixed={0: 0, 1: 0})
    assert plan.levels[:2] == (0, 0)
    assert plan.late_s == 0
    assert {v.kind for v in plan.violations} == {"min dwell"}


def test_rent_makes_waiting_dear():
    rented = tuple(structs.replace(level, rent_per_h=2.5) for level in CAPS[:2])
    problem = job([500, 500, 100, 100], levels=rented, work_s=1700.0)
    assert solve(problem).levels == (0, 0, 1, 1)
    priced = solve(replace(problem, alpha=1000.0))
    assert priced.levels == (1, 1, -1, -1)
    assert priced.cost == pytest.approx(2.5 * 1700 / 3600)


def test_a_horizon_too_long_to_search_still_gives_an_honest_plan_and_no_frontier():
    problem = job(daily(6000, 8), step=60.0, levels=CAPS[:2])
    plan = solve(problem, compare=False)
    assert plan.late_s == 0
    assert plan.lower_bound <= plan.objective
    assert plan.certified == (plan.gap <= 1e-3)
    with pytest.raises(ProblemError, match="too many for a frontier"):
        frontier(problem)


@pytest.mark.parametrize("first_s", [803.6254360465258, 627.0745828909885, 203.19234964809334])
def test_where_waiting_saves_nothing_the_job_begins_at_once(first_s):
    # sums of many equal parts differ in their last digits: not a reason to wait
    levels = (ProblemLevel("off", 0.0, 0.0), ProblemLevel("pause", 26.0, 0.0), ProblemLevel("full", 65.0, 1.0))
    wait = ((0.0, None, 0.0), (None, 0.0, 0.0), (None, 0.0, 0.0))
    problem = job([300.0] * 80, levels, work_s=36000.0, initial_level=0, switch_s=wait)
    plan = solve(replace(problem, dur_s=(first_s, *problem.dur_s[1:])))
    assert plan.levels[0] == 2
