"""The longest pause is part of the plan, not something that breaks it later."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemLevel
from carbontui.plan.rolling import replan

SLOT_S = 900.0


def problem(ci, work_slots, initial=1):
    levels = (ProblemLevel("pause", 90.0, 0.0), ProblemLevel("full", 600.0, 1.0))
    return Problem(
        dur_s=(SLOT_S,) * len(ci),
        ci_g_per_kwh=tuple(ci),
        price_per_kwh=None,
        levels=levels,
        switch_s=((0.0, 5.0), (2.0, 0.0)),
        switch_w=((300.0, 300.0), (300.0, 300.0)),
        work_s=work_slots * SLOT_S - 60.0,
        initial_level=initial,
    )


def pauses(levels):
    """(first slot, slots) of every pause before the finish."""
    at, found = 0, []
    for level, run in itertools.groupby(levels):
        count = len(list(run))
        if level == 0:
            found.append((at, count))
        at += count
    return found


DIRTY_DAY = [100.0] * 4 + [900.0] * 20 + [100.0] * 8


def test_a_pause_that_would_be_too_long_is_broken_where_it_is_cleanest():
    ci = list(DIRTY_DAY)
    ci[14] = 500.0
    free = solve(problem(ci, 10))
    assert max(count for _, count in pauses(free.levels)) == 20
    plan, _ = replan(problem(ci, 10), None, max_pause_s=12 * SLOT_S)
    assert plan.levels[14] == 1 and max(count for _, count in pauses(plan.levels)) <= 12
    assert evaluate(problem(ci, 10), plan.levels).feasible
    assert plan.lower_bound <= free.objective * (1 + 1e-9), "the bound is that of the plan without breaks"
    assert plan.gap > free.gap


def test_what_is_over_of_the_present_pause_counts():
    ci = [900.0] * 8 + [100.0] * 8
    plan, _ = replan(problem(ci, 4, initial=0), None, max_pause_s=10 * SLOT_S, still_s=6 * SLOT_S)
    assert 1 in plan.levels[:5]
    plan, _ = replan(problem(ci, 4, initial=0), None, max_pause_s=10 * SLOT_S, still_s=0.0)
    assert plan.levels[:8] == (0,) * 8


def test_a_person_may_pause_longer():
    held = dict.fromkeys(range(12), 0)
    plan, _ = replan(problem([500.0] * 24, 8), None, fixed=held, max_pause_s=4 * SLOT_S)
    assert plan.levels[:12] == (0,) * 12


def test_levels_that_are_no_pause_may_last():
    plan, _ = replan(problem(DIRTY_DAY, 10), None, max_pause_s=4 * SLOT_S, pausing=())
    assert max(count for _, count in pauses(plan.levels)) == 20


@given(st.lists(st.integers(1, 90), min_size=8, max_size=40), st.integers(2, 30), st.integers(2, 12), st.integers(0, 4))
def test_no_pause_is_longer_than_asked_and_nothing_gets_late(ci, work, longest, over):
    case = problem([10.0 * value for value in ci], min(work, len(ci)), initial=0 if over else 1)
    plan, _ = replan(case, None, max_pause_s=longest * SLOT_S, still_s=over * SLOT_S)
    free = solve(case)
    assert plan.late_s == free.late_s
    assert plan.objective >= free.lower_bound * (1 - 1e-9) and math.isfinite(plan.gap)
    for first, count in pauses(plan.levels):
        assert count + (over if first == 0 else 0) <= max(longest, over)
