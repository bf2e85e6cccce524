"""A rolling plan on an uncertain forecast: no worse than the simple rules, no bet against the best constant level."""

from dataclasses import replace

import pytest
from msgspec import structs

from carbontui.plan.evaluation import spelled_out
from carbontui.plan.frontier_curve import frontier
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemLevel, price_of_time
from carbontui.plan.rivals import baselines
from carbontui.plan.rolling import FLOOR, replan

SLOT_S = 3600.0


def problem(ci, hours, caps=False):
    """A job of that many hours that is off before its start."""
    levels = (ProblemLevel("off", 0.0, 0.0), ProblemLevel("full", 600.0, 1.0))
    levels += (ProblemLevel("cap", 350.0, 0.8),) if caps else ()
    count = len(levels)
    return Problem(
        dur_s=(SLOT_S,) * len(ci),
        ci_g_per_kwh=tuple(ci),
        levels=levels,
        switch_s=tuple(tuple(None if j == 0 and i else 0.0 for j in range(count)) for i in range(count)),
        switch_w=((0.0,) * count,) * count,
        work_s=hours * SLOT_S,
        initial_level=0,
    )


CLEAN_LATER = [300.0] * 6 + [240.0] * 6


def test_a_gain_that_is_sure_is_taken():
    plan, _ = replan(problem(CLEAN_LATER, 4), None, [0.0] * 12)
    assert plan.levels == solve(problem(CLEAN_LATER, 4)).levels
    assert plan.levels[0] == 0


def test_a_job_does_not_wait_for_a_gain_that_may_well_be_a_large_loss():
    doubtful = [0.0] * 6 + [200.0] * 6
    plan, _ = replan(problem(CLEAN_LATER, 4), None, doubtful)
    assert plan.levels[:4] == (1, 1, 1, 1)


def test_a_plan_leaves_the_best_constant_cap_only_for_more_than_it_may_err():
    capped = problem([300.0, 280.0] * 6, 4, caps=True)
    best = min((one for one in baselines(capped) if one.name.startswith("constant")), key=lambda one: one.objective)
    sure, doubted = (replan(capped, None, [sd] * 12)[0] for sd in (0.0, 100.0))
    assert sure.objective < best.objective == doubted.objective
    assert set(best.levels) == {2} and doubted.levels == spelled_out(capped, best.levels, best.finish_s)
    assert replan(capped, doubted.levels, [100.0] * 12) == (doubted, False)
    kept = (2,) + sure.levels[1:]
    assert replan(capped, sure.levels, [100.0] * 12)[0].levels == sure.levels, f"what is in force stays, not {kept}"


@pytest.mark.parametrize("watts", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("share", [0.9, 1.1])
def test_a_job_first_waits_only_for_the_least_share_of_the_whole(share, watts):
    """Whatever the watts are taken for, before they were measured."""
    gain = share * FLOOR * 300.0
    at = problem([300.0] * 4 + [300.0 - gain] * 8, 4)
    at = replace(at, levels=tuple(structs.replace(one, power_w=watts * one.power_w) for one in at.levels))
    plan, _ = replan(at, None, untouched=0.0)
    assert (plan.levels[0] == 0) is (share > 1)
    assert plan.forgone == pytest.approx(share * FLOOR if share < 1 else 0.0)
    assert replan(at, None)[0].levels[0] == 0, "one that has acted is not asked again"
    assert replan(at, None, untouched=1e3)[0].levels[0] == 1, "of the whole, so far and ahead"


def test_an_hour_later_must_save_its_price():
    """Waiting six hours saves 6 * 240 g of 720 g: 2 % of 180 g an hour would not keep it, 40 % does."""
    at = problem([300.0] * 6 + [240.0] * 6, 4)
    finishes = [solve(priced(at, pct)).finish_s / SLOT_S for pct in (0.0, 2.0, 40.0)]
    assert finishes == [10.0, 10.0, 4.0]
    assert price_of_time(at, 2.0) * SLOT_S == pytest.approx(0.02 * 0.6 * 300.0)
    rented = replace(at, alpha=1.0, levels=tuple(structs.replace(one, rent_per_h=9.0) for one in at.levels))
    assert price_of_time(rented, 2.0) * SLOT_S == pytest.approx(0.02 * (0.6 * 300.0 + 9.0))


def priced(of, pct):
    return replace(of, price_of_time=price_of_time(of, pct))


def test_of_time_that_has_a_price_the_bound_is_of_both():
    at = priced(problem([300.0, 280.0, 290.0] * 4, 4, caps=True), 2.0)
    plan = solve(at)
    own = plan.gco2
    least = min(point.gco2_g for point in frontier(at) if point.finish_s <= plan.finish_s + 1.0)
    assert plan.objective == pytest.approx(own + at.price_of_time * plan.finish_s)
    assert own * (1 - plan.gap_at_finish(at.price_of_time)) <= least + 1e-9


def test_the_plan_in_force_stays_where_another_is_better_by_noise_alone():
    kept = (0,) * 8 + (1, 1, 1, 1)
    other = [300.0] * 4 + [238.0] * 4 + [240.0] * 4
    assert replan(problem(other, 4), kept, [0.0] * 4 + [30.0] * 8)[0].levels == kept
    assert replan(problem(other, 4), kept, [0.0] * 12)[1]


def test_money_may_be_uncertain_too():
    sold = replace(problem([300.0] * 12, 4), alpha=1.0, beta=0.0, price_per_kwh=(0.3,) * 6 + (0.24,) * 6)
    assert replan(sold, None, [0.0] * 12)[0].levels[0] == 0
    assert replan(sold, None, [0.0] * 6 + [0.2] * 6)[0].levels[0] == 1


@pytest.mark.parametrize("caps", [False, True])
def test_the_best_window_is_one_of_the_simple_rules_with_caps_too(caps):
    of = {rule.name: rule for rule in baselines(problem(CLEAN_LATER, 4, caps))}
    assert of["best window"].levels == (0,) * 6 + (1,) * 6
    assert ("best window with caps" in of) is caps
    if caps:
        assert of["best window with caps"].objective < of["best window"].objective
        assert set(of["best window with caps"].levels) == {0, 2}
