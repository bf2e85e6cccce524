"""The three worked instances of the public file format: every listed row, every stated optimum."""

import json

import pytest

from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import problem_from_dict

EXAMPLE_1 = json.loads("""{"slots":
 {"dur_s": [1800, 3600, 3600], "ci_g_per_kwh": [400, 600, 100], "price_per_kwh": null},
 "levels": [{"name": "pause", "power_w": 90, "speed": 0}, {"name": "full", "power_w": 600, "speed": 1}],
 "switch": {"time_s": [[0, 60], [20, 0]], "power_w": [[0, 300], [300, 0]]},
 "min_run_slots": 1, "min_pause_slots": 1, "max_resumes": null,
 "initial": {"level": 1, "age_slots": 4}, "work_s": 3600,
 "host_w": 0, "pue": 1.0, "alpha": 0, "beta": 1}""")
EXAMPLE_2 = json.loads("""{"slots": {"dur_s": [3600, 3600], "ci_g_per_kwh": [300, 200], "price_per_kwh": [0.40, 0.10]},
 "levels": [{"name": "off", "power_w": 0, "speed": 0}, {"name": "cap300", "power_w": 300, "speed": 0.75},
            {"name": "full", "power_w": 500, "speed": 1.0}],
 "switch": {"time_s": [[0, 120, 120], [null, 0, 0], [null, 0, 0]], "power_w": [[0, 200, 200], [0, 0, 0], [0, 0, 0]]},
 "min_run_slots": 1, "min_pause_slots": 1, "max_resumes": null,
 "initial": {"level": 0, "age_slots": 1}, "work_s": 4605, "host_w": 100, "pue": 1.2, "alpha": 100, "beta": 1}""")
EXAMPLE_3 = json.loads("""{"slots": {"dur_s": [30, 1800, 1800], "ci_g_per_kwh": [400, 300, 300], "price_per_kwh": null},
 "levels": [{"name": "unload", "power_w": 25, "speed": 0}, {"name": "pause", "power_w": 90, "speed": 0},
            {"name": "full", "power_w": 600, "speed": 1}],
 "switch": {"time_s": [[0, 5, 300], [5, 0, 45], [20, 20, 0]], "power_w": [[0, 120, 300], [120, 0, 300], [300, 300, 0]]},
 "min_run_slots": 1, "min_pause_slots": 1, "max_resumes": null,
 "initial": {"level": 1, "age_slots": 4}, "work_s": 3500, "host_w": 0, "pue": 1.0, "alpha": 0, "beta": 1}""")


@pytest.mark.parametrize(
    ("levels", "grams", "kwh", "finish", "late", "resumes"),
    [
        ([1, 0, 1], 205.2, 0.6961666667, 7260, 0, 1),
        ([1, 1, -1], 300.0, 0.6, 3600, 0, 0),
        ([1], 300.0, 0.6, 3600, 0, 0),
        ([1, 1, 0], 300.0, 0.6, 3600, 0, 0),
        ([0, 1, 1], 376.4666666667, 0.6511666667, 5460, 0, 1),
        ([0, 0, 1], 132.9666666667, 0.7411666667, 9060, 60, 1),
        ([1, 0, 0], 214.2, 0.7861666667, 10860, 1860, 1),
        ([0, 1, 0], 386.0833333333, 0.7473333333, 9120, 120, 2),
    ],
)
def test_example_1_rows(levels, grams, kwh, finish, late, resumes):
    got = evaluate(problem_from_dict(EXAMPLE_1), levels)
    assert got.objective == got.gco2 == pytest.approx(grams, rel=1e-9)
    assert got.kwh == pytest.approx(kwh, rel=1e-9)
    assert (got.finish_s, got.late_s) == (pytest.approx(finish), pytest.approx(late))
    assert (got.resumes, got.violations) == (resumes, ())


@pytest.mark.parametrize(
    ("change", "kind", "slot"),
    [
        ({"min_pause_slots": 2}, "min dwell", 2),
        ({"max_resumes": 0}, "max_resumes", 2),
        ({"min_run_slots": 6}, "min dwell", 1),
    ],
)
def test_example_1_with_one_field_changed(change, kind, slot):
    problem = problem_from_dict(EXAMPLE_1 | change)
    assert [(v.kind, v.slot) for v in evaluate(problem, [1, 0, 1]).violations] == [(kind, slot)]
    plan = solve(problem)
    assert plan.objective == pytest.approx(300.0)
    assert plan.levels == (1, 1, -1)


@pytest.mark.parametrize(
    ("levels", "objective", "grams", "cost", "kwh", "finish", "late"),
    [
        ([1, 1], 236.32, 213.7333333333, 0.2258666667, 0.8306666667, 6260, 0),
        ([1, 2], 245.63, 222.6, 0.2303, 0.875, 5595, 0),
        ([2, 1], 282.72, 252.4, 0.3032, 0.908, 5100, 0),
        ([2, 2], 287.97, 257.4, 0.3057, 0.933, 4725, 0),
        ([0, 2], 236.73, 222.6, 0.1413, 1.053, 8325, 1125),
        ([0, 1], 224.55, 211.0, 0.1355, 0.995, 9195, 1995),
    ],
)
def test_example_2_rows(levels, objective, grams, cost, kwh, finish, late):
    got = evaluate(problem_from_dict(EXAMPLE_2), levels)
    assert got.violations == ()
    assert (got.objective, got.gco2, got.cost, got.kwh, got.finish_s, got.late_s) == pytest.approx(
        (objective, grams, cost, kwh, finish, late), rel=1e-9
    )


def test_a_level_that_cannot_be_entered_again_is_named():
    got = evaluate(problem_from_dict(EXAMPLE_2), [1, 0])
    first = got.violations[0]
    assert (first.kind, first.slot, first.from_level, first.to_level) == ("forbidden switch", 1, 1, 0)


@pytest.mark.parametrize(
    ("data", "objective", "levels"),
    [(EXAMPLE_1, 205.2, (1, 0, 1)), (EXAMPLE_2, 236.32, (1, 1)), (EXAMPLE_3, 176.425, (1, 2, 2))],
)
def test_the_planner_finds_each_stated_optimum(data, objective, levels):
    plan = solve(problem_from_dict(data))
    assert plan.objective == pytest.approx(objective, rel=1e-9)
    assert plan.levels == levels
    assert plan.lower_bound <= plan.objective
    assert plan.certified
    assert plan.late_s == 0
