"""When a speed curve may be measured, what spoils it, and whether an earlier one is of use."""

from dataclasses import replace

import msgspec
import pytest
from drawn import drawn
from states import NOW_S, board, decided, inputs, job_state, rank

from carbontui import protocol
from carbontui.job.supervisor.core.rules import calibration
from carbontui.job.supervisor.core.state.boards import Boards
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.terms.clock import Clock
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import Capability, Outcome
from carbontui.text.replies import curve_lines

RUNNING = job_state(decision=decided("running", "full", "plan", "x"))
SEEN = inputs(boards=(board(),), ranks=(rank(),))
BOOST = Overrides(protocol.Override("boost", None, None, "ada"), 1)


def point(kind="full", cap_w=None, power_w=600.0):
    return Point(kind=kind, cap_w=cap_w, power_w=power_w, power_se=1.0, speed=1.0, speed_se=0.01)


def curve(*points, gpus=1, note=""):
    known = points or (point(),)
    return Curve(gpu="H100", gpus=gpus, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=10.0, points=known,
                 levels=known, note=note)  # fmt: skip


def test_a_training_that_runs_with_slack_on_its_own_board_can_be_calibrated():
    assert calibration.refusal(RUNNING, SEEN) is None


@pytest.mark.parametrize(
    ("fields", "seen", "why"),
    [
        ({"clock": Clock(10.0, NOW_S, NOW_S)}, SEEN, "a replay cannot be calibrated"),
        ({}, inputs(ranks=(rank(),)), "no GPU"),
        ({}, inputs(boards=(board(),)), "no training step"),
        ({"override": BOOST}, SEEN, "override of ada"),
        ({"decision": decided("paused", "pause", "plan", "x")}, SEEN, "the job is paused"),
        ({}, inputs(boards=(board(foreign_pids=(4242,)),), ranks=(rank(),)), "pid 4242"),
        ({}, inputs(boards=(board(mig=True),), ranks=(rank(),)), "MIG"),
        ({}, replace(SEEN, now_s=NOW_S + 7195.0), "no slack is left before the deadline"),
    ],
)
def test_a_calibration_is_refused_with_its_reason(fields, seen, why):
    assert why in drawn(calibration.refusal(replace(RUNNING, **fields), seen))


def test_a_training_warms_up_flat_out_or_under_a_cap_of_the_plan():
    assert calibration.runs_warm(RUNNING, SEEN)
    capped = decided("throttled", "cap 300 W", "plan", "x")
    assert calibration.runs_warm(replace(RUNNING, decision=capped, asked=Desired(limit_w=300.0)), SEEN)
    assert not calibration.runs_warm(replace(RUNNING, asked=Desired(duty=0.5)), SEEN)
    assert not calibration.runs_warm(RUNNING, inputs(boards=(board(),)))


def test_by_itself_a_calibration_begins_warm_with_slack_and_no_curve():
    assert calibration.worth_it(RUNNING, SEEN, warm_s=120.0)
    assert not calibration.worth_it(RUNNING, SEEN, warm_s=119.0)
    assert not calibration.worth_it(replace(RUNNING, curve=curve()), SEEN, 120.0)
    assert calibration.worth_it(replace(RUNNING, curve=curve(note="no caps")), SEEN, 120.0), "caps may hold by now"
    assert not calibration.worth_it(RUNNING, replace(SEEN, now_s=NOW_S + 5500.0), 120.0), "less than half an hour"
    assert not calibration.worth_it(job_state(cap=False, decision=RUNNING.decision), SEEN, 120.0)


@pytest.mark.parametrize("caps", [{}, {"limit": Capability("unknown")}, {"limit": Capability("no_permission")}])
def test_by_itself_a_calibration_begins_only_on_boards_that_take_limits(caps):
    seen = inputs(boards=(board(), board("GPU-b", caps=caps)), ranks=(rank(),))
    assert not calibration.worth_it(RUNNING, seen, 120.0)


def test_a_calibration_stays_within_what_every_board_allows():
    seen = inputs(
        boards=(board(limit_min_w=200.0, limit_found_w=700.0), board("GPU-b", limit_min_w=150.0, limit_found_w=500.0))
    )
    spec = calibration.spec_of(RUNNING, seen, "x")
    assert (spec.gpus, spec.can_cap, spec.limit_min_w, spec.limit_found_w) == (2, True, 200.0, 500.0)


def test_what_keeps_a_calibration_from_capping_is_named():
    no = Capability("no_permission", "only root may set limits")
    refused = calibration.spec_of(RUNNING, inputs(boards=(board(caps={"limit": no}),)), "x")
    assert not refused.can_cap and refused.why_not_cap == "only root may set limits"
    forbidden = calibration.spec_of(job_state(cap=False), SEEN, "x")
    assert not forbidden.can_cap and forbidden.why_not_cap == "--no-cap"
    assert not calibration.spec_of(RUNNING, inputs(boards=(board(limit_min_w=None),)), "x").can_cap


