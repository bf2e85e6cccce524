"""When the work will be done, whether that is in time, and what no plan may do meanwhile."""

from dataclasses import replace

import pytest
from drawn import drawn
from states import FULL, NOW_S, PAUSE, board, inputs, job_state, limits, outlook, plan_of, rank, settled

from carbontui import protocol
from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.planning.course import course
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.plan import Level
from carbontui.job.terms.child import Child
from carbontui.power.curves.curve import Curve, Point
from carbontui.protocol import statement

POINTS = (
    Point(kind="cap", cap_w=300.0, power_w=300.0, power_se=0.0, speed=0.8, speed_se=0.0),
    Point(kind="full", cap_w=None, power_w=600.0, power_se=0.0, speed=1.0, speed_se=0.0),
)
CURVE = Curve(gpu="H100", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0, points=POINTS, levels=POINTS)
SEEN = inputs(NOW_S + 100)
WAITING = Child("waiting")


def under(mode, until_s=None, value_w=None):
    return Overrides(protocol.Override(mode, value_w, None, "ada"), 1, until_s)


# --- why nothing is shifted ---


def test_unknown_work_comes_before_an_unknown_zone_and_that_before_a_silent_grid():
    nothing = job_state(work_s=None, outlook=None)
    nowhere = inputs(zone=None)
    assert finish.why_no_shifting(nothing, nowhere).code == "no_work"
    assert finish.why_no_shifting(replace(nothing, progress=job_state().progress), nowhere).code == "no_zone"
    assert finish.why_no_shifting(replace(nothing, progress=job_state().progress), inputs()).code == "no_grid"
    assert finish.why_no_shifting(job_state(), inputs()) is None


def test_steps_without_a_speed_wait_for_the_measurement_and_ask_nothing_of_a_person():
    known = job_state(work_s=None, steps=1000)
    text = drawn(finish.why_no_shifting(known, inputs()))
    assert "measuring the speed of a step first" in text and "--work" not in text


def test_an_unknown_zone_is_named_with_its_candidates():
    known = job_state(zone_why="US is several zones: US-CAL-CISO, US-TEX-ERCO")
    assert drawn(finish.why_no_shifting(known, inputs(zone=None))) == "at full speed: " + known.spec.zone_why


def test_what_has_happened_is_no_forecast():
    known = job_state(outlook=outlook(300.0, 200.0, None, None, realised=2))
    assert drawn(finish.why_no_shifting(known, inputs(grid_note="the source is silent"))).endswith(
        "the source is silent"
    )
    assert finish.why_no_shifting(replace(known, outlook=outlook(300.0, 200.0, None, realised=1)), inputs()) is None


def test_money_needs_a_price_or_a_price_of_carbon():
    assert finish.why_no_shifting(job_state(objective="cost", currency="EUR"), inputs()).code == "no_grid"
    assert finish.why_no_shifting(job_state(objective="cost", carbon_price=50.0), inputs()) is None
    assert finish.why_no_shifting(job_state(objective="cost", price_per_kwh=0.3), inputs()) is None


# --- what the plan says of now ---


def test_a_start_waits_for_its_first_plan_and_not_for_ever():
    known = job_state()
    assert finish.planned(known, inputs(child=WAITING, uptime_s=5.0)).level.kind == "off"
    assert finish.planned(known, inputs(child=WAITING, uptime_s=20.0)).level is None
    assert (
        finish.planned(
            replace(known, plan_fault=statement("no_new_plan", why="")), inputs(child=WAITING, uptime_s=5.0)
        ).level
        is None
    )
    assert finish.planned(known, inputs(child=WAITING, uptime_s=5.0, zone=None)).level is None
    assert finish.planned(known, inputs(uptime_s=5.0)).level is None, "what runs already does not wait"


def test_after_the_last_slot_of_a_plan_the_job_runs_flat_out():
    known = job_state(plan=plan_of(FULL, PAUSE))
    assert finish.planned(known, inputs(NOW_S + 1000)).level.kind == "pause"
    assert finish.planned(known, inputs(NOW_S + 1801)).level.kind == "full"


# --- must it run? ---


def test_it_must_run_when_only_work_and_the_way_back_are_left():
    known = job_state(budget="2x", work_s=7200.0, measured=Measured(resume_s=Mean(30.0, 3)))
    assert not finish.must_run(known, inputs(NOW_S + 7169.0))
    assert finish.must_run(known, inputs(NOW_S + 7170.0))


def test_nothing_must_run_where_work_or_deadline_is_unknown():
    assert not finish.must_run(job_state(work_s=None), inputs(NOW_S + 1e6))


# --- when will it be done? ---


def finish_s(state, seen=SEEN):
    return course(settled(state, seen), seen).finish_s


def test_the_finish_is_the_plans_and_full_speeds_where_there_is_none():
    known = job_state(work_s=1800.0, budget="3x")
    assert finish_s(known) == SEEN.now_s + 1800.0
    planned = replace(known, plan=plan_of(FULL, PAUSE, PAUSE, FULL))
    assert finish_s(planned) == NOW_S + 3600.0
    assert finish_s(planned, inputs(NOW_S + 100, zone=None)) == SEEN.now_s + 1800.0, "a plan not followed says nothing"


