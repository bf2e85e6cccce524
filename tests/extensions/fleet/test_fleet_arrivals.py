"""Jobs still to come: what is remembered of the queue, what is expected of it, and what a plan leaves to them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from carbontui.extensions.fleet import queue_problem as fleet
from carbontui.extensions.fleet.placing import decided
from carbontui.extensions.fleet.problem import PAST_S, Arrivals, FleetJobs, FleetProblem, FleetSite, to_come
from carbontui.extensions.fleet.queue_problem import Assumed, Cap, FleetTerms, Pool
from carbontui.slurm import queue
from carbontui.slurm.queue import ClusterSize

NOW = 1_800_000_000.0
TERMS = FleetTerms([Cap(5e4, None)], Assumed(0.0, 0.0), 1800.0)
POOL = Pool(ClusterSize(cpus=128, gpus=16), frozenset(), frozenset())


def job(id: str, **noted: object) -> queue.QueuedJob:
    told = "carbontui:" + json.dumps({"deadline": "2027-01-15T20:00:00Z", "work_s": 3600, "watts": 1600, **noted})
    fields = (id, "PENDING", "ann", "BeginTime", "", "t", "", "N/A", "N/A", "N/A", "8:00:00", "1", told, "1", "8", "1",
              "N/A", "OK", "N/A", "gres:gpu:4")  # fmt: skip
    rest = ["N/A"] * (len(queue.COLUMNS) - len(fields))
    return queue.rows("x:" + "".join(f"{field}x;" for field in (*fields, *rest)), "x")[0]


def some(*, first: int = 0, end: float = 40.0, length: float = 2.0, worth: float = 40.0) -> FleetJobs:
    one = np.array([1.0])
    return FleetJobs(one, one[:, None], one[:, None] * length, np.array([first]), one * end, one * worth)


def test_what_waited_at_the_first_look_came_nobody_knows_when():
    past = Arrivals()
    past.observe([job("1")], NOW)
    past.observe([job("1"), job("2"), job("3", after="2")], NOW + 1800)
    past.observe([job("2")._replace(state="RUNNING"), job("4")._replace(state="RUNNING")], NOW + 3600)
    # 3 goes on with the work of 2, and 4 was begun before it was seen to wait
    assert [(at, one.id) for at, one in past.came()] == [(NOW + 1800, "2")]
    past.observe([], NOW + 1800 + PAST_S)
    assert past.came() == [] and past.since_s == NOW + 1800


def test_the_past_comes_again_until_the_plan_ends():
    found = to_come(some(end=5.0), np.array([4.0]), 10.0, 30)
    # ten slots are known: it came in the seventh, and the one of the 27th slot may end after the plan
    assert found.first.tolist() == [6, 16] and found.end.tolist() == [11.0, 21.0]


def test_the_queues_past_is_expected_with_its_watts_processors_and_time():
    past = Arrivals()
    past.observe([], NOW - 7200)
    past.observe([job("1")], NOW - 3600)
    jobs = [job("1")]
    made = fleet.problem(jobs, POOL, [100.0] * 96, TERMS, NOW)
    more = fleet.expected_jobs(made, past, POOL, Assumed(0.0, 0.0))
    assert more is not None and more.first.tolist()[:2] == [2, 6]  # each second hour, as seen in two hours
    assert set(more.gpus) == {4.0} and set(more.watts[:, 0]) == {1600.0} and set(more.length[:, 0]) == {2.0}
    # the waiting job is worth far more than a guess
    assert made.problem.jobs.undone_g[0] == pytest.approx(8.0 * more.undone_g[0], rel=1e-3)
    assert fleet.expected_jobs(made, Arrivals(), POOL, Assumed(0.0, 0.0)) is None


def test_a_job_leaves_the_clean_hours_to_those_that_will_have_no_other():
    weight = np.full(40, 1.0)
    weight[0:2], weight[10:12] = 0.95, 0.9
    problem = FleetProblem(FleetSite(weight, np.ones(40), np.ones(40)), some())
    assert decided(problem, np.arange(1))[0].start.tolist() == [10]
    crowd = some(first=10, end=12.0, worth=2.0)
    plan, _ = decided(problem, np.arange(1), crowd)
    assert plan.start.tolist() == [0] and plan.watts.tolist() == [1.0, 1.0] + [0.0] * 38
    # what is known is done before what is expected: no room before its deadline but theirs
    late = FleetProblem(problem.site, replace(problem.jobs, first=np.array([10]), end=np.array([12.0])))
    assert decided(late, np.arange(1), crowd)[0].start.tolist() == [10]


def test_the_plan_is_never_worse_than_the_best_constant_cap():
    dice = np.random.default_rng(3)
    count, slots = 40, 48
    length = dice.uniform(1, 8, count)
    watts = np.stack([np.full(count, 650.0), np.full(count, 349.0)], axis=1)
    jobs = FleetJobs(
        np.ones(count), watts, np.stack([length, length / 0.775], axis=1), np.zeros(count, dtype=np.int64),
        np.full(count, 30.0), 20 * 650 * length,
    ).within(slots)  # fmt: skip
    problem = FleetProblem(FleetSite(dice.uniform(0.8, 1.2, slots), np.full(slots, 2800.0), np.full(slots, 8.0)), jobs)
    for more in (None, to_come(jobs, np.full(count, 2.0), 10.0, slots)):
        plan, constant = decided(problem, np.arange(count), more)
        assert constant is not None
        if more is None:
            assert plan.total_g <= constant.plan.total_g
        assert len(plan.start) == len(constant.plan.start) == count
