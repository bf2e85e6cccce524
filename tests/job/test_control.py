"""The control function: who decides, and what is asked, in every order of events."""

from dataclasses import replace

from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from carbontui import protocol
from carbontui.job.supervisor.core.rules.control import Observation, decide
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.inputs import Rank
from carbontui.job.supervisor.core.state.levels import Level
from carbontui.job.terms.child import Child

PAUSE = Level("pause", "pause", 90, 0.0)
FULL = Level("full", "full", 600, 1.0)
CAP = Level("cap 300 W", "cap", 300, 0.8, cap_w=300)
UNLOAD = Level("unload", "unload", 25, 0.0)
OFF = Level("off", "off", 0, 0.0)
RUNNING = Child("running", age_s=100)


def rank(state="running", gen=0, **extra):
    return Rank(**{"state": state, "want_gen": gen, "step": 10, "quiet_s": 0.1, **extra})


def seen(planned=FULL, ranks=(rank(),), child=RUNNING, **extra):
    return Observation(now_s=1000.0, mono_s=50.0, child=child, planned=planned, ranks=tuple(ranks), **extra)


def override(mode, value=None, until=None):
    return protocol.Override(mode, value, until, "ada@pts/1")


def test_a_planned_pause_is_asked_for_and_observed_only_when_every_rank_stands():
    asked, decision = decide(Desired(), seen(PAUSE))
    assert (asked.mode, asked.gen, decision.state) == ("pause", 1, "pausing")
    ranks = [rank("paused", 1), rank("asked", 1, rank=1)]
    assert decide(asked, seen(PAUSE, ranks))[1].state == "pausing"
    ranks = [rank("paused", 1), rank("paused", 1, rank=1)]
    again, decision = decide(asked, seen(PAUSE, ranks))
    assert decision.state == "paused" and again.gen == 1


def test_a_person_wins_over_the_plan_and_is_named():
    asked, decision = decide(Desired(), seen(PAUSE, override=override("boost")))
    assert asked.mode == "run" and decision.state == "running"
    assert decision.why.code == "override" and "ada@pts/1" in drawn(decision)
    assert decide(Desired(), seen(FULL, override=override("pause")))[0].mode == "pause"


def test_unknown_work_or_zone_never_pauses_but_keeps_a_cap():
    why = protocol.Why("no_work", protocol.statement("work_unknown"))
    asked, decision = decide(Desired(), seen(PAUSE, no_shifting=why))
    assert asked.mode == "run" and decision.why.code == "no_work"
    assert decide(Desired(), seen(CAP, no_shifting=why, can_cap=True))[0].limit_w == 300


def test_no_plan_yet_means_flat_out():
    asked, decision = decide(Desired(), seen(None))
    assert asked.mode == "run" and decision.state == "running"


def test_no_slack_left_runs_whatever_the_plan_says():
    asked, decision = decide(Desired(), seen(PAUSE, must_run=True))
    assert asked.mode == "run" and decision.why.code == "deadline"


def test_a_person_may_pause_beyond_the_deadline():
    assert decide(Desired(), seen(FULL, must_run=True, override=override("pause")))[0].mode == "pause"


def test_the_longest_pause_ends_and_is_not_begun_again_until_the_plan_ran():
    asked, _ = decide(Desired(), seen(PAUSE, max_pause_s=600))
    late = replace(seen(PAUSE, [rank("paused", 1)], max_pause_s=600), now_s=1000 + 601)
    asked, decision = decide(asked, late)
    assert asked.mode == "run" and decision.why.code == "max_pause"
    asked, decision = decide(asked, replace(late, now_s=1700))
    assert asked.mode == "run"
    asked, _ = decide(asked, replace(late, now_s=1800, planned=FULL))
    asked, _ = decide(asked, replace(late, now_s=1900, planned=PAUSE))
    assert asked.mode == "pause"


def test_a_start_that_waits_is_no_pause():
    waiting = Child("waiting")
    asked, _ = decide(Desired(), seen(OFF, (), waiting, next_at_s=90_000.0, max_pause_s=600))
    _, decision = decide(asked, replace(seen(OFF, (), waiting, next_at_s=90_000.0, max_pause_s=600), now_s=50_000.0))
    assert decision.state == "waiting" and decision.hold_until_s == 90_000.0


def test_unload_needs_a_checkpoint_function_else_it_is_a_pause():
    assert decide(Desired(), seen(UNLOAD))[0].mode == "pause"
    asked, _ = decide(Desired(), seen(UNLOAD, [rank(can_unload=True)], next_at_s=5000.0))
    assert asked.mode == "unload" and asked.not_before_s == 5000.0


