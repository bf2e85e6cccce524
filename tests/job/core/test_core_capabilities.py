"""What can be done in this job, and why the better thing cannot."""

import pytest
from drawn import drawn
from states import board, inputs, job_state, rank

from carbontui import protocol
from carbontui.job.supervisor.core.rules import capabilities
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.shell.requests import abilities
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import Capability, HostReading, Readings


def rows(state, seen):
    answer = abilities(state, seen, protocol.AbilitiesAsk(3))
    assert answer.id == 3
    return {(row.device, row.aspect): row for row in answer.rows}


def training(state=None, seen=None):
    found = rows(state or job_state(), seen or inputs(ranks=(rank(),)))
    return {aspect: row for (device, aspect), row in found.items() if device == "training"}


def test_a_training_loop_can_be_paused_at_its_steps():
    found = training(seen=inputs(ranks=(rank(), rank(rank=1))))
    assert found["pause"].support == "supported" and found["pause"].why == "2 processes at its steps"
    assert found["duty cycle"].support == "supported"


def test_a_measured_pause_says_how_long_it_takes():
    quick, slow = (job_state(measured=Measured(pause_s=Mean(value, 3))) for value in (0.0421, 90.0))
    assert training(quick)["pause"].why == "1 process at its steps; a pause takes hold after 42 ms"
    assert training(slow)["pause"].why.endswith("a pause takes hold after 90 s")


def test_an_unload_needs_a_checkpoint_function_and_says_how_to_give_one():
    assert training()["unload"].support == "not supported"
    assert "carbontui.on_checkpoint(save)" in training()["unload"].why
    assert training(job_state(inside=True))["unload"].why.startswith("it was begun inside a script or notebook,")
    assert training(seen=inputs(ranks=(rank(can_unload=True),)))["unload"].support == "supported"


def test_a_program_without_steps_is_offered_sigstop():
    found = training(seen=inputs())
    assert found["pause"].support == "not supported" and "duty cycle" not in found
    assert found["SIGSTOP"].fix == "carbontui run --sigstop -- ..."
    assert training(job_state(sigstop=True), inputs())["SIGSTOP"].support == "supported"


def test_sigstop_is_refused_where_nobody_could_undo_it_or_a_board_is_shared():
    known = job_state(sigstop=True)
    assert capabilities.freeze_why(known, inputs(guarded=False)).code == "keeper_gone_to_thaw"
    assert "2 processes use H100" in drawn(capabilities.freeze_why(known, inputs(boards=(board(pids=(7, 8)),))))
    assert capabilities.freeze_why(job_state(), inputs(guarded=False)) is None, "nobody asked for it"
    assert training(known, inputs(boards=(board(pids=(7, 8)),)))["SIGSTOP"].support == "not supported"


def test_boards_that_are_not_the_jobs_are_not_in_its_table():
    found = rows(job_state(), inputs(boards=(board(index=0), board("GPU-b", index=1, watched=False))))
    assert ("GPU 0 H100", "power limit") in found and not any("GPU 1" in device for device, _ in found)


def test_what_cannot_be_done_on_a_board_has_its_reason_and_its_repair():
    no = Capability("no_permission", "only root may set limits", "sudo carbontui run ...")
    found = rows(job_state(), inputs(boards=(board(caps={"limit": no}),)))[("GPU 0 H100", "power limit")]
    assert (found.support, found.why, found.fix) == ("no permission", "only root may set limits", no.fix)


def test_without_a_gpu_the_first_row_says_so_and_a_counted_host_is_there():
    found = rows(job_state(), inputs(readings=Readings(mono_s=1.0, host=HostReading(source="load"))))
    assert "CPU and memory only" in found[("GPU", "any")].why
    assert ("host", "CPU packages") in found and ("host", "CPU packages") not in rows(job_state(), inputs())


def test_the_curve_is_under_the_table_once_it_was_measured():
    point = Point(kind="cap", cap_w=300.0, power_w=290.0, power_se=2.0, speed=0.8, speed_se=0.01, j_per_step=36.3)
    known = Curve(gpu="H100", gpus=1, fingerprint="x", measured_s=0.0, rate_steps_per_s=12.0, points=(point,))
    ask = protocol.AbilitiesAsk(1)
    assert abilities(job_state(), inputs(), ask).curve == ()
    lines = abilities(job_state(curve=known), inputs(), ask).curve
    assert "12 steps/s" in lines[0] and "cap 300 W" in lines[1] and "36.3 J/step" in lines[1]


# --- may this cap be set? ---


@pytest.mark.parametrize(
    ("fields", "seen", "watts", "why"),
    [
        ({"cap": False}, inputs(boards=(board(),)), 300.0, "--no-cap"),
        ({}, inputs(readings=Readings()), 300.0, "has not answered yet"),
        ({}, inputs(), 300.0, "no GPU of this job"),
        ({}, inputs(boards=(board(),)), 199.0, "at least 200 W"),
        ({}, inputs(boards=(board(),)), 701.0, "at most 700 W"),
        ({}, inputs(boards=(board(limit_top_w=500.0),)), 600.0, "--allow-raise permits it"),
        ({}, inputs(boards=(board(), board("b", limit_min_w=350.0))), 300.0, "at least 350 W"),
        ({}, inputs(boards=(board(caps={"limit": Capability("no_effect", "ignored", "x")}),)), 300.0, "ignored; x"),
    ],
)
def test_a_cap_that_cannot_be_set_is_refused_with_what_would_help(fields, seen, watts, why):
    assert why in drawn(capabilities.why_no_cap(job_state(**fields), seen, watts))


def test_a_cap_within_bounds_is_refused_by_nobody():
    assert capabilities.why_no_cap(job_state(), inputs(boards=(board(),)), 300.0) is None
    raised = job_state(allow_raise=True)
    assert capabilities.why_no_cap(raised, inputs(boards=(board(limit_top_w=500.0),)), 600.0) is None
    untold = inputs(boards=(board(caps={}),))
    assert capabilities.why_no_cap(job_state(), untold, 300.0) is None, "the board will say"
    assert capabilities.why_no_cap(job_state(), inputs(boards=(board(),)), 700.0) is None
