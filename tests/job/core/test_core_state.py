"""What is seen becomes what is known, and what is decided becomes what is so."""

from dataclasses import replace

import pytest
from states import CAP, NOW_S, PAUSE, board, decided, inputs, job_state, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core.state import job, override
from carbontui.job.supervisor.core.state.boards import Boards, LeftAlone
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.measured import Mean
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.terms.child import Child
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.messages import Capability, HostReading, Readings


def decision(name="running", level="full", **fields):
    return decided(name, level, "plan", "by the plan", **fields)


def running(**fields):
    """A job that has been running at full speed for long."""
    return job_state(decision=decision(), **fields)


def held(mono_s=1000.0, gen=1):
    return Desired(mode="pause", gen=gen, asked_mono_s=mono_s)


# --- watts ---


def test_watts_are_learned_once_the_boards_averages_have_settled():
    seen = inputs(boards=(board(power_w=600.0),), ranks=(rank(),))
    fresh = running(changed_mono_s=seen.mono_s - 1.0)
    assert job.with_inputs(fresh, seen).measured.full_w == {}
    assert job.with_inputs(running(), seen).measured.full_w["GPU-a"].value == 600.0


def test_a_board_that_still_computes_is_not_read_as_paused():
    paused = replace(running(), decision=decided("paused", "pause"))
    for util, read in ((0.9, False), (0.0, True)):
        seen = inputs(boards=(board(power_w=110.0, util=util),))
        assert bool(job.with_inputs(paused, seen).measured.parked_w) is read


def test_a_reading_from_before_the_change_settled_teaches_nothing():
    seen = inputs(readings=Readings(mono_s=1098.5, devices=(board(power_w=500.0),)), ranks=(rank("paused", 1),))
    changed = job_state(decision=decision("paused"), changed_mono_s=seen.mono_s - 1.8)
    assert job.with_inputs(changed, seen).measured.parked_w == {}, "0.3 s after the change it still told both"


def test_watts_of_a_driver_that_fell_silent_teach_nothing():
    silent = inputs(readings=Readings(mono_s=1090.0, devices=(board(),)), ranks=(rank(),))
    assert job.with_inputs(running(), silent).measured.full_w == {}


def test_a_lost_board_teaches_nothing():
    seen = inputs(boards=(board(lost=True, power_w=3.0), board("GPU-b", power_w=500.0)), ranks=(rank(),))
    assert list(job.with_inputs(running(), seen).measured.full_w) == ["GPU-b"]


@pytest.mark.parametrize(
    ("observed", "table"),
    [("paused", "parked_w"), ("waiting", "idle_w"), ("pausing", None), ("throttled", None), ("unloaded", "idle_w")],
)
def test_what_a_board_draws_is_learned_under_the_name_of_what_the_job_did(observed, table):
    seen = inputs(boards=(board(power_w=90.0),), ranks=(rank(),))
    known = job.with_inputs(job_state(decision=decision(observed)), seen).measured
    found = {name for name in ("full_w", "parked_w", "idle_w") if getattr(known, name)}
    assert found == ({table} if table else set())


def test_figures_of_a_board_that_follow_the_command_are_not_its_idle_watts():
    loading = job_state(decision=decision("running"))
    assert job.with_inputs(loading, inputs(boards=(board(pids=()),))).measured.idle_w
    as_given = board(pids=(), power_kind="model")
    assert not job.with_inputs(loading, inputs(boards=(as_given,))).measured.idle_w


@pytest.mark.parametrize("asked", [Desired(limit_w=300.0), Desired(duty=0.5)])
def test_a_job_that_is_held_back_does_not_teach_what_flat_out_draws(asked):
    seen = inputs(boards=(board(power_w=300.0),), ranks=(rank(),))
    assert job.with_inputs(running(asked=asked), seen).measured.full_w == {}


def test_a_program_without_steps_is_not_known_to_be_flat_out():
    assert job.with_inputs(running(), inputs(boards=(board(),))).measured.full_w == {}


def test_cpu_and_memory_are_learned_at_work_and_at_rest_apart():
    host = HostReading(cpu_w=80.0, dram_w=10.0)
    seen = inputs(readings=Readings(mono_s=1099.5, host=host), ranks=(rank(),))
    at_work, at_rest = running(), job_state(decision=decision("paused"))
    assert job.with_inputs(at_work, seen).measured.rest_w.value == 90.0
    assert job.with_inputs(at_rest, seen).measured.rest_parked_w.value == 90.0
    assert job.with_inputs(at_rest, seen).measured.rest_w.value is None


# --- work ---


def test_steps_told_with_a_goodbye_between_two_ticks_count():
    known = running(progress=Progress(steps_total=100, step=40, processes=("host 7 1",), starts=1))
    told = job.with_rank(known, rank(step=57), inputs())
    after = job.with_inputs(told, inputs())
    assert after.progress.step == 57 and after.progress.fresh_steps == 0


