"""What a plan counts with: measured where it was, documented defaults until then."""

import math
from dataclasses import replace

import pytest
from msgspec import structs
from states import NOW_S, board, decided, inputs, job_state, rank

from carbontui.account.accounts import band
from carbontui.job.supervisor.core.planning import machine, problem
from carbontui.job.supervisor.core.planning.expected_end import so_far, whole_machine
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.core.state.unloading import Unloading
from carbontui.job.terms.clock import Clock
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import HostReading, NodeWatts, Readings

REPLAY = Clock(speed=60.0, wall_origin_s=NOW_S, job_origin_s=NOW_S)
TWO = inputs(boards=(board(limit_found_w=700.0), board("GPU-b", limit_found_w=500.0)))


def watts(**tables):
    return Measured(**{kind: {uuid: Mean(w, 9) for uuid, w in table.items()} for kind, table in tables.items()})


def test_a_calibration_says_what_is_drawn_while_paused_before_the_first_pause():
    known = Curve(gpu="H100", gpus=2, fingerprint="x", measured_s=0.0, rate_steps_per_s=1.0, parked_w=236.0)
    found = machine.machine(job_state(curve=known), TWO)
    assert (found.parked_w, found.parked_measured, found.full_measured) == (236.0, True, False)
    assert not machine.machine(job_state(curve=known), inputs(boards=(board(),))).parked_measured, "of two boards"


def test_before_anything_was_measured_a_board_counts_as_its_limit_and_says_so():
    found = machine.machine(job_state(), TWO)
    assert found.full_w == 1200.0 and not found.full_measured
    assert found.parked_w == 2 * problem.DEFAULT_PARKED_W and not found.parked_measured


def test_a_small_board_is_not_taken_to_draw_more_parked_than_it_could():
    found = machine.machine(job_state(), inputs(boards=(board(limit_found_w=75.0, limit_w=75.0),)))
    assert found.parked_w == 25.0 and found.idle_w == 11.25


def test_until_it_was_seen_idle_a_board_idles_as_its_model_does():
    known = inputs(boards=(board(name="NVIDIA B200", limit_found_w=1000.0),))
    assert (
        machine.idle_w(job_state(), known) == {"GPU-a": 142.0} and machine.machine(job_state(), known).parked_w == 142.0
    )
    assert machine.idle_w(job_state(measured=watts(idle_w={"GPU-a": 120.0})), known) == {"GPU-a": 120.0}


def test_a_board_not_yet_measured_counts_as_the_mean_of_those_that_were():
    known = job_state(measured=watts(full_w={"GPU-a": 640.0}, parked_w={"GPU-a": 110.0, "GPU-b": 90.0}))
    found = machine.machine(known, TWO)
    assert found.full_w == 1280.0 and not found.full_measured
    assert found.parked_w == 200.0 and found.parked_measured


def test_watts_of_boards_that_are_not_the_jobs_any_more_do_not_count():
    known = job_state(measured=watts(full_w={"GPU-a": 600.0, "GPU-b": 500.0, "GPU-old": 50.0}))
    assert machine.machine(known, TWO).full_w == 1100.0


def test_no_board_draws_more_parked_than_flat_out():
    known = job_state(measured=watts(full_w={"GPU-a": 80.0}, parked_w={"GPU-a": 90.0}, idle_w={"GPU-a": 95.0}))
    found = machine.machine(known, inputs(boards=(board(),)))
    assert found.parked_w == 80.0 and found.idle_w <= found.parked_w


def test_without_a_gpu_the_cpu_is_the_machine():
    found = machine.machine(job_state(host_w=10.0), inputs())
    assert (found.full_w, found.parked_w, found.host_w) == (65.0, 26.0, 10.0)
    known = job_state(measured=Measured(rest_w=Mean(120.0, 5), rest_parked_w=Mean(30.0, 5)))
    found = machine.machine(known, inputs())
    assert (found.full_w, found.parked_w, found.host_w) == (120.0, 30.0, 0.0)


def test_a_light_job_without_a_gpu_costs_its_watts_above_the_idle_ones():
    idles = Readings(mono_s=1000.0, host=HostReading(cpu_w=1.04, dram_w=5.0, idle_w=6.0))
    known = job_state(measured=Measured(rest_w=Mean(6.04, 9)), boundary="always-on")
    assert machine.full_wall_w(known, inputs(readings=idles)) == pytest.approx(0.04)
    crowded = Readings(mono_s=1000.0, host=HostReading(cpu_w=1.5, dram_w=5.0, idle_w=6.4))
    same_moments = replace(known, measured=replace(known.measured, rest_idle_w=Mean(6.0, 9)))
    assert machine.full_wall_w(same_moments, inputs(readings=crowded)) == pytest.approx(0.04), (
        "not nothing, as it once read"
    )


CURVE = Curve(
    gpu="H100", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=10.0,
    levels=(
        Point(kind="cap", cap_w=300.0, power_w=290.0, power_se=1.0, speed=0.8, speed_se=0.01),
        Point(kind="full", cap_w=None, power_w=600.0, power_se=1.0, speed=1.0, speed_se=0.01),
    ),
)  # fmt: skip


def test_calibrated_caps_are_planned_with_only_while_every_board_takes_limits():
    known = job_state(curve=CURVE, caps_hold=True)
    assert machine.caps(known) == (problem.PowerCap(300.0, 290.0, 0.8),)
    assert machine.caps(replace(known, caps_hold=False)) == ()
    assert machine.caps(replace(known, curve=None)) == ()