def test_an_unload_waits_for_an_epochs_end_that_is_near_else_it_is_a_pause():
    leaves = [rank(can_unload=True, data_order="other")]
    near = {"next_at_s": 5000.0, "keeps_order": False, "epoch_left_s": 600.0}
    asked, decision = decide(Desired(), seen(UNLOAD, leaves, **near))
    assert (asked.mode, asked.epoch_end, decision.state, decision.why.code) == ("unload", True, "running", "epoch_end")
    assert decision.until_s == 1600.0
    late = replace(seen(UNLOAD, leaves, **near), now_s=1950.0)
    assert decide(asked, late)[0].mode == "pause", "it has waited long enough"
    for never in ({"epoch_left_s": 1000.0}, {"epoch_left_s": None}, {"next_at_s": 1500.0}):
        assert decide(Desired(), seen(UNLOAD, leaves, **{**near, **never}))[0].mode == "pause", never
    unknown = seen(UNLOAD, leaves, **{**near, "keeps_order": True, "epoch_left_s": 1000.0})
    asked, _ = decide(Desired(), unknown)
    assert (asked.mode, asked.epoch_end) == ("unload", False)


def test_a_start_that_waits_is_held_until_the_plan_begins_and_released_by_boost():
    waiting = Child("waiting")
    _, decision = decide(Desired(), seen(OFF, (), waiting, next_at_s=4000.0))
    assert decision.state == "waiting" and decision.hold_until_s == 4000.0 and decision.why.code == "plan_wait"
    _, decision = decide(Desired(), seen(OFF, (), waiting, next_at_s=4000.0, override=override("boost")))
    assert decision.hold_until_s is None


def test_a_rank_that_heard_a_predecessor_is_outranked():
    asked, _ = decide(Desired(gen=3), seen(FULL, [rank("paused", 9)]))
    assert asked.gen == 10 and asked.mode == "run"


def test_no_boundary_is_said_after_a_while():
    asked, _ = decide(Desired(), seen(PAUSE))
    stuck = replace(seen(PAUSE, [rank("asked", 1, quiet_s=42.0)]), mono_s=50 + 42)
    _, decision = decide(asked, stuck)
    assert decision.state == "pausing" and decision.why.code == "no_boundary" and "42 s" in drawn(decision)


def test_a_cap_is_a_limit_only_where_it_can_be_set():
    asked, decision = decide(Desired(), seen(CAP, can_cap=True))
    assert asked.limit_w == 300 and decision.state == "throttled"
    asked, decision = decide(Desired(), seen(CAP, can_cap=False))
    assert asked.limit_w is None and decision.state == "running"


def test_a_cap_that_no_board_holds_is_not_called_one():
    capped = override("cap", 300.0)
    asked, _ = decide(Desired(), seen(FULL, override=capped, can_cap=True))
    refused = seen(FULL, override=capped, can_cap=True, refused_w=300.0, refused_why="no effect")
    _, decision = decide(asked, refused)
    assert decision.state == "running" and drawn(decision) == "cap of 300 W per GPU refused: no effect"
    _, decision = decide(asked, replace(refused, override=override("cap", 250.0)))
    assert decision.state == "throttled", "another cap has not been refused yet"


def test_the_end_gives_everything_back():
    asked, _ = decide(Desired(), seen(CAP, can_cap=True))
    asked, decision = decide(asked, seen(CAP, (), Child("exited", code=0), can_cap=True))
    assert asked.limit_w is None and decision.state == "done"
    assert decide(asked, seen(CAP, (), Child("exited", signal=9)))[1].state == "failed"
    assert decide(asked, seen(CAP, (), Child("exited", code=0, stopped=True)))[1].state == "stopped"
    assert decide(asked, seen(CAP, (), Child("vanished")))[1].state == "lost"
    assert decide(asked, seen(CAP, (), Child("vanished", stopped=True)))[1].state == "stopped"


levels = st.sampled_from([None, PAUSE, FULL, CAP, UNLOAD, OFF])
modes = st.sampled_from([None, override("pause"), override("boost"), override("cap", 300.0)])
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
        why = protocol.Why("no_zone", protocol.statement("no_zone_known")) if free else None
        observed = Observation(
            now_s=1000.0 + step,
            mono_s=float(step),
            child=RUNNING,
            ranks=(rank(state, gen),),
            planned=planned,
            override=word,
            must_run=must,
            no_shifting=why,
            can_cap=can_cap,
        )
        before = asked
        asked, _ = decide(asked, observed)
        assert asked.gen >= before.gen
        if (asked.mode, asked.duty) != (before.mode, before.duty):
            assert asked.gen > before.gen
        if asked.mode != "run":
            person = word is not None and word.mode == "pause"
            planned_still = planned is not None and planned.kind in ("pause", "unload", "off")
            assert person or (planned_still and not must and not free and word is None)
        if asked.limit_w is not None:
            assert can_cap
