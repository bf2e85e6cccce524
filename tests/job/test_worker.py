"""What the worker offers beside a plan: other budgets that can be carried out, around what a person has said."""

import math

import pytest

from carbontui import plan
from carbontui.job.worker import process as worker

LEVELS = [("pause", 20.0, 0.0), ("full", 400.0, 1.0)]
STEP_S = 900.0


def problem(slots=96, work_slots=24):
    """A clean hour after every six dirty ones: without a limit long pauses pay."""
    return {
        "slots": {"dur_s": [STEP_S] * slots, "ci_g_per_kwh": [50 if k % 28 >= 24 else 700 + k for k in range(slots)]},
        "levels": [{"name": name, "power_w": watts, "speed": speed} for name, watts, speed in LEVELS],
        "switch": {"time_s": [[0, 20], [5, 0]], "power_w": [[0, 300], [300, 0]]},
        "initial": {"level": 1},
        "work_s": work_slots * STEP_S,
    }


def pauses_s(levels):
    return [count * STEP_S for level, count in levels if level == 0]


def test_no_budget_is_offered_whose_plan_pauses_longer_than_allowed():
    free = worker.solve_plan({"problem": problem()})["frontier"]
    assert max(s for point in free for s in pauses_s(point["levels"])) > 2 * 3600
    limits = {"max_pause_s": 3600.0, "still_s": 0.0, "pausing": [0]}
    answer = worker.solve_plan({"problem": problem(), "pauses": limits})
    assert len(answer["frontier"]) > 3
    for point in answer["frontier"]:
        assert all(s <= 3601 for s in pauses_s(point["levels"]))
        levels = [level for level, count in point["levels"] for _ in range(count)]
        did = plan.evaluate(plan.problem_from_dict(problem()), levels)
        assert did.feasible
        assert (did.gco2, did.finish_s) == pytest.approx((point["gco2_g"], point["finish_s"]))


def test_later_and_no_better_is_no_offer():
    limits = {"max_pause_s": 3600.0, "pausing": [0]}
    answer = worker.solve_plan({"problem": problem(), "curve": problem(slots=192), "pauses": limits})
    worth = [point["objective"] for point in answer["frontier"]]
    assert worth == sorted(worth, reverse=True)
    later = [point for point in answer["frontier"] if point["finish_s"] > answer["plan"]["finish_s"]]
    assert all(point["objective"] < answer["plan"]["objective"] for point in later)


def test_offers_and_previews_are_made_around_a_persons_word():
    fixed = {str(k): 1 for k in range(8)}
    answer = worker.solve_plan({"problem": problem(), "fixed": fixed})
    assert answer["frontier"] and all(point["levels"][0][0] == 1 for point in answer["frontier"])
    assert all(point["levels"][0][1] >= 8 for point in answer["frontier"])
    assert worker.preview_plan({"problem": problem(), "fixed": fixed})["plan"]["levels"][:8] == [1] * 8
    held = {str(k): 0 for k in range(8)}
    paused = worker.preview_plan({"problem": problem(), "fixed": held})["plan"]
    assert paused["levels"][:8] == [0] * 8 and math.isclose(paused["late_s"], 0)


def test_breaking_pauses_one_by_one_is_never_worse_than_breaking_them_all_at_once():
    whole = plan.problem_from_dict(problem(slots=400, work_slots=60))
    chosen, _ = plan.replan(whole, None, max_pause_s=3600.0)
    simply = plan.evaluate(whole, plan.broken(whole, plan.solve(whole).levels, 3600.0))
    assert simply.feasible and chosen.objective <= simply.objective * (1 + 1e-9)


def test_a_person_may_pause_longer_than_any_plan_and_to_the_very_end():
    limits = {"max_pause_s": 3600.0, "pausing": [0]}
    fixed = {str(k): 0 for k in range(12)}
    offers = worker.solve_plan({"problem": problem(), "fixed": fixed, "pauses": limits})["frontier"]
    assert offers and all(point["levels"][0][0] == 0 and point["levels"][0][1] >= 12 for point in offers)
    whole = {str(k): 0 for k in range(96)}
    answer = worker.solve_plan({"problem": problem(), "fixed": whole, "pauses": limits})
    assert answer["frontier"] == [] and answer["plan"]["late_s"] > 0
