"""The control function: who decides, and what is asked, in every order of events."""

from dataclasses import replace

from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from states import CAP, FULL, NOW_S, OFF, PAUSE, UNLOAD, board, inputs, job_state, limits, plan_of, policy, rank

from carbontui import protocol
from carbontui.job.supervisor.core.rules.control import decide
from carbontui.job.supervisor.core.state.allowances import Allowances
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.job import Calibrating
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.plan import cap
from carbontui.job.terms.child import Child
from carbontui.power.messages import Outcome

BOARDS = (board(),)
WAITING = {"child": Child("waiting"), "ranks": ()}


def override(mode, value=None, until_s=None):
    return Overrides(protocol.Override(mode, value, None, "ada@pts/1"), 1, until_s)


def test_looking_twice_says_the_same_and_changes_nothing():
    known, seen = job_state(plan=plan_of(FULL, PAUSE)), inputs(boards=BOARDS, ranks=(rank(),))
    before = replace(known)
    assert decide(known, seen) == decide(known, seen) and known == before


def test_a_planned_pause_is_asked_for_and_observed_only_when_every_rank_stands():
    asked, decision = policy(PAUSE)
    assert (asked.mode, asked.gen, decision.state) == ("pause", 1, "pausing")
    ranks = (rank("paused", 1), rank("asked", 1, rank=1))
    assert policy(PAUSE, asked=asked, ranks=ranks)[1].state == "pausing"
    ranks = (rank("paused", 1), rank("paused", 1, rank=1))
    again, decision = policy(PAUSE, asked=asked, ranks=ranks)
    assert decision.state == "paused" and again.gen == 1


def test_a_person_wins_over_the_plan_and_is_named():
    asked, decision = policy(PAUSE, override=override("boost", until_s=NOW_S + 500.0))
    assert asked.mode == "run" and decision.state == "running"
    assert decision.why.code == "override" and "ada@pts/1" in drawn(decision)
    assert (decision.held_by, decision.until_s) == ("person", NOW_S + 500.0)
    assert policy(FULL, override=override("pause"))[0].mode == "pause"


def test_unknown_work_or_zone_never_pauses_but_keeps_a_cap():
    asked, decision = policy(PAUSE, work_s=None)
    assert asked.mode == "run" and decision.why.code == "no_work"
    assert policy(CAP, zone=None, boards=BOARDS)[0].limit_w == 300


def test_no_plan_yet_means_flat_out():
    asked, decision = policy()
    assert asked.mode == "run" and decision.state == "running"


def test_no_slack_left_runs_whatever_the_plan_says():
    asked, decision = policy(PAUSE, budget="1x")
    assert asked.mode == "run" and decision.why.code == "deadline"


def test_a_late_plan_is_followed_and_called_late():
    late = plan_of(FULL, late_s=600.0)
    _, decision = decide(job_state(plan=late), inputs(ranks=(rank(),)))
    assert decision.state == "running" and decision.why.code == "late"


def test_a_person_may_pause_beyond_the_deadline():
    assert policy(FULL, budget="1x", override=override("pause"))[0].mode == "pause"


def test_the_longest_pause_ends_and_is_not_begun_again_until_the_plan_ran():
    def later(planned, asked, after_s):
        return policy(planned, asked=asked, now_s=NOW_S + after_s, ranks=(rank("paused", 1),), max_pause_s=600)

    asked, _ = policy(PAUSE, max_pause_s=600)
    asked, decision = later(PAUSE, asked, 701)
    assert asked.mode == "run" and decision.why.code == "max_pause"
    asked, decision = later(PAUSE, asked, 750)
    assert asked.mode == "run"
    asked, _ = later(FULL, asked, 800)
    asked, _ = later(PAUSE, asked, 850)
    assert asked.mode == "pause"


def test_a_start_that_waits_is_no_pause():
    asked, _ = policy(OFF, FULL, slot_s=5000.0, max_pause_s=600, **WAITING)
    _, decision = policy(OFF, FULL, slot_s=5000.0, max_pause_s=600, asked=asked, now_s=NOW_S + 4000, **WAITING)
    assert decision.state == "waiting" and decision.hold_until_s == NOW_S + 5000


def test_unload_needs_a_checkpoint_function_else_it_is_a_pause():
    assert policy(UNLOAD)[0].mode == "pause"
    asked, _ = policy(UNLOAD, FULL, ranks=(rank(can_unload=True),))
    assert asked.mode == "unload" and asked.not_before_s == NOW_S + 900


def test_an_unload_waits_for_an_epochs_end_that_is_near_else_it_is_a_pause():
    def unload(order="other", left=(600, 1200), slot_s=4000.0, **fields):
        leaves = rank(can_unload=True, data_order=order, rate=1.0, epoch_left=left)
        return policy(UNLOAD, FULL, ranks=(leaves,), slot_s=slot_s, **fields)

    asked, decision = unload()
    assert (asked.mode, asked.epoch_end, decision.state, decision.why.code) == ("unload", True, "running", "epoch_end")
    assert decision.until_s == NOW_S + 700
    assert unload(asked=asked, now_s=NOW_S + 1050)[0].mode == "pause", "it has waited long enough"
    for never in ({"left": (1000, 1200)}, {"left": None}, {"slot_s": 500.0}):
        assert unload(**never)[0].mode == "pause", never
    asked, _ = unload(order=None, left=(1000, 1200))
    assert (asked.mode, asked.epoch_end) == ("unload", False)