def test_the_steps_of_a_goodbye_teach_the_rate_like_any_others():
    known = running(progress=Progress(steps_total=100, step=40, processes=("host 7 1",), starts=1, span_s=0.0))
    told = job.with_rank(known, rank(step=60), inputs())
    assert job.with_inputs(told, inputs(dt_s=4.0, dt_wall_s=4.0)).progress.ref_rate == 5.0


def test_a_count_heard_only_after_the_next_start_does_not_count_twice():
    """A supervisor that hung reads that the command was started again before what the last one had said."""
    known = running(progress=Progress(step=152, processes=("host 7 1",), starts=1))
    late = job.with_rank(known, rank(step=152), inputs(starts=2))
    assert late.progress.step == 152
    late = job.with_rank(late, rank(step=155), inputs(starts=2))
    after = job.with_rank(late, rank(step=3, start_step=155, process="host 8 2"), inputs(starts=2))
    assert (late.progress.step, after.progress.step) == (155, 158)


def test_only_rank_0_counts_steps():
    known = running()
    assert job.with_inputs(known, inputs(ranks=(rank(rank=1, step=99),))).progress.step == 0


def test_work_under_a_cap_counts_at_the_speed_of_its_level():
    known = job_state(decision=decision("throttled", CAP.name), plan=plan_of(CAP), asked=Desired(limit_w=300.0))
    assert job.with_inputs(known, inputs(dt_s=10.0)).progress.plain_done_s == 8.0


def test_a_job_that_stands_still_does_no_work():
    known = job_state(decision=decision("paused"))
    assert job.with_inputs(known, inputs(dt_s=10.0)).progress.plain_done_s == 0.0


def test_a_job_on_its_way_to_a_pause_still_works():
    known = job_state(decision=decision("pausing", PAUSE.name), plan=plan_of(PAUSE))
    assert job.with_inputs(known, inputs(dt_s=10.0)).progress.plain_done_s == 10.0


def test_the_last_loss_is_shown_when_the_training_has_left():
    known = job.with_inputs(running(), inputs(ranks=(rank(loss=0.25),)))
    assert job.with_inputs(known, inputs()).loss == protocol.Loss(0.25)


# --- seconds to pause, to resume, to come back ---


def test_a_pause_is_timed_from_the_word_to_the_last_rank():
    known = job_state(decision=decision("pausing"), asked=held(mono_s=1097.0))
    after = job.enter(known, known.asked, decision("paused"), inputs())
    assert after.measured.pause_s == Mean(3.0, 1)
    again = job.enter(after, known.asked, decision("paused"), inputs())
    assert again.measured.pause_s.samples == 1, "once a pause, not once a tick"


def test_a_pause_that_waited_for_something_else_counts_as_a_minute_at_most():
    known = job_state(decision=decision("pausing"), asked=held(mono_s=0.0))
    assert job.enter(known, known.asked, decision("paused"), inputs()).measured.pause_s.value == 60.0


def test_going_on_is_timed_to_the_first_word_of_a_running_rank_and_once():
    known = job_state(decision=decision("paused"), asked=held())
    asked = job.enter(known, Desired(gen=2), decision("running"), inputs())
    assert asked.resume_asked_mono_s == 1100.0
    still = job.with_rank(asked, rank("paused", 1), inputs(NOW_S + 102.0))
    assert still.measured.resume_s.value is None and still.resume_asked_mono_s is not None
    on = job.with_rank(still, rank("running", 2, rank=3), inputs(NOW_S + 104.0))
    assert on.measured.resume_s == Mean(4.0, 1) and on.resume_asked_mono_s is None
    assert job.with_rank(on, rank("running", 2), inputs(NOW_S + 105.0)).measured.resume_s.samples == 1


def test_coming_back_is_timed_from_the_start_of_the_command_to_its_first_step():
    known = running(progress=Progress(starts=1, step=50, processes=("host 7 1",)))
    seen = inputs(starts=2, child=Child("running", age_s=42.0))
    after = job.with_rank(known, rank(step=1, process="host 8 2"), seen)
    assert after.measured.reload_s == Mean(42.0, 1) and after.progress.base == 50
    assert job.with_rank(after, rank(step=2, process="host 8 2"), seen).measured.reload_s.samples == 1


# --- boards ---


def test_boards_of_a_simulated_job_are_not_the_machines():
    seen = inputs(ranks=(rank(devices=("GPU-real",)),))
    assert job.with_inputs(running(simulated=SimulatedSpec()), seen).boards.named is None
    assert job.with_inputs(running(), seen).boards.named == ("GPU-real",)


