"""The explanation says what the numbers say, the same way every time."""

import time
from dataclasses import replace

import pytest
from msgspec import structs
from test_plan_schema_examples import EXAMPLE_1
from test_plan_traps import CAPS, daily, job

from carbontui.plan import explanation
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemLevel, problem_from_dict
from carbontui.plan.rolling import replan
from carbontui.text.plan import explained


def explain(problem, plan, start_s=0.0, currency=None):
    """As users read it."""
    stretches = [(name, still, start_s + end_s) for name, still, end_s in explanation.stretches(problem, plan)]
    figures = structs.asdict(explanation.explain(problem, plan, currency))
    return explained(now_s=start_s, stretches=stretches, **figures)


@pytest.fixture
def in_zone(monkeypatch):
    """The local time zone, for one test."""

    def put(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


def test_a_pause_is_explained_with_its_cost_and_the_runner_up(in_zone):
    in_zone("UTC")
    problem = job([600] * 8 + [100] * 16, work_s=900.0 * 12, step=900.0)
    plan = solve(problem)
    text = explain(problem, plan, start_s=1_893_456_000.0)  # 2030-01-01T00:00Z
    assert plan.levels[0] == 0
    assert text.startswith("Pausing until 02:00 saves ")
    assert "against running now" in text
    assert "drawn while paused" in text
    assert "throughout would have saved" in text
    assert explain(problem, plan, start_s=1_893_456_000.0) == text
    now = evaluate(problem, ())
    saved = now.gco2 - plan.gco2
    assert f"{saved / 1000:.2f} kg" in text or f"{saved:.0f} g" in text


def test_it_says_when_pausing_does_not_pay():
    problem = job([300, 310, 295, 305] * 6, levels=CAPS[:2])
    text = explain(problem, solve(problem))
    assert "pausing does not pay here: paused GPUs draw 90 W" in text
    assert "more" not in text, "no simple policy that waits is the best one: no figure compares with it"


def test_a_gain_of_nothing_is_not_given_in_grams():
    problem = job([300] * 24, levels=(ProblemLevel("off", 0.0, 0.0), CAPS[1]))
    assert explain(problem, solve(problem)).endswith("waiting gains nothing here.")


def test_waiting_for_watts_that_others_need_is_said_to_be_that():
    problem = job([300] * 24, levels=(ProblemLevel("off", 0.0, 0.0), CAPS[1]))
    dear = replace(problem, shadow_per_h=((0.0, 200.0),) * 6 + ((0.0, 0.0),) * 18)
    plan = solve(dear)
    text = explain(dear, plan)
    assert plan.gco2 == pytest.approx(solve(problem).gco2, rel=0.01)
    assert text.startswith("Waiting until") and text.endswith("emit no more, but use watts that other jobs need.")
    assert "already the best" not in text
    free = replace(problem, shadow_per_h=((0.0, 0.0),) * 24)
    assert explain(free, solve(free)) == explain(problem, solve(problem))


def test_a_kept_plan_that_ends_before_a_longer_budget_goes_on_at_full_speed():
    problem = job([300] * 8, levels=CAPS[:2], work_s=900.0 * 3, step=900.0)
    full = problem.fastest
    plan, _ = replan(problem, (-1,) * 8, 0.5)
    assert plan.levels[:3] == (full,) * 3 and all(level == -1 for level in plan.levels[3:])
    assert "running now is already the best" in explain(problem, plan)


def test_late_done_and_names():
    late = job(daily(8), work_s=900.0 * 9)
    assert "does not fit" in explain(late, solve(late))
    done = job(daily(8), work_s=0.0)
    assert explain(done, solve(done)) == "Nothing is left to do."
    problem = problem_from_dict(EXAMPLE_1)
    assert f"Running at {problem.levels[1].name}" in explain(problem, solve(problem))


def test_clock_times_are_right_across_a_change_of_clocks(in_zone):
    in_zone("Europe/Berlin")
    # 2026-10-25T00:30Z is 02:30 summer time; two hours later local clocks show 03:30, not 04:30
    problem = job([600] * 8 + [50] * 8, work_s=900.0 * 6)
    text = explain(problem, solve(problem), start_s=1792888200.0)
    assert text.startswith("Pausing until 03:30")


def test_money_is_named_in_its_currency():
    price = tuple([0.5] * 8 + [0.05] * 8)
    problem = job([300] * 16, price_per_kwh=price, alpha=1.0, beta=0.0, work_s=900.0 * 6)
    assert "EUR" in explain(problem, solve(problem), currency="EUR")
    # by weight it gains money and emits more: what it gains is named, and it is not as good to run now
    mixed = replace(
        problem, ci_g_per_kwh=(300.0,) * 8 + (400.0,) * 8, price_per_kwh=(-0.03,) * 8 + (-0.5,) * 8, beta=0.001
    )
    plan, now = solve(mixed), evaluate(mixed, ())
    assert plan.gco2 > now.gco2 and plan.cost < now.cost
    text = explain(mixed, plan, currency="EUR")
    assert f"saves {now.cost - plan.cost:.2f} EUR" in text and "as good" not in text


@pytest.mark.parametrize(("uncertainty", "changes"), [(0.0, True), (0.5, False)])
def test_a_plan_changes_only_for_more_than_its_own_uncertainty(uncertainty, changes):
    ci = [300.0] * 6 + [250.0] * 6
    problem = job(ci, levels=(ProblemLevel("pause", 10, 0.0), CAPS[1]), pause=0.0, resume=0.0, work_s=900.0 * 6)
    kept = (1,) * 6 + (-1,) * 6
    plan, changed = replan(problem, kept, uncertainty)
    assert changed is changes
    assert (plan.levels != kept) is changes
    assert plan.lower_bound <= plan.objective


def test_a_kept_plan_that_would_be_late_is_given_up():
    problem = job(daily(12), work_s=900.0 * 11)
    plan, changed = replan(problem, (0,) * 6 + (1,) * 6, 10.0)
    assert changed
    assert plan.late_s == 0


def test_sigma_per_slot_counts_only_where_plans_differ():
    problem = job([300.0] * 6 + [200.0] * 6, levels=(CAPS[0], CAPS[1]), pause=0.0, resume=0.0, work_s=900.0 * 6)
    best = solve(problem)
    noise = [1000.0 if a == b else 0.0 for a, b in zip(best.levels, (1,) * 6 + (-1,) * 6, strict=True)]
    _, changed = replan(problem, (1,) * 6 + (-1,) * 6, noise)
    assert changed == (best.levels != (1,) * 6 + (-1,) * 6)


def test_start_times_far_away_carry_their_weekday(in_zone):
    in_zone("Etc/GMT-1")
    problem = job([600] * 96 + [50] * 20, levels=(ProblemLevel("unload", 5, 0.0), CAPS[1]), work_s=900.0 * 8)
    text = explain(problem, solve(problem), start_s=1_893_456_000.0)
    assert "Wed 01:00" in text


def test_what_waiting_costs_in_rent_is_said_beside_what_it_saves() -> None:
    off, full = ProblemLevel("off", 70.0, 0.0, 2.4), ProblemLevel("full", 670.0, 1.0, 2.4)
    problem = Problem(
        (3600.0,) * 8, (800.0,) * 4 + (100.0,) * 4, (off, full), ((0.0, 0.0), (None, 0.0)), ((0.0, 0.0),) * 2,
        4 * 3600.0, 0, price_per_kwh=(0.3,) * 4 + (0.1,) * 4,
    )  # fmt: skip
    plan = solve(problem)
    found = explanation.explain(problem, plan, currency="EUR")
    assert (found.rented_s, found.rent) == (4 * 3600.0, pytest.approx(9.6))
    assert found.power == pytest.approx(2.68 * 0.3 - 0.28 * 0.3 - 2.68 * 0.1) and found.grams > 0
    said = explain(problem, plan, currency="EUR")
    assert said.endswith("Waiting 4 h 00 costs 9.60 EUR of rent, saves 0.45 EUR of power and 1.65 kg CO2.")
