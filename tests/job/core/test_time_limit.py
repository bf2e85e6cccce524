"""A training that can save leaves before its scheduler ends it; any other is left to it."""

from __future__ import annotations

from states import NOW_S, inputs, job_state, rank

from carbontui.job.supervisor.core import control
from carbontui.job.supervisor.core.observe import observe


def asked_at(now_s: float, *, can_unload: bool = True, quiet_s: float = 0.1, **fields):
    made = job_state(**{"ends_s": NOW_S + 1000.0, **fields})
    seen = inputs(now_s, ranks=(rank(can_unload=can_unload, quiet_s=quiet_s),))
    return control.decide(made.asked, observe(made, seen))


def test_it_is_unloaded_a_checkpoint_and_a_minute_before_the_end_and_goes_on_at_once():
    assert asked_at(NOW_S + 900.0)[0].mode == "run"
    asked, decision = asked_at(NOW_S + 911.0)
    assert (asked.mode, asked.not_before_s) == ("unload", None)
    assert "unloaded before its time limit" in decision.reason.text


def test_long_steps_are_waited_for_and_what_cannot_save_runs_to_the_end():
    assert asked_at(NOW_S + 700.0, quiet_s=150.0)[0].mode == "unload"
    assert asked_at(NOW_S + 990.0, can_unload=False)[0].mode == "run"
    assert asked_at(NOW_S + 990.0, ends_s=None)[0].mode == "run"
