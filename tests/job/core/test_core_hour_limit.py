"""Hours above a person's limit of intensity: waited for, never beyond the longest wait or the deadline."""

from dataclasses import replace

import msgspec
import pytest
from drawn import drawn_plan
from states import NOW_S, board, decided, inputs, job_state, outlook, rank

from carbontui.job.supervisor.core.planning import answers, plan_request
from carbontui.job.supervisor.core.state import plan
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.terms.child import Child
from carbontui.job.worker.process import solve_plan

WAITING = inputs(NOW_S, boards=(board(),), child=Child("waiting"))
RUNNING = inputs(NOW_S, boards=(board(),), ranks=(rank(),))


def job(*mean_g, state="running", level="full", **fields):
    made = job_state(
        not_above_g=300.0, budget="20h", outlook=outlook(*mean_g),
        measured=Measured(full_w={"GPU-a": Mean(600.0, 100)}, parked_w={"GPU-a": Mean(90.0, 100)}), **fields,
    )  # fmt: skip
    return replace(made, decision=decided(state, level, "plan", ""), still_changed_s=NOW_S)


def solved(state, seen=RUNNING):
    request = plan_request.plan_request(state, seen)
    return request, solve_plan(request.ask)


def names(request, answer):
    return [request.setup.levels[level].name if level >= 0 else "" for level in answer.plan.levels]


def test_nothing_runs_above_the_limit_and_its_price_is_told():
    # a little above for two hours, then a little below: waiting with the model in memory costs more than it saves
    request, answer = solved(job(*([310.0] * 8 + [295.0] * 80)))
    assert names(request, answer)[:9] == ["pause"] * 8 + ["full"]
    assert answer.unlimited.finish_s < answer.plan.finish_s and answer.unlimited.gco2 < answer.plan.gco2
    made = answers.limited(answers.from_answer(request.setup, answer, NOW_S), answer, 300.0, 6 * 3600.0)
    assert made.view.hour_limit.more_g > 0 and made.view.hour_limit.later_s == pytest.approx(7200.0, abs=10)
    waits = decided("paused", "pause", applied=plan.PAUSE)
    told = drawn_plan(job_state(plan=made, decision=waits), inputs(NOW_S))
    assert "Not above 300 g/kWh" in told.explanation and "2 h 00 later" in told.explanation


def test_after_the_longest_wait_it_runs_until_the_intensity_was_below_once():
    dirty = job(*[400.0] * 80, max_wait_s=3600.0)
    request, answer = solved(dirty)
    assert names(request, answer)[:5] == ["pause"] * 4 + ["full"]
    # an hour later it runs, and goes on although nothing is cleaner
    later = inputs(NOW_S + 5 * 900.0, boards=(board(),), ranks=(rank(),))
    request, answer = solved(replace(dirty, still_changed_s=NOW_S + 3600.0), later)
    assert names(request, answer)[0] == "full" and not request.ask.closed


def test_the_deadline_gives_the_cleanest_closed_hours_back():
    request, answer = solved(job(*([500.0] * 4 + [350.0] * 76), work_s=18 * 3600.0, max_wait_s=19 * 3600.0))
    assert answer.plan.finish_s <= 20 * 3600.0
    assert names(request, answer)[:4] == ["pause"] * 4, "the dirtiest stay closed"
    request, _ = solved(job(*[350.0] * 80, work_s=20 * 3600.0 - 60))
    assert request.ask.closed == {}


def test_a_start_waits_without_drawing_anything():
    request, answer = solved(job(*([400.0] * 8 + [200.0] * 72), state="waiting", level="off"), WAITING)
    assert names(request, answer)[:9] == ["off"] * 8 + ["full"]


def test_without_a_limit_nothing_is_closed():
    state = job(*([400.0] * 8 + [200.0] * 72))
    without = msgspec.structs.replace(state.spec, not_above_g=None)
    assert plan_request.plan_request(replace(state, spec=without), RUNNING).ask.closed == {}
