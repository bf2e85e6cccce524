"""What is done in the world for a step from one state to the next: everything that is due, and nothing twice."""

from dataclasses import replace

from states import CAP, NOW_S, board, decided, inputs, job_state, rank

from carbontui import protocol
from carbontui.job.supervisor.core import effects as fx
from carbontui.job.supervisor.core.effects import effects
from carbontui.job.supervisor.core.state import override
from carbontui.job.supervisor.core.state.boards import Boards, LeftAlone
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.terms.child import Child
from carbontui.job.terms.clock import Clock
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.protocol import statement

FREEZE = fx.Freeze(protocol.LEASE_S)

WAITING = Child("waiting")


def decision(name="running", level="full", code="plan", **fields):
    return decided(name, level, code, "by the plan", **fields)


def found(kind, before, after, seen=None, renew=False):
    return [effect for effect in effects(before, after, seen or inputs(), renew=renew) if isinstance(effect, kind)]


RUNNING = job_state(decision=decision(), child=Child("running", age_s=100.0))


# --- what the training is told ---


def test_a_lease_is_renewed_when_it_is_due_and_at_no_other_tick():
    assert found(fx.SendWants, RUNNING, RUNNING) == []
    (sent,) = found(fx.SendWants, RUNNING, RUNNING, renew=True)
    assert sent.want == protocol.DesiredState("run", 0, protocol.LEASE_S)


def test_a_new_word_goes_out_at_once():
    after = replace(RUNNING, asked=Desired("pause", 1))
    (sent,) = found(fx.SendWants, RUNNING, after)
    assert (sent.want.mode, sent.want.want_gen) == ("pause", 1)


def test_the_training_is_told_the_time_of_its_return_on_the_machines_clock():
    clock = Clock(speed=100.0, wall_origin_s=NOW_S, job_origin_s=0.0)
    after = job_state(clock=clock, asked=Desired("unload", 3, not_before_s=1000.0))
    assert fx.desired_of(after).not_before == "2027-01-15T08:00:10.000Z"


def test_a_simulated_cap_slows_the_training_itself_and_is_told_when_it_changes():
    before = job_state(simulated=SimulatedSpec(), decision=decision())
    after = replace(before, asked=Desired(limit_w=300.0))
    (sent,) = found(fx.SendWants, before, after)
    assert sent.want.duty is not None and 0.3 < sent.want.duty < 1.0
    assert found(fx.SendWants, after, after) == []
    (back,) = found(fx.SendWants, after, before)
    assert back.want.duty is None


def test_a_cap_on_real_boards_asks_nothing_of_the_training():
    after = replace(RUNNING, asked=Desired(limit_w=300.0))
    assert found(fx.SendWants, RUNNING, after) == []
    assert fx.desired_of(after).duty is None


def test_a_duty_cycle_is_asked_as_it_is_on_simulated_boards_too():
    asked = Desired(duty=0.5, limit_w=300.0)
    assert fx.desired_of(job_state(simulated=SimulatedSpec(), asked=asked)).duty == 0.5


# --- a start that is held ---


def test_a_held_start_is_told_once_and_renewed():
    held = job_state(decision=decision("waiting", "off", hold_until_s=NOW_S + 500), child=WAITING)
    seen = inputs(child=WAITING)
    assert found(fx.Hold, held, held, seen) == []
    assert found(fx.Hold, held, held, seen, renew=True) == [fx.Hold(NOW_S + 500)]
    assert found(fx.Hold, RUNNING, held, seen) == [fx.Hold(NOW_S + 500)]


def test_a_hold_is_said_again_when_the_child_has_changed_its_state():
    unloaded = Child("unloaded")
    held = job_state(decision=decision("unloaded", "unload", hold_until_s=NOW_S + 500), child=unloaded)
    before = replace(held, child=Child("running"))
    assert found(fx.Hold, before, held, inputs(child=unloaded)) == [fx.Hold(NOW_S + 500)]