@pytest.mark.parametrize(
    ("fields", "seen", "why"),
    [
        ({"override": BOOST}, SEEN, "boost by ada"),
        ({}, replace(SEEN, now_s=NOW_S + 7195.0), "no slack"),
        ({}, inputs(boards=(board(),), ranks=(rank(rank=1),)), "disconnected"),
        ({}, inputs(boards=(board(lost=True),), ranks=(rank(),)), "a GPU was lost"),
        ({}, inputs(boards=(board(),), ranks=(rank(),), metered=frozenset({"GPU-a", "GPU-b"})), "a GPU was lost"),
        ({}, inputs(boards=(board(foreign_pids=(9,)),), ranks=(rank(),)), "another process"),
    ],
)
def test_what_disturbs_a_measurement_ends_it_with_its_name(fields, seen, why):
    assert why in drawn(calibration.disturbance(replace(RUNNING, **fields), seen))


def test_a_board_that_was_never_the_jobs_disturbs_nothing_when_it_goes():
    known = replace(RUNNING, boards=Boards(named=("GPU-a",)))
    assert calibration.disturbance(known, replace(SEEN, metered=frozenset({"GPU-a", "GPU-z"}))) is None


def test_refusals_that_pass_are_told_from_those_that_last():
    passing, lasting = Outcome("a", False, "foreign", text="pid 9"), Outcome("b", False, "no_permission")
    assert calibration.failures([passing]) == ("pid 9", "")
    assert calibration.failures([lasting]) == ("", "no_permission")
    assert calibration.failures([Outcome("c", True, "applied")]) == ("", "")


def test_a_cap_whose_effect_has_not_been_seen_is_not_measured_under():
    assert calibration.in_force_w(board(proving=True, limit_w=300.0)) == 0.0
    assert calibration.in_force_w(board(limit_w=300.0)) == 300.0
    assert calibration.in_force_w(board(limit_w=700.0, clocks_w=310.0)) == 310.0


def test_a_curve_of_a_higher_limit_is_not_taken_for_todays():
    two = curve(point(power_w=1400.0), gpus=2)
    assert calibration.too_high_w(two, inputs(boards=(board(limit_found_w=600.0),))) == (700.0, 600.0)
    assert calibration.too_high_w(two, inputs(boards=(board(limit_found_w=690.0),))) is None, "within its scatter"
    assert calibration.too_high_w(two, inputs(boards=(board(limit_found_w=None),))) is None


def test_levels_below_what_a_board_allows_now_are_left_out():
    known = curve(point("cap", 150.0), point("cap", 300.0), point())
    left = calibration.usable_levels(known, inputs(boards=(board(limit_min_w=200.0),)))
    assert [level.cap_w for level in left] == [300.0, None]


def test_a_model_is_never_shown_as_a_measurement():
    model = Curve(gpu="Simulated GPU", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0, simulated=True)
    assert "  SIMULATED GPU: a model, not a measurement" in curve_lines(model)
    assert not any("SIMULATED" in line for line in curve_lines(curve()))


KNOWN_W = {"GPU-a": Mean(600.0, 20)}
SEEN_STEPS = Progress(step=500, given_rate=10.0, work_s=7200.0)


@pytest.mark.parametrize(
    ("fields", "boards", "watts"),
    [
        ({}, (board(),), 600.0),
        ({"measured": Measured(full_w={"GPU-a": Mean(600.0, 19)})}, (board(),), None),
        ({}, (board(), board("GPU-b")), None),
        ({"caps_hold": False}, (board(),), None),
        ({"progress": Progress(work_s=7200.0)}, (board(),), None),
        ({"progress": Progress(step=500, work_s=7200.0)}, (board(),), None),
        ({"clock": Clock(10.0, NOW_S, NOW_S)}, (board(),), None),
        ({}, (board(foreign_pids=(9,)),), None),
        ({}, (board(simulated=True),), None),
    ],
    ids=["known", "too few samples", "one of two", "no limits", "no steps", "no rate", "replay", "shared", "simulated"],
)
def test_a_curve_of_others_is_assumed_only_where_its_truth_would_be_seen(fields, boards, watts):
    known = {"measured": Measured(full_w=KNOWN_W), "caps_hold": True, "progress": SEEN_STEPS, **fields}
    assert calibration.drawn_w(job_state(**known), inputs(boards=boards, ranks=(rank(),))) == watts


def test_only_a_curve_of_this_job_keeps_it_from_being_calibrated():
    for basis, worth in (("measured", False), ("imported", True), ("public", True)):
        known = msgspec.structs.replace(curve(), basis=basis)
        assert calibration.worth_it(replace(RUNNING, curve=known), SEEN, 120.0) is worth
