"""The demo's board takes limits: what it draws and how fast it is under one is that of public measurements."""

import itertools
from dataclasses import replace

import pytest
from drawn import drawn_plan
from msgspec import structs
from states import CAP, NOW_S, board, inputs, job_state, plan_of, rank

from carbontui.job.supervisor.core.effects import desired_of
from carbontui.job.supervisor.core.planning import machine
from carbontui.job.supervisor.core.rules import calibration, capabilities
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.terms.clock import Clock
from carbontui.power.backends.simulated import SimulatedSpec, fresh, target_w
from carbontui.power.curves import public as public_curves

POINTS = public_curves.simulated(680.0)
SPEC = SimulatedSpec(points=POINTS)


def test_a_simulated_board_follows_the_public_curve():
    for limit_w, watts, speed in POINTS:
        assert (SPEC.speed(limit_w), SPEC.busy_w(limit_w)) == pytest.approx((speed, watts))
    assert SPEC.speed(700.0) == 1.0 and SPEC.busy_w(700.0) == 680.0
    limits = range(200, 701, 10)
    for low, high in itertools.pairwise(limits):
        assert SPEC.speed(low) <= SPEC.speed(high) and SPEC.busy_w(low) <= SPEC.busy_w(high)
    capped = SimulatedSpec(points=POINTS)
    state = fresh(capped)
    assert target_w(capped, type(state)(limit_w=490.0, power_w=0, temp_c=40, activity=1.0)) <= 490.0


def test_its_caps_are_planned_and_slow_the_training_by_as_much():
    seen = inputs(boards=(board(),), ranks=(rank(),))
    state = job_state(simulated=SimulatedSpec(points=POINTS), caps_hold=True)
    curve = calibration.simulated_curve(state, seen)
    assert curve.simulated and [point.kind for point in curve.levels] == ["cap", "cap", "cap", "full"]
    state = replace(state, curve=curve)
    caps = machine.caps(state)
    assert [cap.cap_w for cap in caps] == [limit for limit, _, _ in POINTS[:-1]]
    capped = replace(state, asked=Desired(limit_w=POINTS[1][0]))
    assert desired_of(capped).duty == pytest.approx(POINTS[1][2])
    assert desired_of(replace(state, asked=Desired(limit_w=690.0))).duty is None
    assert "simulated, from public measurements" in drawn_plan(replace(state, plan=plan_of(CAP)), inputs()).curve_note


def test_flat_out_is_known_though_the_plan_caps_from_the_first_step_on():
    seen = inputs(boards=(board(),), ranks=(rank(),))
    state = job_state(simulated=SimulatedSpec(points=POINTS), caps_hold=True)
    assert machine.full_wall_w(state, seen) is None
    known = replace(state, curve=calibration.simulated_curve(state, seen))
    assert machine.full_wall_w(known, seen) == pytest.approx(680.0)
    assert machine.machine(known, seen).full_measured
    public = structs.replace(known.curve, simulated=False)
    assert machine.full_wall_w(replace(state, curve=public), seen) is None


def test_a_replay_on_a_real_board_says_why_it_sets_no_limit():
    clock = Clock(2000.0, 1.0, NOW_S)
    state = job_state(clock=clock, cap=False)
    assert capabilities.why_no_cap(state, inputs(boards=(board(),)), 300.0).code == "cap_in_replay"
    assert capabilities.why_no_cap(job_state(cap=False), inputs(boards=(board(),)), 300.0).code == "caps_off"
