"""What a decision depends on, picked from what is known and seen."""

from dataclasses import replace

from drawn import drawn
from msgspec import structs
from states import CAP, FULL, NOW_S, PAUSE, RUNNING, board, inputs, job_state, limits, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.rules.observe import observe
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.job import Calibrating
from carbontui.job.supervisor.core.state.levels import cap
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.terms.child import Child
from carbontui.power.messages import Outcome


def decided(state, seen):
    return control.decide(state.asked, observe(state, seen))


def test_looking_twice_says_the_same_and_changes_nothing():
    known, seen = job_state(plan=plan_of(FULL, PAUSE)), inputs(boards=(board(),), ranks=(rank(),))
    before = replace(known)
    assert observe(known, seen) == observe(known, seen) and known == before


def test_the_plan_of_now_its_next_change_and_the_persons_word_reach_the_decision():
    held = Overrides(protocol.Override("boost", None, None, "ada"), 2, NOW_S + 50)
    seen = observe(job_state(plan=plan_of(FULL, PAUSE), override=held), inputs())
    assert (seen.planned.kind, seen.next_at_s) == ("full", NOW_S + 900.0)
    assert (seen.override.by, seen.override_until_s) == ("ada", NOW_S + 50)


def test_a_cap_can_be_asked_where_there_is_a_board_and_caps_are_wanted():
    assert observe(job_state(), inputs(boards=(board(),))).can_cap
    assert not observe(job_state(cap=False), inputs(boards=(board(),))).can_cap
    assert not observe(job_state(), inputs()).can_cap


def test_a_cap_that_every_board_refused_is_not_called_in_force():
    known = job_state(plan=plan_of(CAP), asked=Desired(limit_w=300.0))
    no = limits(asked=True, outcomes={"GPU-a": Outcome("GPU-a", False, "no_permission", text="only root may")})
    asked, decision = decided(known, inputs(boards=(board(),), ranks=(rank(),), limits=no))
    assert asked.limit_w == 300.0 and decision.state == "running"
    assert drawn(decision) == "cap of 300 W per GPU refused: only root may"
    assert (decision.applied.kind, decision.refused) == ("full", "no_permission")


def test_a_late_plan_is_followed_and_called_late():
    _, decision = decided(job_state(plan=plan_of(FULL, late_s=600.0)), inputs(ranks=(rank(),)))
    assert decision.state == "running" and decision.why.code == "late"


def test_a_planned_pause_gives_way_to_the_deadline():
    known = job_state(plan=plan_of(PAUSE, FULL), budget="1x")
    asked, decision = decided(known, inputs(ranks=(rank(),)))
    assert asked.mode == "run" and decision.why.code == "deadline"


def test_a_trial_of_the_calibration_stands_above_the_plan_and_below_a_person():
    known = job_state(plan=plan_of(FULL), calibrating=Calibrating(cap(300.0)))
    trying = inputs(boards=(board(),), ranks=(rank(),))
    asked, decision = decided(known, trying)
    assert asked.limit_w == 300.0 and decision.why.code == "calibrating"
    boosted = replace(known, override=Overrides(protocol.Override("boost", None, None, "ada"), 1))
    assert decided(boosted, trying)[0].limit_w is None


def test_sigstop_waits_until_a_program_had_the_time_to_show_a_step():
    known = job_state(plan=plan_of(PAUSE, FULL), budget="4x", sigstop=True)
    assert not decided(known, inputs(child=Child("running", age_s=9.0)))[0].freeze
    assert decided(known, inputs(child=RUNNING))[0].freeze
    stepped = replace(known, progress=structs.replace(known.progress, step=3))
    assert not decided(stepped, inputs(child=RUNNING))[0].freeze, "a loop that reconnects answers at its steps"
    assert not decided(known, inputs(child=RUNNING, guarded=False))[0].freeze


def test_without_any_plan_or_zone_the_job_runs():
    asked, decision = decided(job_state(progress=Progress()), inputs(ranks=(rank(),), zone=None))
    assert asked.mode == "run" and decision.why.code == "no_work"
