"""Boards of a job in the supervisor's core: whose they are, what is said of them, what a cap on them is refused for."""

from __future__ import annotations

import dataclasses

import msgspec
from drawn import drawn
from msgspec.structs import replace
from states import inputs, job_state

from carbontui.job.supervisor.core.rules.capabilities import why_no_cap
from carbontui.job.supervisor.core.state import boards
from carbontui.job.supervisor.core.state.inputs import LimitNews
from carbontui.job.supervisor.core.state.job import with_inputs
from carbontui.job.supervisor.core.view.notices import notices
from carbontui.power.messages import Outcome, Reading, Readings

BOARD = Reading(uuid="GPU-a", name="H100", index=3, power_w=300.0, pids=(7,))


def test_another_job_on_a_board_is_one_note_with_its_name() -> None:
    shared = replace(BOARD, foreign_pids=(99,), foreign_user="job nightly (pid 99)")
    refused = Outcome(BOARD.uuid, False, "foreign", None, "job nightly (pid 99) uses this GPU too: ...")
    seen = inputs(boards=(shared,), limits=LimitNews(True, False, (), {BOARD.uuid: refused}))
    found = [text for text in map(drawn, notices(job_state(), seen, ())) if "nightly" in text]
    assert found == ["GPU 3: job nightly (pid 99) uses it too: its limit is left alone, its watts are counted here"]


def test_boards_counted_before_a_training_was_found_on_its_own_are_taken_back() -> None:
    other = replace(BOARD, uuid="GPU-b", watched=False)
    seen = inputs(readings=Readings(mono_s=1099.5, devices=(BOARD, other), by_process=True), mono_s=1100.0)
    seen = dataclasses.replace(seen, metered=frozenset({"GPU-a", "GPU-b"}))
    state = with_inputs(job_state(), seen)
    assert boards.foreign_boards(state.boards, seen) == (), "not at once: the training may open more of them"
    kept = msgspec.to_builtins(boards.to_kept(state.boards, None, ()))
    assert boards.restored(kept, 1100.0).shown == ("GPU-a",), "a successor knows them"
    later = dataclasses.replace(seen, mono_s=1140.0)
    assert boards.foreign_boards(with_inputs(state, later).boards, later) == ("GPU-b",)


def test_a_cap_above_a_low_limit_is_refused_with_the_drivers_default_and_the_command() -> None:
    low = replace(BOARD, limit_min_w=200.0, limit_top_w=400.0, limit_max_w=700.0, limit_default_w=700.0)
    why = drawn(why_no_cap(job_state(), inputs(boards=(low,)), 600.0))
    assert "above the limit found (400 W), which is below the driver's default of 700 W" in why
    assert "sudo nvidia-smi -i GPU-a -pl 700" in why and "--allow-raise" in why