def test_a_start_is_released_by_a_hold_without_a_time():
    before = job_state(decision=decision("waiting", "off", hold_until_s=NOW_S + 500), child=WAITING)
    after = replace(before, decision=decision("waiting"))
    assert found(fx.Hold, before, after, inputs(child=WAITING)) == [fx.Hold(None)]


def test_a_running_child_is_never_held():
    after = replace(RUNNING, decision=decision("paused", "pause", hold_until_s=NOW_S + 500))
    assert found(fx.Hold, RUNNING, after, renew=True) == []


def test_a_hold_in_a_replay_ends_on_the_machines_clock():
    clock = Clock(speed=10.0, wall_origin_s=NOW_S, job_origin_s=0.0)
    before = job_state(clock=clock, child=WAITING)
    after = replace(before, decision=decision("waiting", "off", hold_until_s=600.0))
    assert found(fx.Hold, before, after, inputs(child=WAITING)) == [fx.Hold(NOW_S + 60.0)]


# --- SIGSTOP ---


def test_a_freeze_is_a_lease_and_its_end_a_thaw():
    frozen = replace(RUNNING, asked=Desired("pause", 1, freeze=True))
    assert found(fx.Freeze, RUNNING, frozen) == [FREEZE]
    assert found(fx.Freeze, frozen, frozen) == [] and found(fx.Freeze, frozen, frozen, renew=True) == [FREEZE]
    assert found(fx.Thaw, frozen, RUNNING) == [fx.Thaw()]
    assert found(fx.Thaw, RUNNING, RUNNING) == []


def test_a_child_that_a_predecessor_froze_is_thawed():
    assert found(fx.Thaw, RUNNING, RUNNING, inputs(child=Child("running", frozen=True))) == [fx.Thaw()]


# --- limits ---


def test_a_limit_is_set_when_it_changes_and_given_back_at_its_end():
    capped = replace(RUNNING, asked=Desired(limit_w=300.0))
    assert found(fx.SetLimit, RUNNING, capped) == [fx.SetLimit(300.0)]
    assert found(fx.SetLimit, capped, capped, renew=True) == []
    assert found(fx.SetLimit, capped, RUNNING) == [fx.SetLimit(None)]


def test_a_successor_leaves_alone_boards_that_someone_else_has_set():
    before = replace(RUNNING, boards=Boards(left=LeftAlone(300.0, ("GPU-b",))))
    same, other = (replace(before, asked=Desired(limit_w=watts)) for watts in (300.0, 250.0))
    assert found(fx.SetLimit, before, same) == [fx.SetLimit(300.0, ("GPU-b",))]
    assert found(fx.SetLimit, before, other) == [fx.SetLimit(250.0)], "another cap is another wish"


# --- boards ---


def test_energy_of_boards_not_named_is_taken_back_after_half_a_minute():
    known = replace(RUNNING, boards=Boards(named=("GPU-a",), named_mono_s=1080.0))
    early = inputs(boards=(board("GPU-a"),), metered=frozenset({"GPU-a", "GPU-z"}), ranks=(rank(),))
    assert found(fx.ReverseBooking, known, known, early) == []
    assert found(fx.ReverseBooking, known, known, replace(early, mono_s=1110.0)) == [fx.ReverseBooking(("GPU-z",))]


def test_energy_of_boards_the_training_once_named_is_never_taken_back():
    known = replace(RUNNING, boards=Boards(named=("GPU-a",), named_mono_s=0.0, own=frozenset({"GPU-b"})))
    seen = inputs(boards=(board("GPU-a"),), metered=frozenset({"GPU-a", "GPU-b"}))
    assert found(fx.ReverseBooking, known, known, seen) == []


def test_nothing_is_taken_back_while_no_board_can_be_seen():
    known = replace(RUNNING, boards=Boards(named=("GPU-a",), named_mono_s=0.0))
    assert found(fx.ReverseBooking, known, known, inputs(metered=frozenset({"GPU-z"}))) == []


def test_the_trainings_processes_are_no_strangers_on_its_boards():
    known = replace(RUNNING, boards=Boards(named=("GPU-a",)))
    seen = inputs(ranks=(rank(pid=8), rank(rank=1, pid=7)), child_pid=5)
    assert found(fx.WatchBoards, known, known, seen) == [fx.WatchBoards(("GPU-a",), (5, 7, 8))]


