"""The rehearsal of an unload, tick by tick, and a try before the start."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from drawn import drawn
from msgspec import structs
from states import FULL, NOW_S, decided, inputs, job_state, plan_of, rank

from carbontui.job.supervisor.core import effects
from carbontui.job.supervisor.core.planning import plan_request
from carbontui.job.supervisor.core.rules import control, trying, unload_rules
from carbontui.job.supervisor.core.state import progress as rules
from carbontui.job.supervisor.core.state import unloading
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.job import Totals, with_inputs
from carbontui.job.supervisor.core.state.unloading import Tried, Unloading
from carbontui.job.terms.child import Child
from carbontui.protocol import Override

RUNNING = decided("running", "full", "plan", "")
SAVES = rank(can_unload=True, step=500, loss=2.5)


def progress(step):
    return rules.Progress(work_s=7200.0, step=step, starts=1, plain_done_s=100.0)


def running(**more):
    return job_state(**{"decision": RUNNING, "progress": progress(500), **more})


def at(second, **more):
    child = more.pop("child", Child("running", age_s=100.0, retry=True))
    return inputs(NOW_S + second, child=child, **{"ranks": (SAVES,), **more})


def told(state, seen):
    """One tick of the supervisor, as far as it concerns an unload; and what it asks of the world."""
    before = state
    state = trying.update(with_inputs(state, seen), seen)
    asked, decision = control.decide(state, seen)
    state = replace(state, asked=asked, decision=decision)
    return state, effects.effects(before, state, seen, renew=True)


def leaving(**more):
    state = running(unloading=unload_rules.begun("me@tty", at(0)), totals=Totals(wall_kwh=1.0), **more)
    return told(state, at(1))[0]


def away():
    state = replace(leaving(), totals=Totals(wall_kwh=1.001))
    return told(state, at(6, ranks=(), child=Child("unloaded", retry=True), starts=1))[0]


def returning():
    return told(away(), at(7, ranks=(), child=Child("running", retry=True), starts=2))[0]


@pytest.mark.parametrize(
    ("state", "seen", "why"),
    [
        (running(), at(0, ranks=()), "no training step"),
        (running(), at(0, ranks=(rank(),)), "no checkpoint function"),
        (running(inside=True), at(0, ranks=(rank(),)), "begun inside a script or notebook"),
        (running(), at(0, ranks=(rank(),), starts=2), "no training step"),
        (replace(running(), progress=structs.replace(progress(500), plain_done_s=700.0)), at(0), "at most 10 min"),
        (job_state(decision=decided("paused", "pause", "override", "at noon")), at(0), "the job is paused"),
        (running(), at(0, guarded=False), "nothing would restart it"),
    ],
)
def test_what_cannot_be_rehearsed_says_why(state, seen, why):
    assert why in drawn(unload_rules.refusal(state, seen))
    assert not unload_rules.refusal(running(), at(0))
    by_plan = decided("paused", "pause", "plan", "until 17:00")
    assert not unload_rules.refusal(running(decision=by_plan), at(0)), "the plan gives way for a moment"


def test_the_keeper_is_armed_before_the_training_is_asked_to_leave():
    state = running(unloading=unload_rules.begun("me@tty", at(0)))
    state, asked = told(state, at(1, child=Child("running", age_s=100.0)))
    assert effects.Retry(True) in asked and state.asked.mode == "run"
    state, _ = told(state, at(2))
    assert state.asked.mode == "unload" and state.asked.not_before_s is None, "it comes back at once"


def test_one_that_comes_back_holds_and_its_cost_is_measured():
    back = rank(can_unload=True, step=4, start_step=500, start_known=True, loss=2.4)
    state = replace(returning(), totals=Totals(wall_kwh=1.003))
    state, asked = told(state, at(27, ranks=(back,), starts=2))
    assert state.unloading.resumes is True and "it works: left at step 500 and resumed there" in drawn(
        state.unloading.result
    )
    assert "loss 2.5 before, 2.4 after" in drawn(state.unloading.result)
    assert state.measured.unload_s.value == 5.0
    assert state.measured.unload_j.value == pytest.approx(3600.0)
    assert state.measured.reload_j.value == pytest.approx(0.002 * 3.6e6)
    assert effects.Retry(False) in asked and any(isinstance(one, effects.Replan) for one in asked)
    assert state.may_unload(None) and state.progress.step == 504
    # what its scheduler starts again within minutes would not wait; a successor does
    requeued = structs.replace(state.spec, requeue=True, slurm_job="7")
    assert not replace(state, spec=requeued).may_unload(None)
    assert replace(state, spec=structs.replace(requeued, resubmit=True)).may_unload(None)
    assert replace(state, spec=structs.replace(requeued, slurm_job=None)).may_unload(None)


def test_one_whose_data_comes_in_another_order_says_so_and_plans_pause_it():
    back = rank(can_unload=True, step=4, start_step=500, start_known=True, data_order="other")
    state, _ = told(returning(), at(27, ranks=(back,), starts=2))
    assert state.unloading.resumes is True and not state.may_unload(None)
    assert "its steps are exact, the order of its data is not" in drawn(state.unloading.result)
    same = structs.replace(back, data_order="same", restarts=("loss", "tokens"))
    state, _ = told(returning(), at(27, ranks=(same,), starts=2))
    assert state.may_unload(None) and (
        "weights and data order are an undisturbed run's "
        "(begun anew in its log: the mean behind the next logged loss and TRL's num_tokens)"
    ) in drawn(state.unloading.result)


def test_one_that_begins_elsewhere_does_not_hold_and_is_counted_from_there():
    back = rank(can_unload=True, step=4, start_step=0, start_known=True)
    state, _ = told(returning(), at(27, ranks=(back,), starts=2))
    assert state.unloading.resumes is False and "left at step 500, resumed from step 0" in drawn(state.unloading.result)
    assert not state.may_unload(None)
    assert told(state, at(28, ranks=(structs.replace(back, step=9),), starts=2))[0].progress.step == 9


def test_one_whose_start_fails_is_begun_again_by_the_keeper():
    again = Child("running", age_s=1.0, retried="exit code 1")
    state, asked = told(returning(), at(20, ranks=(), child=again, starts=3))
    assert state.unloading.resumes is False and "exit code 1" in drawn(state.unloading.result)
    assert state.progress.step == 0 and effects.Retry(True) not in asked


def test_one_that_hangs_is_ended():
    state, asked = told(returning(), at(500, ranks=(), starts=2))
    assert effects.EndStart() not in asked
    state, asked = told(state, at(700, ranks=(), starts=2))
    assert effects.EndStart() in asked


def test_a_checkpoint_function_that_fails_is_told_of_and_it_trains_on():
    state = leaving()
    held = rank("paused", state.asked.gen, can_unload=True, step=500)
    state, asked = told(state, at(3, ranks=(held,)))
    assert state.unloading.resumes is False and "checkpoint function failed" in drawn(state.unloading.result)
    assert state.asked.mode == "run" and effects.Retry(False) in asked


def test_a_person_s_word_gives_a_rehearsal_up():
    state = leaving()
    state = replace(state, override=replace(state.override, current=Override("pause", None, None, "her@tty")))
    state, _ = told(state, at(3))
    assert (
        "given up" in drawn(state.unloading.result) and state.unloading.resumes is None and state.asked.mode == "pause"
    )


def test_one_is_offered_only_where_it_could_be_of_use():
    assert unload_rules.offered(running(), at(0))
    assert not unload_rules.offered(running(budget="1x"), at(0)), "no slack"
    assert not unload_rules.offered(running(unloading=Unloading(resumes=True)), at(0))
    assert not unload_rules.offered(running(), at(0, ranks=(rank(),)))


def test_an_unload_by_the_plan_or_a_scheduler_that_comes_back_counts_as_held():
    gone = job_state(decision=RUNNING, progress=progress(500), asked=Desired("unload", 3, asked_mono_s=1000.0))
    state, _ = told(gone, at(4, ranks=(), child=Child("unloaded"), starts=1))
    state, _ = told(state, at(5, ranks=(), child=Child("running"), starts=2))
    back = rank(can_unload=True, step=3, start_step=500)
    state, _ = told(state, at(15, ranks=(back,), child=Child("running"), starts=2))
    assert state.unloading.resumes is True and not state.unloading.by


def test_a_failed_resume_goes_on_from_an_earlier_checkpoint_and_is_the_last():
    gone = job_state(decision=RUNNING, progress=progress(500), asked=Desired("unload", 3, asked_mono_s=1000.0))
    state, asked = told(gone, at(4, ranks=(), child=Child("unloaded"), starts=1))
    assert effects.FallBack(True) in asked
    tries = Child("running", fall_back=True, fell_back="signal 9")
    state, _ = told(state, at(5, ranks=(), child=tries, starts=3))
    back = rank(can_unload=True, step=3, start_step=450, start_known=True)
    state, asked = told(state, at(25, ranks=(back,), child=tries, starts=3))
    assert "ended with signal 9" in drawn(state.unloading.result) and "resumed from step 450" in drawn(
        state.unloading.result
    )
    assert not state.may_unload(None) and effects.FallBack(False) in asked
    state, _ = told(state, at(26, ranks=(structs.replace(back, step=9),), child=tries, starts=3))
    assert state.progress.step == 459, "what is done twice counts once"


def test_what_is_kept_is_what_is_restored():
    state = away()
    assert msgspec.convert(msgspec.to_builtins(state.unloading), Unloading) == state.unloading


# --- a try ---------------------------------------------------------------------------------------------------------

TRYING = Child("running", age_s=30.0, trying=True)


def test_a_try_runs_flat_out_and_is_ended_after_enough_steps_or_time():
    few = job_state(decision=RUNNING, progress=progress(5))
    state, asked = told(few, at(0, child=TRYING, ranks=(rank(step=5),)))
    assert state.decision.level.name == "full" and "trying the command" in drawn(state.decision)
    assert effects.EndStart() not in asked
    _, asked = told(few, at(0, child=replace(TRYING, age_s=121.0), ranks=()))
    assert effects.EndStart() in asked
    many, asked = told(job_state(decision=RUNNING, progress=progress(20)), at(0, child=TRYING, ranks=(rank(step=20),)))
    assert effects.EndStart() not in asked, "imports took half a minute: the speed of its steps is not known yet"
    _, asked = told(many, at(21, child=replace(TRYING, age_s=51.0), ranks=(rank(step=20),)))
    assert effects.EndStart() in asked


def test_one_that_can_be_unloaded_is_unloaded_and_kept_for_the_plan():
    timed = structs.replace(progress(20), ref_steps=20.0, ref_time_s=10.0, ref_wall_s=10.0)
    state = job_state(decision=RUNNING, progress=timed, tried=Tried(under_way=True), plan=plan_of(FULL))
    saves = rank(can_unload=True, step=20)
    state, asked = told(state, at(0, child=TRYING, ranks=(saves,)))
    assert effects.EndStart() not in asked and effects.Retry(True) in asked
    state, _ = told(state, at(1, child=replace(TRYING, retry=True), ranks=(saves,)))
    assert state.asked.mode == "unload"
    state, _ = told(state, at(3, child=Child("unloaded", retry=True), ranks=(), starts=1))
    assert "unloaded at step 20, checkpoint kept" in drawn(state.tried.result)
    assert unloading.level(state.unloading) is None, "it is for the plan to say when it goes on"
    assert state.progress.step == 20
    assert plan_request.level_now(state, at(4, child=Child("unloaded", retry=True), ranks=())) == "off"
    assert state.decision.hold_until_s is not None, "a plan made while it ran says nothing of a start"


def test_one_that_begins_again_counts_from_zero_and_keeps_what_it_learned():
    done = structs.replace(progress(22), ref_steps=20.0, ref_time_s=10.0, ref_wall_s=10.0, steps_total=1000)
    state = job_state(decision=RUNNING, progress=done, tried=Tried(under_way=True))
    state, asked = told(state, at(0, child=Child("waiting"), ranks=(), starts=1))
    assert state.progress.step == 0 and state.progress.ref_rate == 2.0 and state.progress.steps_total == 1000
    assert "0.5 s a step" in drawn(state.tried.result) and "starts over" in drawn(state.tried.result)
    assert any(isinstance(one, effects.Replan) for one in asked)


def test_a_try_tells_the_total_that_it_guesses():
    done = rules.Progress(step=22, starts=1, guess=(3000, "max_iters"))
    state = job_state(decision=RUNNING, progress=done, tried=Tried(under_way=True))
    state, _ = told(state, at(0, child=Child("waiting"), ranks=(), starts=1))
    assert "3,000 total steps are a guess, from max_iters" in drawn(state.tried.result)