@pytest.mark.parametrize(
    ("fields", "can"),
    [({}, True), ({"caps_hold": True}, False), ({"clock": REPLAY}, False), ({"progress": Progress()}, False)],
)
def test_a_duty_cycle_is_for_training_loops_where_no_cap_can_be_set(fields, can):
    known = job_state(**{"progress": Progress(step=3), **fields})
    assert machine.machine(known, inputs()).can_duty is can


def test_what_is_given_of_a_machine_counts_for_each_machine_of_the_job():
    seen = inputs(boards=(board(),))
    nodes = NodeWatts("n1", 700.0), NodeWatts("n2", 700.0)
    several = replace(seen, readings=structs.replace(seen.readings, nodes=nodes))
    given = job_state(host_w=100.0, boundary="held")
    assert [machine.host(given, one).watts for one in (seen, several)] == [100.0, 200.0]


def test_latencies_are_the_measured_ones_and_bounded():
    known = job_state(measured=Measured(pause_s=Mean(3.0, 2), resume_s=Mean(8.0, 2), reload_s=Mean(0.2, 2)))
    found = machine.machine(known, inputs())
    assert (found.pause_s, found.resume_s, found.reload_s) == (3.0, 8.0, 1.0)
    slow = job_state(measured=Measured(pause_s=Mean(500.0, 2), resume_s=Mean(5000.0, 2)))
    found = machine.machine(slow, inputs())
    assert (found.pause_s, found.resume_s) == (120.0, 600.0)


def test_in_a_replay_measured_seconds_are_many_of_the_jobs_and_defaults_are_not():
    plain = machine.machine(job_state(clock=REPLAY), inputs())
    assert (plain.pause_s, plain.resume_s) == (problem.DEFAULT_PAUSE_S, problem.DEFAULT_RESUME_S)
    known = job_state(clock=REPLAY, measured=Measured(pause_s=Mean(0.5, 2)))
    assert machine.machine(known, inputs()).pause_s == 30.0


def test_an_unload_is_possible_once_one_has_held_and_while_unloaded():
    unloaded = job_state(decision=decided("unloaded", "unload", "plan", ""))
    assert not machine.machine(job_state(), inputs(ranks=(rank(),))).can_unload
    saves = inputs(ranks=(rank(can_unload=True),))
    assert not machine.machine(job_state(), saves).can_unload, "nobody has seen it come back"
    assert not machine.machine(job_state(unloading=Unloading(resumes=False)), saves).can_unload
    assert machine.machine(job_state(unloading=Unloading(resumes=True)), saves).can_unload
    assert machine.machine(unloaded, inputs()).can_unload


def test_what_a_rehearsal_has_cost_is_what_the_plan_counts_with():
    known = Measured(unload_s=Mean(10.0, 1), unload_j=Mean(2000.0, 1), reload_s=Mean(40.0, 1), reload_j=Mean(4000.0, 1))
    told = machine.machine(job_state(measured=known), inputs())
    assert (told.unload_s, told.unload_w, told.reload_s, told.reload_w) == (10.0, 200.0, 40.0, 100.0)
    levels = problem.levels_of(replace(told, can_unload=True), started=True)
    switch = problem.switching(levels, told, 900.0)
    unload, full = 0, len(levels) - 1
    assert (switch.time_s[full][unload], switch.power_w[full][unload]) == (10.0, 200.0)
    assert (switch.time_s[unload][full], switch.power_w[unload][full]) == (40.0, 100.0)


def test_watts_at_the_wall_are_claimed_only_once_every_board_was_measured():
    part = job_state(measured=watts(full_w={"GPU-a": 600.0}), pue=1.5, host_w=100.0)
    assert machine.full_wall_w(part, TWO) is None
    whole = replace(part, measured=watts(full_w={"GPU-a": 600.0, "GPU-b": 500.0}))
    assert machine.full_wall_w(whole, TWO) == 1.5 * 1200.0
    assert machine.full_wall_w(job_state(), inputs()) is None, "no board, and the CPU was not measured"
    assert machine.full_wall_w(job_state(measured=Measured(rest_w=Mean(60.0, 3))), inputs()) == 60.0


METERED = {"counter": 0.9, "model": 0.1}


def test_a_band_is_that_of_its_parts_and_a_counter_that_is_off_widens_it() -> None:
    assert band(10.0, {"counter": 1.0}) == (9.5, 10.5)
    lo, hi = band(10.0, METERED)
    assert hi - 10.0 == pytest.approx(10.0 - lo) == pytest.approx(10.0 * math.hypot(0.9 * 0.05, 0.1 * 0.5))
    assert band(10.0, {"counter": 1.0}, counter=0.2) == (8.0, 12.0)
    assert band(10.0, {"late": 1.0})[1] > band(10.0, {"integrated": 1.0})[1], "seconds that nobody covered"
    assert band(10.0, {"counter": 1.0}, idle=0.12) == (8.7, 11.3)
    assert band(0.0, {}) == (0.0, 0.0)


@pytest.mark.parametrize(("boundary", "kwh"), [("held", 2.0), ("given-back", 2.0), ("always-on", 3.0 + 0.28)])
def test_beside_any_boundary_stands_the_whole_machine_with_its_band(boundary: str, kwh: float) -> None:
    totals = Totals(wall_kwh=2.0, gco2_g=600.0, metered_kwh=3.0, shares=METERED, here_s=3600.0)
    state = job_state(totals=totals, boundary=boundary, host_w=280.0)
    whole = whole_machine(state, inputs(boards=(board(),)))
    assert whole.energy_kwh == pytest.approx(kwh) and whole.gco2_g == pytest.approx(300.0 * kwh)
    assert whole.lo_kwh < kwh < whole.hi_kwh
    used = so_far(state)
    assert used.energy_wall_kwh == 2.0 and (used.energy_wall_lo_kwh or 0) < 2.0 < (used.energy_wall_hi_kwh or 0)