def test_until_the_training_has_named_boards_all_are_watched():
    assert found(fx.WatchBoards, RUNNING, RUNNING, inputs(child_pid=None)) == [fx.WatchBoards(None, ())]


def test_a_simulated_board_follows_the_training():
    job = job_state(simulated=SimulatedSpec(), decision=decision())
    paused = replace(job, decision=decision("paused"))
    assert found(fx.Simulate, job, job, inputs(child=WAITING)) == [fx.Simulate(None)]
    assert found(fx.Simulate, job, job, inputs(ranks=(rank(),))) == [fx.Simulate(1.0, 1.0)]
    assert found(fx.Simulate, job, paused, inputs(ranks=(rank("paused", 1),))) == [fx.Simulate(0.0, 1.0)]
    assert found(fx.Simulate, job, job, inputs()) == [], "without a word of the training it stays as it was"
    assert found(fx.WatchBoards, job, job) == []


def test_a_simulated_board_rests_as_often_as_the_training():
    job = job_state(simulated=SimulatedSpec(), decision=decision("throttled", "duty 50 %"), asked=Desired(duty=0.5))
    assert found(fx.Simulate, job, job, inputs(ranks=(rank(),))) == [fx.Simulate(1.0, 0.5)]


# --- journal, log, plan ---


def held(mode, gen=1):
    return override.Overrides(protocol.Override(mode, None, None, "ada@pts/1"), gen)


def test_the_end_of_an_override_is_one_event_and_one_new_plan():
    before, after = replace(RUNNING, override=held("boost")), replace(RUNNING, override=override.Overrides(gen=2))
    assert found(fx.Record, before, after) == [fx.Record("override_over", {"mode": "boost", "by": "ada@pts/1"})]
    assert found(fx.Replan, before, after) == [fx.Replan(statement("cause_override_over"))]
    assert found(fx.Record, after, after) == [] and found(fx.Replan, after, after) == []


def test_an_override_that_gives_way_to_another_has_not_ended():
    before, after = replace(RUNNING, override=held("boost")), replace(RUNNING, override=held("pause", 2))
    assert found(fx.Record, before, after) == [] and found(fx.Replan, before, after) == []


def test_a_plan_is_made_anew_when_caps_become_possible_or_impossible():
    caps = replace(RUNNING, caps_hold=True)
    assert found(fx.Replan, RUNNING, caps) == [fx.Replan(statement("cause_caps"))]
    assert found(fx.Replan, caps, RUNNING) == [fx.Replan(statement("cause_no_caps"))]


def test_a_change_of_state_is_journaled_and_logged_once():
    after = replace(RUNNING, decision=decision("throttled", CAP.name), asked=Desired(gen=4))
    (event,) = found(fx.Record, RUNNING, after)
    assert event.kind == "state" and event.facts["state"] == "throttled" and event.facts["want_gen"] == 4
    assert found(fx.LogLine, RUNNING, after) == [
        fx.LogLine(statement("state_is", state="throttled", reason=after.decision.why.said))
    ]
    assert found(fx.Record, after, after) == []


def test_another_cap_of_the_plan_is_an_event_and_one_of_a_budget_only_another_figure():
    for code, events in (("plan", 1), ("allowance", 0)):
        before = job_state(decision=decision("throttled", "cap 410 W", code))
        after = replace(before, decision=decision("throttled", "cap 490 W", code))
        assert len(found(fx.Record, before, after)) == events


def test_a_clock_that_moves_in_a_sentence_is_no_event():
    after = replace(RUNNING, decision=decided("running", "full", "plan", "at full speed until 12:15"))
    assert found(fx.Record, RUNNING, after) == [] and found(fx.LogLine, RUNNING, after) == []


def test_another_reason_for_the_same_state_is_an_event():
    after = replace(RUNNING, decision=decision(code="late"))
    assert [event.facts["reason"] for event in found(fx.Record, RUNNING, after)] == ["late"]
