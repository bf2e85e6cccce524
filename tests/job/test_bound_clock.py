"""A replay's clock that goes with the steps of its training, so that a busy machine slows the day down."""

from dataclasses import replace
from pathlib import Path

from msgspec import structs
from states import decided, spec

from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.progress import begun
from carbontui.job.supervisor.shell.ticks import BoundClock
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.clock import Clock, Standstills

ORIGIN_S, DAY_S = 1_800_000_000.0, 1_600_000_000.0
SPEED, RATE = 2000.0, 0.008
"""Seconds of the job per second; steps per second of the job: 16 a second."""


def job(file: Path) -> JobState:
    options = spec(ref_rate=RATE, steps=288, created_s=ORIGIN_S)
    clock = Clock(SPEED, ORIGIN_S, DAY_S, Standstills(file, ORIGIN_S))
    return JobState(options, clock, budgets.parse("25h", DAY_S), begun(options), decision=decided())


def stepped(state: JobState, step: int) -> JobState:
    return replace(state, progress=structs.replace(state.progress, step=step))


def test_the_clock_waits_for_the_first_step_and_stops_after_the_last(tmp_path: Path) -> None:
    state, bound = job(tmp_path / "clock.json"), BoundClock()
    bound.observe(state, None, ORIGIN_S + 20)
    assert state.clock.at_wall(ORIGIN_S + 20) == DAY_S, "PyTorch was still loading"
    bound.observe(stepped(state, 1), 0.0, ORIGIN_S + 21)
    assert state.clock.at_wall(ORIGIN_S + 22) == DAY_S + SPEED
    bound.observe(stepped(state, 288), 0.0, ORIGIN_S + 22)
    assert state.clock.at_wall(ORIGIN_S + 60) == DAY_S + SPEED and state.clock.speed_at(ORIGIN_S + 60) == 0.0


def test_a_training_that_lags_holds_the_clock_until_it_has_caught_up(tmp_path: Path) -> None:
    state, bound = job(tmp_path / "clock.json"), BoundClock()
    bound.observe(stepped(state, 1), 0.0, ORIGIN_S)
    bound.observe(stepped(state, 17), 0.0, ORIGIN_S + 1)
    assert state.clock.speed_at(ORIGIN_S + 1) == SPEED
    bound.observe(stepped(state, 20), 0.0, ORIGIN_S + 2)  # 3 steps of 16
    assert state.clock.speed_at(ORIGIN_S + 2) == 0.0
    bound.observe(stepped(state, 33), 0.0, ORIGIN_S + 5)
    assert state.clock.speed_at(ORIGIN_S + 5) == SPEED
    assert state.clock.at_wall(ORIGIN_S + 6) == DAY_S + 3 * SPEED


def test_a_pause_lets_the_hours_pass(tmp_path: Path) -> None:
    state, bound = job(tmp_path / "clock.json"), BoundClock()
    bound.observe(stepped(state, 1), 0.0, ORIGIN_S)
    held = replace(stepped(state, 1), decision=decided("paused", "pause"))
    for second in range(1, 10):
        bound.observe(held, 0.0, ORIGIN_S + second)
    assert state.clock.at_wall(ORIGIN_S + 10) == DAY_S + 10 * SPEED


def test_a_successor_goes_on_from_the_same_hour(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    state = job(file)
    BoundClock().observe(stepped(state, 1), 0.0, ORIGIN_S + 7)
    again = Clock(SPEED, ORIGIN_S, DAY_S, Standstills(file, ORIGIN_S))
    assert again.at_wall(ORIGIN_S + 9) == state.clock.at_wall(ORIGIN_S + 9) == DAY_S + 2 * SPEED
    assert again.to_wall(DAY_S + 2 * SPEED) == ORIGIN_S + 9
