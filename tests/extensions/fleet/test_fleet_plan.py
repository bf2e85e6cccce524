"""A cluster's jobs within one power budget: no slot is exceeded, and the certificate holds against an exact optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from later import Later, together

from carbontui.extensions.fleet.placing import planned, priced
from carbontui.extensions.fleet.problem import NEVER, FleetJobs, FleetProblem, FleetSite

optimize = Later("scipy.optimize")
pytestmark = together("scipy")
SPEED = np.array([1.0, 0.9, 0.6])
WATTS = np.array([650.0, 448.0, 270.0])


def problem(seed: int, jobs: int = 12, slots: int = 10, room: float = 0.6) -> FleetProblem:
    """Random work of 1 to 8 GPUs of which some has no room."""
    dice = np.random.default_rng(seed)
    gpus = dice.choice([1.0, 2.0, 4.0, 8.0], jobs)
    work = dice.uniform(0.3, slots / 2, jobs)
    first = dice.integers(0, slots // 2, jobs)
    length = work[:, None] / SPEED[None, :]
    weight = dice.uniform(0.05, 0.5, slots)
    watts = gpus[:, None] * WATTS[None, :]
    undone = 20 * watts[:, 0] * work * weight.mean()
    end = first + work * dice.uniform(1.0, 3.0, jobs)
    site = FleetSite(weight, np.full(slots, room * gpus.sum() * 650 / 2), np.full(slots, gpus.sum() * 0.6))
    return FleetProblem(site, FleetJobs(gpus, watts, length, first, end, undone))


def optimum(p: FleetProblem) -> float:
    """The least total by HiGHS, over every choice of every job written out."""
    costs, rows, jobs = [], [], []
    for job in range(len(p.jobs)):
        for level in range(len(SPEED)):
            for start in range(int(p.jobs.first[job]), int(p.last_start[job, level]) + 1):
                n = int(p.touched[job, level])
                end = start + p.jobs.length[job, level]
                shares = np.clip(end - np.arange(p.site.slots), 0, 1) * (np.arange(p.site.slots) >= start)
                costs.append(p.jobs.watts[job, level] * (shares @ p.site.weight))
                on = (np.arange(p.site.slots) >= start) & (np.arange(p.site.slots) < start + n)
                rows.append(np.concatenate([on * p.jobs.watts[job, level], on * p.jobs.gpus[job]]))
                jobs.append(job)
        costs.append(p.jobs.undone_g[job])
        rows.append(np.zeros(2 * p.site.slots))
        jobs.append(job)
    once = (np.array(jobs)[None, :] == np.arange(len(p.jobs))[:, None]).astype(float)
    room = np.concatenate([p.site.power_w, p.site.gpus])
    found = optimize.milp(
        np.array(costs),
        constraints=[optimize.LinearConstraint(once, 1, 1), optimize.LinearConstraint(np.array(rows).T, -np.inf, room)],
        integrality=np.ones(len(costs)),
    )
    return float(found.fun) if found.success else np.inf


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_below_the_optimum_and_the_plan_is_not(seed):
    p = problem(seed)
    best, plan = optimum(p), planned(p)
    assert plan.prices.bound_g <= best * (1 + 1e-9)
    if np.isfinite(best):
        assert plan.total_g >= best * (1 - 1e-9)


def test_the_bound_is_tight_where_everything_fits_where_it_is_best():
    p = problem(3, room=100.0)
    p = FleetProblem(FleetSite(p.site.weight, p.site.power_w, p.site.gpus * 100), p.jobs)
    plan = planned(p)
    assert plan.gap == pytest.approx(0.0, abs=1e-12)
    assert plan.total_g == pytest.approx(optimum(p))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(4, 24), st.floats(0.05, 1.5))
def test_no_slot_is_exceeded_and_every_job_is_in_time(seed, jobs, slots, room):
    p = problem(seed, jobs, slots, room)
    plan = planned(p)
    begun = plan.start != NEVER
    rows = np.arange(jobs)
    length = p.jobs.length[rows, plan.level]
    assert (plan.start[begun] >= p.jobs.first[begun]).all()
    assert (plan.start + length <= p.jobs.end + 1e-6)[begun].all()
    watts, gpus = np.zeros(slots), np.zeros(slots)
    for job in np.nonzero(begun)[0]:
        span = slice(plan.start[job], plan.start[job] + int(np.ceil(length[job] - 1e-9)))
        watts[span] += p.jobs.watts[job, plan.level[job]]
        gpus[span] += p.jobs.gpus[job]
    assert (watts <= p.site.power_w + 1e-3).all()
    assert (gpus <= p.site.gpus + 1e-6).all()
    assert watts == pytest.approx(plan.watts)
    assert plan.prices.bound_g <= plan.total_g * (1 + 1e-9)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 3), st.floats(0, 50))
def test_any_prices_give_a_bound_and_the_best_found_is_no_worse(seed, watt, gpu):
    p = problem(seed)
    one = np.ones(p.site.slots)

    def bound_g(watt: float, gpu: float) -> float:
        spent = watt * p.site.power_w.sum() + gpu * p.site.gpus.sum()
        return float(p.best(watt * one, gpu * one).cost.sum() - spent)

    assert bound_g(watt, gpu) <= planned(p).total_g * (1 + 1e-9)
    assert priced(p).bound_g >= bound_g(0.0, 0.0) - 1e-9


def test_what_cannot_all_be_done_leaves_out_what_is_worth_least():
    weight = np.full(4, 0.1)
    jobs = FleetJobs(
        gpus=np.array([1.0, 1.0]),
        watts=np.array([[500.0], [500.0]]),
        length=np.array([[3.0], [3.0]]),
        first=np.array([0, 0]),
        end=np.array([4.0, 4.0]),
        undone_g=np.array([1000.0, 9000.0]),
    )
    plan = planned(FleetProblem(FleetSite(weight, np.full(4, 600.0), np.full(4, 8.0)), jobs))
    assert plan.start.tolist()[0] == NEVER and plan.start[1] >= 0


@pytest.mark.parametrize("seed", range(6))
def test_a_few_jobs_are_planned_within_one_per_cent_of_the_optimum(seed):
    """Where the bound is far away since whole jobs do not fill the slots, the plan itself must not be."""
    p = problem(seed, jobs=8, slots=16, room=0.9)
    assert planned(p).total_g <= optimum(p) * 1.01


@pytest.mark.parametrize("seed", range(6))
def test_one_large_job_is_worth_the_short_ones_in_its_way(seed):
    # whenever it begins, two to four short ones, larger still and each with one start, are in its way
    gpus, work = np.array([12.0, *[14.0] * 4, *[1.0] * 30]), np.array([40.0, *[3.0] * 4, *[8.0] * 30])
    first, end = np.array([5, 10, 20, 30, 40, *[0] * 30]), np.array([55.0, 13.0, 23.0, 33.0, 43.0, *[64.0] * 30])
    jobs = FleetJobs(gpus, gpus[:, None], work[:, None], first, end, 20 * gpus * work)
    weight = np.random.default_rng(seed).uniform(0.8, 1.2, 64)
    plan = planned(FleetProblem(FleetSite(weight, np.full(64, 1e3), np.full(64, 16.0)), jobs))
    assert (plan.start != NEVER).tolist() == [True, True, False, False, False, *[True] * 30]


def test_a_job_longer_than_the_plan_keeps_its_deadline_and_its_thrift():
    lengths = np.array([[12.0, 15.0, 22.0], [12.0, 15.0, 22.0], [8.0, 9.0, 16.0], [30.0, 33.0, np.inf]])
    watts = np.array([[650.0, 448.0, 349.0]] * 3 + [[650.0, 448.0, 0.0]])
    end = np.array([20.0, 40.0, 40.0, 25.0])
    none, jobs = np.zeros(4, dtype=np.int64), np.ones(4)
    open_ = np.isfinite(FleetJobs(jobs, watts, lengths, none, end, jobs).within(10).length).tolist()
    assert open_[0] == [False, True, False]  # the slowest would end after the deadline
    assert open_[1] == [False, True, False]  # 349 W for 22 slots is more than 448 W for 15
    assert open_[2] == [True, True, False]
    assert open_[3] == [False, True, False]  # late at any level: as thriftily as it can
