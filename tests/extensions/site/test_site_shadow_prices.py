"""The price of a site's watts: against the linear programme it is the dual of, and what it does to plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from later import Later, together

from carbontui.extensions.site import shadow_prices
from carbontui.headroom import Ahead, LevelAhead, SharedWatts
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemLevel

optimize = Later("scipy.optimize")
pytestmark = together("scipy")
LEVELS = ((0.0, 0.0, 0.0), (200.0, 200.0, 0.5), (400.0, 390.0, 0.85), (700.0, 680.0, 1.0))
"""Claimed, drawn, speed."""
HOUR = 3600.0


def ahead(work_h: float, deadline_h: float, planned=()) -> Ahead:
    levels = tuple(LevelAhead(claimed_w=c, drawn_w=d, speed=s) for c, d, s in LEVELS)
    return Ahead(levels=levels, work_s=work_h * HOUR, deadline_s=deadline_h * HOUR, planned=planned)


def by_linprog(jobs, ci, cap_w):
    """Least grams of all jobs together within the budget, slots and levels mixed as one likes; and the watts' price."""
    slots, count = len(ci), len(LEVELS)
    cost, fits, limits, work = [], [], [], []
    for job in range(len(jobs)):
        cost += [g * d / 1000.0 for g in ci for _, d, _ in LEVELS]
        for k in range(slots):
            row = np.zeros((len(jobs), slots, count))
            row[job, k] = 1.0
            fits.append(row.ravel())
    for k in range(slots):
        row = np.zeros((len(jobs), slots, count))
        row[:, k] = [c for c, _, _ in LEVELS]
        limits.append(row.ravel())
    for number, job in enumerate(jobs):
        row = np.zeros((len(jobs), slots, count))
        row[number, : round(job.deadline_s / HOUR)] = [-s for _, _, s in LEVELS]
        work.append(row.ravel())
    found = optimize.linprog(
        cost, A_ub=np.array(limits + work), b_ub=[cap_w] * slots + [-job.work_s / HOUR for job in jobs],
        A_eq=np.array(fits), b_eq=np.ones(len(fits)), method="highs",
    )  # fmt: skip
    assert found.status == 0
    return found.fun, -found.ineqlin.marginals[:slots]


def test_the_bound_behind_the_prices_is_the_optimum_of_the_linear_programme():
    dice = np.random.default_rng(3)
    for _ in range(5):
        ci = dice.uniform(100.0, 500.0, 8)
        jobs = [ahead(float(dice.uniform(1.0, 3.0)), int(dice.integers(5, 9))) for _ in range(3)]
        truth, _ = by_linprog(jobs, ci, 900.0)
        dur, weight = np.full(8, HOUR), np.append(ci, ci.mean()) / 3.6e6
        spread = shadow_prices.spread_out(jobs, 0.0, dur, float(weight.max()))
        price = shadow_prices.prices(jobs, 0.0, dur, ci, np.full(8, 900.0))
        paid, watt_s = shadow_prices.cheapest(spread, weight, np.append(price / 3.6e6, 0.0))
        bound = paid - float(price @ dur) * 900.0 / 3.6e6
        assert truth * 0.995 <= bound <= truth * (1 + 1e-6)
        assert watt_s[-1] == pytest.approx(0.0)


def test_watts_that_nobody_lacks_cost_nothing_and_scarce_ones_do():
    ci, dur = np.array([400.0, 100.0, 400.0, 400.0]), np.full(4, HOUR)
    alone = shadow_prices.prices([ahead(1.0, 4.0)], 0.0, dur, ci, np.full(4, 2000.0))
    assert not alone.any()
    two = shadow_prices.prices([ahead(1.0, 4.0), ahead(1.0, 4.0)], 0.0, dur, ci, np.full(4, 700.0))
    assert two[1] > 50.0 and two[[0, 2, 3]].max() < 5.0
    none = shadow_prices.prices([ahead(1.0, 4.0), ahead(1.0, 4.0)], 0.0, dur, ci, np.full(4, np.inf))
    assert not none.any()


def problem(ci, work_h, hours):
    n = len(LEVELS)
    return Problem(
        dur_s=(900.0,) * (4 * hours), ci_g_per_kwh=tuple(g for g in ci[:hours] for _ in range(4)),
        levels=tuple(ProblemLevel(f"l{i}", drawn, speed) for i, (_, drawn, speed) in enumerate(LEVELS)),
        switch_s=((0.0,) * n,) * n, switch_w=((0.0,) * n,) * n, work_s=work_h * HOUR, initial_level=0,
    )  # fmt: skip


def planned(made: Problem, others: list[Ahead], cap_w: float):
    """A plan under what the others tell, and what it tells them."""
    slots = len(made.dur_s)
    told = [[0.0] * slots for _ in others]
    for row, other in zip(told, others, strict=True):
        at = 0
        for until, watts in other.planned:
            while at < slots and (at + 1) * 900.0 <= until + 1.0:
                row[at] = watts
                at += 1
    shared = SharedWatts(
        start_s=0.0, room_w=(cap_w,) * slots, planned_w=tuple(sum(column) for column in zip(*told, strict=True))
        or (0.0,) * slots, claimed_w=tuple(c for c, _, _ in LEVELS), others=tuple(others),
    )  # fmt: skip
    priced = replace(made, shadow_per_h=shadow_prices.shadow(made, shared).shadow_per_h)
    plan = solve(priced)
    watts = [LEVELS[level][0] if level >= 0 else 0.0 for level in plan.levels]
    runs = tuple(((k + 1) * 900.0, w) for k, w in enumerate(watts))
    return plan, watts, runs


def test_two_alike_take_turns_in_the_clean_hours_instead_of_waking_together():
    ci = (400.0, 400.0, 100.0, 110.0, 400.0, 400.0)
    made = problem(ci, 1.8, 6)
    first, watts_a, told = planned(made, [ahead(1.8, 6.0)], 700.0)
    second, watts_b, _ = planned(made, [ahead(1.8, 6.0, told)], 700.0)
    assert max(a + b for a, b in zip(watts_a, watts_b, strict=True)) <= 700.0
    alone = solve(made)
    assert max(LEVELS[level][0] for level in alone.levels if level >= 0) > 350.0  # both of these would be above it
    for plan in (first, second):
        own = evaluate(made, plan.levels)
        assert (plan.gco2, plan.kwh) == pytest.approx((own.gco2, own.kwh))  # grams stay grams
        assert plan.finish_s <= 6 * HOUR and plan.lower_bound <= plan.objective
    least, _ = by_linprog([ahead(1.8, 6.0)] * 2, ci, 700.0)
    assert first.gco2 + second.gco2 < 1.2 * least  # not pushed further into the dirty hours than there is need


def test_one_that_can_wait_leaves_the_scarce_hours_to_one_that_cannot():
    ci = (300.0, 200.0, 300.0, 210.0, 300.0, 300.0)
    urgent, patient = ahead(1.9, 2.0), problem(ci, 0.5, 6)
    plan, watts, _ = planned(patient, [urgent], 700.0)
    assert not any(watts[:8])  # before the urgent one has told a plan: the price alone
    assert any(watts[12:16]) and plan.late_s == 0
