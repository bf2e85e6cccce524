"""A training that can save leaves before its scheduler ends it; any other is left to it."""

from __future__ import annotations

from dataclasses import replace

from drawn import drawn
from states import NOW_S, inputs, job_state, rank

from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.rules.observe import observe


def asked_at(now_s: float, *, can_unload: bool = True, quiet_s: float = 0.1, save_s: float | None = None, **fields):
    made = job_state(**{"ends_s": NOW_S + 1000.0, **fields})
    if save_s is not None:
        made = replace(made, measured=replace(made.measured, unload_s=made.measured.unload_s.plus(save_s)))
    seen = inputs(now_s, ranks=(rank(can_unload=can_unload, quiet_s=quiet_s),))
    return control.decide(made.asked, observe(made, seen))


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
