"""A rolling plan on an uncertain forecast: no worse than the simple rules, and never far above running now."""

from dataclasses import replace

import pytest

from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemLevel
from carbontui.plan.rivals import baselines
from carbontui.plan.rolling import REGRET, AtOnce, replan

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
    now = evaluate(problem(CLEAN_LATER, 4), ())
    assert plan.objective <= (1 + REGRET) * now.objective


def test_what_a_job_has_won_or_lost_by_now_decides_what_it_may_risk():
    waiting, doubtful = problem(CLEAN_LATER, 4), [0.0] * 6 + [150.0] * 6  # running now costs 720 g
    first = lambda since: replan(waiting, None, doubtful, since=since)[0].levels[0]  # noqa: E731
    assert first(None) == first(AtOnce(4 * SLOT_S)) == 1, "too much to lose"
    assert first(AtOnce(0.0, had=1000.0)) == 0, "it has waited for cleaner hours, and these are: more may be risked"
    assert first(AtOnce(0.0, had=1000.0, spent=280.0)) == 1


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