def test_caps_hold_only_where_they_are_wanted_and_every_board_takes_them():
    bad = board("GPU-b", caps={"limit": Capability("no_permission")})
    assert job.with_inputs(running(), inputs(boards=(board(),))).caps_hold
    assert not job.with_inputs(running(), inputs(boards=(board(), bad))).caps_hold
    assert not job.with_inputs(running(cap=False), inputs(boards=(board(),))).caps_hold


# --- what is so ---


def test_an_override_is_over_at_its_time_and_its_generation_grows():
    paused = override.apply(override.Overrides(), "pause", by="ada", expected_gen=None, until_s=NOW_S + 60)
    known = running(override=paused)
    assert job.expire(known, NOW_S + 59.9) is known
    after = job.expire(known, NOW_S + 60)
    assert after.override.current is None and after.override.gen == paused.gen + 1


def test_an_open_pause_never_expires():
    known = running(override=override.apply(override.Overrides(), "pause", by="ada", expected_gen=None))
    assert job.expire(known, NOW_S + 1e9) is known


def test_a_change_of_state_unsettles_the_readings_its_repetition_does_not():
    known = running(changed_mono_s=5.0)
    assert job.enter(known, Desired(), decision(), inputs()).changed_mono_s == 5.0
    assert job.enter(known, Desired(), decision("throttled"), inputs()).changed_mono_s == 1100.0


def test_standing_still_begins_with_the_word_to_pause_and_lasts_through_the_pause():
    known = running(still=False, still_changed_s=1.0)
    pausing = job.enter(known, held(), decision("pausing"), inputs(NOW_S + 200))
    paused = job.enter(pausing, held(), decision("paused"), inputs(NOW_S + 203))
    assert paused.still and paused.still_changed_s == NOW_S + 200
    on = job.enter(paused, Desired(gen=2), decision(), inputs(NOW_S + 900))
    assert on.still is False and on.still_changed_s == NOW_S + 900


def test_a_cap_is_no_change_between_standing_and_running():
    known = running(still=False, still_changed_s=1.0)
    after = job.enter(known, Desired(limit_w=300.0), decision("throttled", CAP.name), inputs())
    assert after.still_changed_s == 1.0


def test_boards_that_someone_else_has_set_are_left_alone_until_another_cap_is_asked():
    known = running(boards=Boards(left=LeftAlone(300.0, ("GPU-b",))))
    restored = replace(known, asked=Desired(limit_w=300.0))
    none = job.enter(restored, Desired(), decision(), inputs())
    assert none.boards.left.boards == ("GPU-b",), "a successor asks for no limit until it has seen a board"
    assert job.enter(known, Desired(limit_w=300.0), decision("throttled"), inputs()).boards.left.boards == ()


def test_the_deadline_of_a_factor_counts_from_run_and_moves_with_the_measured_work():
    known = job_state(budget="2x", work_s=3600.0)
    assert known.deadline_s == NOW_S + 7200.0
    unknown = replace(known, progress=Progress())
    assert unknown.deadline_s is None


def test_a_job_that_is_over_is_not_live():
    assert running().live and not job_state(decision=decision("lost")).live


def test_what_an_earlier_training_left_in_a_file_counts_once():
    tried = job.with_rank(running(), rank(step=55, process="tried"), inputs(alive=frozenset({"tried"})))
    tried = job.with_rank_left(tried, rank(step=60, process="tried"), inputs())
    assert tried.progress.step == 60
    again = job.with_rank(tried, rank(step=3, process="again"), inputs(alive=frozenset({"again"}), starts=2))
    assert again.progress.step == 63
    assert job.with_rank_left(again, rank(step=60, process="tried"), inputs(starts=2)).progress == again.progress


def test_a_file_of_a_process_that_nobody_heard_still_counts():
    first = job.with_rank(running(), rank(step=55, process="a"), inputs(alive=frozenset({"a"})))
    second = job.with_rank_left(first, rank(step=40, process="b"), inputs())
    assert second.progress.step == 95


def test_a_reported_loss_goes_before_a_printed_one_and_nan_keeps_its_first_step():
    printed, nan = protocol.Loss(2.0, printed=True), rank(loss_word="NaN")
    known = job.with_inputs(running(), inputs(printed=printed))
    assert known.loss == printed
    known = job.with_inputs(replace(known, progress=Progress(step=40)), inputs(ranks=(nan,), printed=printed))
    assert known.loss == protocol.Loss(None, False, 40, "NaN")
    known = job.with_inputs(replace(known, progress=Progress(step=90)), inputs(ranks=(nan,), printed=printed))
    assert known.loss is not None and known.loss.not_finite_since_step == 40
    unseen = job.with_inputs(running(progress=Progress()), inputs(printed=protocol.Loss(None, False, word="NaN"))).loss
    assert unseen is not None and unseen.not_finite_since_step is None, "no step is seen: no step is named"
    assert job.with_inputs(known, inputs(ranks=(rank(loss=1.0),))).loss == protocol.Loss(1.0)