def test_a_start_that_waits_is_held_until_the_plan_begins_and_released_by_boost():
    _, decision = policy(OFF, FULL, **WAITING)
    assert decision.state == "waiting" and decision.hold_until_s == NOW_S + 900 and decision.why.code == "plan_wait"
    _, decision = policy(OFF, FULL, override=override("boost"), **WAITING)
    assert decision.hold_until_s is None


def test_a_rank_that_heard_a_predecessor_is_outranked():
    asked, _ = policy(FULL, asked=Desired(gen=3), ranks=(rank("paused", 9),))
    assert asked.gen == 10 and asked.mode == "run"


def test_no_boundary_is_said_after_a_while():
    asked, _ = policy(PAUSE)
    _, decision = policy(PAUSE, asked=asked, ranks=(rank("asked", 1, quiet_s=42.0),), now_s=NOW_S + 142)
    assert decision.state == "pausing" and decision.why.code == "no_boundary" and "42 s" in drawn(decision)


def test_a_cap_is_a_limit_only_where_it_can_be_set():
    asked, decision = policy(CAP, boards=BOARDS)
    assert asked.limit_w == 300 and decision.state == "throttled"
    for nowhere in ({}, {"boards": BOARDS, "cap": False}):
        asked, decision = policy(CAP, **nowhere)
        assert asked.limit_w is None and decision.state == "running"


def test_a_cap_that_no_board_holds_is_not_called_one():
    no = limits(asked=True, outcomes={"GPU-a": Outcome("GPU-a", False, "no_effect", text="no effect")})
    asked, _ = policy(CAP, boards=BOARDS)
    again, decision = policy(CAP, asked=asked, boards=BOARDS, limits=no)
    assert again.limit_w == 300 and decision.state == "running"
    assert drawn(decision) == "cap of 300 W per GPU refused: no effect"
    assert (decision.applied.kind, decision.refused) == ("full", "no_effect")
    _, decision = policy(CAP, asked=asked, boards=BOARDS, limits=no, override=override("cap", 250.0))
    assert decision.state == "throttled", "another cap has not been refused yet"
    assert decision.refused is None


def test_a_trial_of_the_calibration_stands_above_the_plan_and_below_a_person():
    trial = {"calibrating": Calibrating(cap(300.0)), "boards": BOARDS}
    asked, decision = policy(FULL, **trial)
    assert asked.limit_w == 300.0 and decision.why.code == "calibrating"
    assert policy(FULL, override=override("boost"), **trial)[0].limit_w is None


def test_a_job_keeps_the_cap_it_was_started_at_unless_a_person_says_otherwise():
    started = {"fleet_cap_w": 250.0, "boards": BOARDS}
    asked, decision = policy(FULL, **started)
    assert (asked.limit_w, decision.held_by, decision.why.code) == (250.0, "site", "site")
    assert policy(cap(200.0), **started)[0].limit_w == 200  # lower by its own plan
    assert policy(FULL, allowances=Allowances(cap_w=220.0), **started)[1].held_by == "allowance"
    assert policy(FULL, override=override("boost"), **started)[0].limit_w is None


def test_the_end_gives_everything_back():
    asked, _ = policy(CAP, boards=BOARDS)
    ends = {
        Child("exited", code=0): "done",
        Child("exited", signal=9): "failed",
        Child("exited", code=0, stopped=True): "stopped",
        Child("vanished"): "lost",
        Child("vanished", stopped=True): "stopped",
    }
    for child, state in ends.items():
        after, decision = policy(CAP, asked=asked, ranks=(), child=child, boards=BOARDS)
        assert after.limit_w is None and decision.state == state


levels = st.sampled_from([None, PAUSE, FULL, CAP, UNLOAD, OFF])
modes = st.sampled_from([None, "pause", "boost", "cap"])
rank_states = st.sampled_from(["running", "asked", "paused", "checkpointing", "unloading"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(levels, modes, rank_states, st.integers(0, 12), st.booleans(), st.booleans(), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_happens_generations_grow_and_a_pause_has_a_cause(events):
    asked = Desired()
    for step, (planned, word, state, gen, must, free, can_cap) in enumerate(events):
        before = asked
        asked, _ = policy(
            *([] if planned is None else [planned]),
            asked=before,
            now_s=NOW_S + step,
            ranks=(rank(state, gen),),
            override=Overrides() if word is None else override(word, 300.0),
            budget="1x" if must else "2x",
            zone=None if free else "DE",
            boards=BOARDS if can_cap else (),
        )
        assert asked.gen >= before.gen
        if (asked.mode, asked.duty) != (before.mode, before.duty):
            assert asked.gen > before.gen
        if asked.mode != "run":
            planned_still = planned is not None and planned.kind in ("pause", "unload", "off")
            assert word == "pause" or (planned_still and not must and not free and word is None)
        if asked.limit_w is not None:
            assert can_cap