def test_a_little_behind_its_plan_the_plan_is_still_told_and_far_behind_it_the_truth():
    known = job_state(work_s=3600.0, plan=plan_of(FULL, FULL, FULL, FULL))
    assert finish_s(known, inputs(NOW_S + 200)) == NOW_S + 3600.0
    assert finish_s(known, inputs(NOW_S + 400)) == NOW_S + 4000.0


def test_a_finish_that_was_promised_for_earlier_than_now_is_told_no_more():
    known = job_state(work_s=120.0, plan=plan_of(FULL))
    assert finish_s(known, inputs(NOW_S + 960)) == NOW_S + 1080.0


def test_the_finish_under_an_open_pause_is_not_known():
    assert finish_s(job_state(plan=plan_of(FULL, FULL), override=under("pause"))) is None


def test_the_finish_under_an_open_boost_is_that_of_full_speed():
    known = job_state(work_s=1800.0, plan=plan_of(PAUSE, PAUSE, FULL, FULL), override=under("boost"))
    assert finish_s(known) == SEEN.now_s + 1800.0


def test_the_finish_under_an_open_cap_is_at_its_speed_where_a_curve_tells_it():
    seen = inputs(NOW_S + 100, boards=(board(),), ranks=(rank(),), limits=limits(asked=True))
    fields = {"work_s": 1600.0, "plan": plan_of(FULL, FULL), "caps_hold": True}
    known = job_state(curve=CURVE, override=under("cap", value_w=300.0), **fields)
    assert finish_s(known, seen) == seen.now_s + 1600.0 / 0.8
    lower = job_state(curve=CURVE, override=under("cap", value_w=150.0), **fields)
    assert finish_s(lower, seen) == seen.now_s + 1600.0 / 0.4, "below the lowest a step takes as many joules as there"
    no_curve = finish_s(job_state(override=under("cap", value_w=310.0), **fields), seen)
    assert no_curve == pytest.approx(seen.now_s + 1600.0 / 0.547, rel=1e-6), "else as other trainings are"


def test_a_pause_with_an_end_is_waited_for():
    end = NOW_S + 5000.0
    known = job_state(work_s=1800.0, plan=plan_of(FULL, FULL), override=under("pause", end))
    assert finish_s(known) == pytest.approx(end + 1800.0, abs=10.0)


def test_the_finish_of_unknown_work_is_unknown():
    assert finish_s(job_state(work_s=None)) is None


@pytest.mark.parametrize("table", [{}, {"x": Level("x", "cap", 1.0, 0.5, cap_w=900.0)}])
def test_a_plan_of_odd_levels_makes_the_finish_unknown_under_an_override(table):
    odd = replace(plan_of(FULL), table=table)
    assert finish_s(job_state(plan=odd, override=under("pause"))) is None


# --- late, drift ---


def test_a_minute_behind_the_deadline_is_no_news_a_hundredth_of_the_work_is():
    assert not finish.late(job_state(plan=plan_of(FULL, late_s=60.0), work_s=600.0))
    assert finish.late(job_state(plan=plan_of(FULL, late_s=61.0), work_s=600.0))
    assert not finish.late(job_state(plan=plan_of(FULL, late_s=700.0), work_s=72_000.0))
    assert finish.late(job_state(plan=plan_of(FULL, late_s=721.0), work_s=72_000.0))
    assert not finish.late(job_state())


def test_a_plan_is_made_anew_when_more_is_left_than_it_expects():
    plan = plan_of(FULL, FULL, FULL, FULL, left_s=3600.0)
    assert not finish.drifted(job_state(work_s=3600.0, plan=plan), NOW_S + 299)
    assert finish.drifted(job_state(work_s=3600.0, plan=plan), NOW_S + 301), "nothing was done, 301 s were expected"


def test_work_that_goes_as_planned_is_no_drift_through_a_pause():
    plan = plan_of(PAUSE, FULL, left_s=3600.0)
    assert not finish.drifted(job_state(work_s=3600.0, plan=plan), NOW_S + 900)


def test_the_drift_of_a_long_job_is_measured_by_its_length():
    plan = plan_of(*(FULL,) * 8, left_s=72_000.0)
    assert not finish.drifted(job_state(work_s=72_000.0, plan=plan), NOW_S + 1440)
    assert finish.drifted(job_state(work_s=72_000.0, plan=plan), NOW_S + 1441)


def test_a_predecessors_plan_does_not_drift_as_nobody_knows_what_it_expected():
    assert not finish.drifted(job_state(plan=plan_of(FULL)), NOW_S + 800)


# --- what a pause does to the budget ---


def test_a_pause_says_from_when_on_the_budget_is_out_of_reach():
    known = job_state(budget="2x", work_s=7200.0, override=under("pause"))
    assert "the budget becomes unreachable" in drawn(finish.unreachable_by_pause(known, SEEN.now_s))
    assert drawn(finish.unreachable_by_pause(known, NOW_S + 7300)) == "this pause makes the budget unreachable"
    assert finish.unreachable_by_pause(replace(known, override=under("pause", NOW_S + 7100)), SEEN.now_s) is None
    late = replace(known, override=under("pause", NOW_S + 7300))
    assert drawn(finish.unreachable_by_pause(late, SEEN.now_s)) == "this pause makes the budget unreachable"
    assert finish.unreachable_by_pause(replace(known, override=under("boost")), SEEN.now_s) is None
