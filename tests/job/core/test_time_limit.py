"""A training that can save leaves before its scheduler ends it; any other is left to it, and no plan begins after."""

from __future__ import annotations

from dataclasses import replace

from drawn import drawn
from msgspec import structs
from states import NOW_S, inputs, job_state, plan_of, rank

from carbontui.job.keeper.messages import Leave
from carbontui.job.supervisor.core.advance import Tick, advance
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state.plan import FULL, OFF
from carbontui.job.terms import child as children
from carbontui.job.terms.child import Child


def asked_at(now_s: float, *, can_unload: bool = True, quiet_s: float = 0.1, save_s: float | None = None, **fields):
    made = job_state(**{"ends_s": NOW_S + 1000.0, "resubmit": True, **fields})
    if save_s is not None:
        made = replace(made, measured=replace(made.measured, unload_s=made.measured.unload_s.plus(save_s)))
    seen = inputs(now_s, ranks=(rank(can_unload=can_unload, quiet_s=quiet_s),))
    return control.decide(made, seen)


def test_it_is_unloaded_a_checkpoint_and_a_minute_before_the_end_and_goes_on_at_once():
    assert asked_at(NOW_S + 900.0)[0].mode == "run"
    asked, decision = asked_at(NOW_S + 911.0)
    assert (asked.mode, asked.not_before_s) == ("unload", None)
    assert "unloaded before its time limit" in drawn(decision)


def test_what_leaving_took_once_is_what_is_left_for_it():
    assert asked_at(NOW_S + 600.0, save_s=400.0)[0].mode == "unload"
    assert asked_at(NOW_S + 530.0, save_s=400.0)[0].mode == "run"
    assert asked_at(NOW_S + 925.0, save_s=4.0)[0].mode == "run"


def test_long_steps_are_waited_for_and_what_cannot_save_runs_to_the_end():
    assert asked_at(NOW_S + 700.0, quiet_s=150.0)[0].mode == "unload"
    assert asked_at(NOW_S + 990.0, can_unload=False)[0].mode == "run"
    assert asked_at(NOW_S + 990.0, ends_s=None)[0].mode == "run"


WAITS = plan_of(OFF, OFF, OFF, FULL)


def before_its_start(*, resubmit: bool, plan=WAITS, **fields):
    """One that its plan has begin in 45 minutes, with an hour of work, ticked once."""
    made = job_state(work_s=3600.0, resubmit=resubmit, plan=plan, **fields)
    seen = inputs(NOW_S + 10.0, child=Child("waiting"), starts=0)
    after, effects = advance(made, Tick(seen))
    return after, [one for one in effects if isinstance(one, Leave)]


def test_a_start_that_waits_leaves_for_the_queue_only_where_a_successor_begins_it():
    after, left = before_its_start(resubmit=True, ends_s=NOW_S + 9e4, budget="20x")
    assert after.decision.state == "waiting" and [one.until for one in left] == [NOW_S + 2700.0]
    _, left = before_its_start(resubmit=True, budget="20x")  # whether there is a limit or not
    assert left
    after, left = before_its_start(resubmit=False, ends_s=NOW_S + 9e4, budget="20x")
    assert after.decision.state == "waiting" and not left
    soon = plan_of(OFF, FULL, slot_s=200.0)
    assert not before_its_start(resubmit=True, plan=soon, budget="20x")[1], "a few minutes are waited for here"


def test_without_a_successor_a_limit_before_the_plan_has_it_begin_now():
    after, _ = before_its_start(resubmit=False, ends_s=NOW_S + 3600.0, budget="20x")
    assert after.cut_short and after.deadline_s == NOW_S + 3540.0 < after.budget_deadline_s
    assert after.decision.level is FULL
    assert "its time limit ends it at" in drawn(after.decision)


def test_a_job_that_is_requeued_plans_beyond_its_limit_once_it_has_made_steps():
    asked = {"work_s": 36000.0, "budget": "3x", "resubmit": False, "requeue": True, "ends_s": NOW_S + 1000.0}
    assert job_state(**asked).cut_short, "one that has not begun would wait on its nodes until it is ended"

    def with_steps(**fields):
        made = job_state(**fields)
        return replace(made, progress=structs.replace(made.progress, step=10))

    begun = with_steps(**asked)
    assert not begun.cut_short and begun.deadline_s == begun.budget_deadline_s
    decided = control.decide(begun, inputs(NOW_S + 911.0, ranks=(rank(can_unload=True),)))[1]
    assert "unloaded before its time limit" in drawn(decided)
    assert with_steps(**{**asked, "requeue": False}).cut_short


def test_a_limit_that_was_changed_meanwhile_counts_from_its_next_answer():
    made = job_state(work_s=3600.0, budget="20x", resubmit=False, ends_s=NOW_S + 4000.0)
    raised, _ = advance(made, Tick(inputs(NOW_S + 10.0, ends_s=float("inf"))))
    assert made.cut_short and not raised.cut_short and raised.ends_s is None
    lowered, _ = advance(raised, Tick(inputs(NOW_S + 11.0, ends_s=NOW_S + 500.0)))
    assert lowered.ends_s == NOW_S + 500.0
    kept, _ = advance(lowered, Tick(inputs(NOW_S + 12.0)))  # a supervisor that has not heard yet
    assert kept.ends_s == NOW_S + 500.0


def test_only_a_user_stops_a_job_by_a_users_wish():
    ended = {"code": None, "signal": 15, "at": NOW_S, "stopped": True}
    assert drawn(children.ending(children.exited(ended))) == "stopped by a user"
    by_slurm = children.exited({**ended, "ended_by": "slurmstepd"})
    assert drawn(children.ending(by_slurm)).startswith("ended by Slurm")
    assert "its time limit was over" in drawn(children.ending(by_slurm, NOW_S - 1.0))
    assert "its time limit was over" not in drawn(children.ending(by_slurm, NOW_S + 60.0))
