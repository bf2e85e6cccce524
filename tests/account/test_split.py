"""What each means gave: parts that add up, and that say what a person would say of plain runs."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui.account.accounts import BIN_S
from carbontui.account.elapsed import EVENT, EVENT_HELD
from carbontui.account.estimate import error_of_mean
from carbontui.account.expected_end import BAND_SIGMAS, ERROR_MEMORY_S
from carbontui.account.split import EnergyBin, StateSpan, Uncertainty, intensity_of, split_avoided, work_of

HOUR = 3600.0
KWH = 3.6e6


def hourly(*values):
    return intensity_of({300.0 * k: float(values[k // 12]) for k in range(12 * len(values))}, None)


def cells(*hours):
    """(state, watts) of each hour."""
    return [
        EnergyBin(HOUR * h + 300.0 * k, state, watts * 300.0)
        for h, (state, watts) in enumerate(hours)
        for k in range(12)
    ]


def spans(*hours):
    return [StateSpan(HOUR * h, HOUR * (h + 1), state) for h, (state, _) in enumerate(hours)]


def of(hours, grid, done_s, parked_w=100.0, steps=()):
    known = {"start_s": 0.0, "done_s": done_s, "full_w": 1000.0, "parked_w": parked_w}
    return split_avoided(cells(*hours), spans(*hours), list(steps), hourly(*grid), **known)


def test_waiting_for_a_clean_hour_is_shifting_less_what_the_pause_drew():
    found = of([("paused", 100), ("running", 1000)], [500, 200], HOUR)
    assert (found.run_now_g, found.emitted_g) == (pytest.approx(500), pytest.approx(250))
    assert found.moved_g == pytest.approx(300) and found.parked_g == pytest.approx(-50)
    assert found.shifting_g == pytest.approx(found.avoided_g) and found.capped_g == found.unloaded_g == 0
    assert found.rest_g == pytest.approx(0, abs=1e-9)


def test_unloading_gives_what_staying_parked_would_have_drawn():
    found = of([("unloaded", 20), ("running", 1000)], [500, 200], HOUR)
    assert found.parked_g == pytest.approx(-50) and found.unloaded_g == pytest.approx(40)
    unreadable = of([("unloaded", 20), ("running", 1000)], [500, 200], HOUR, parked_w=None)
    assert unreadable.parked_g == pytest.approx(-10) and unreadable.unloaded_g == 0


def test_a_cap_gives_the_power_it_saved_on_the_work_it_did():
    hours = [("throttled", 500), ("throttled", 500)]
    found = of(hours, [300, 300], 1.6 * HOUR)
    assert found.capped_g == pytest.approx(1.6 * 300 - 2 * 150) == pytest.approx(found.avoided_g)


def test_work_lies_where_steps_were_made():
    hours = [("running", 1000), ("running", 1000)]
    told = [(HOUR, 90.0), (2 * HOUR - 1, 100.0)]
    done = work_of(spans(*hours), told, 2 * HOUR)
    assert sum(w.work_s for w in done if w.bin_s < HOUR) == pytest.approx(0.9 * 2 * HOUR, rel=1e-3)
    assert sum(w.work_s for w in done) == pytest.approx(2 * HOUR)
    assert work_of([StateSpan(0, 10, "paused")], told, 5.0) == [] and work_of(spans(*hours), [], 0.0) == []


phases = st.lists(
    st.tuples(st.sampled_from(["running", "throttled", "paused", "unloaded", "starting", "failed"]), st.floats(0, 3e3)),
    min_size=1,
    max_size=8,
)


@given(phases, st.lists(st.floats(0, 900), min_size=8, max_size=8), st.floats(0, 3e4), st.none() | st.floats(0, 500))
def test_the_parts_add_up_whatever_happened(hours, grid, done_s, parked_w):
    found = of(hours, [*grid, *grid], done_s, parked_w)
    parts = found.moved_g + found.parked_g + found.unloaded_g + found.capped_g + found.rest_g
    assert (
        parts == pytest.approx(found.avoided_g, abs=1e-6) == pytest.approx(found.run_now_g - found.emitted_g, abs=1e-6)
    )


def test_nothing_is_told_of_a_grid_nobody_knows():
    with pytest.raises(ValueError, match="no intensity"):
        intensity_of({}, None)
    assert intensity_of({}, 250.0)(17.0) == 250.0 and intensity_of({0.0: 100.0}, None)(900.0) == 100.0


KNOWN = Uncertainty(lambda at: 0.0, 0.0, 0.0)


@given(phases, st.lists(st.floats(0, 900), min_size=8, max_size=8), st.floats(0, 3e4), st.floats(0, 0.2))
def test_what_is_exactly_known_has_no_band_and_doubt_makes_one(hours, grid, done_s, error):
    told = {"start_s": 0.0, "done_s": done_s, "full_w": 1000.0, "parked_w": 100.0}
    known = split_avoided(cells(*hours), spans(*hours), [], hourly(*grid, *grid), **told, doubt=KNOWN)
    assert max(known.halves) == pytest.approx(0, abs=1e-6)
    unsure = Uncertainty(lambda at: 10.0, error, 0.0)
    found = split_avoided(cells(*hours), spans(*hours), [], hourly(*grid, *grid), **told, doubt=unsure)
    assert min(found.halves) >= 0 and replace(found, halves=None) == replace(known, halves=None)
    assert found.halves.avoided_g >= BAND_SIGMAS * error * found.run_now_g - 1e-6
    worked = [*hours, ("running", 900)]
    alike = split_avoided(
        cells(*worked), spans(*worked), [], lambda at: 300.0, **told, doubt=Uncertainty(lambda at: 0.0, 0.1, 0.1)
    )
    assert alike.halves.moved_g == pytest.approx(0, abs=1e-6), "on a flat grid nothing depends on when work was done"


def test_the_bands_hold_the_truth_in_four_of_five_runs():
    """A night of a shifted, capped job. What was booked: the grid with errors that fade within hours, watts and speed
    at full speed with the error of their measurement."""
    hours = [("paused", 100), ("unloaded", 20), *[("throttled", 600)] * 3, *[("running", 1000)] * 3]
    real, done_s, error, spread = [500, 480, 300, 220, 200, 210, 300, 420], 5.6 * HOUR, 0.04, 30.0
    truth = of(hours, real, done_s)
    dice, inside = random.Random(3), Counter()
    fade = math.exp(-BIN_S / ERROR_MEMORY_S)
    runs = 400
    for _ in range(runs):
        wrong, booked = dice.gauss(0, spread), {}
        for k in range(12 * len(real)):
            booked[BIN_S * k] = real[k // 12] + wrong
            wrong = fade * wrong + math.sqrt(1 - fade * fade) * dice.gauss(0, spread)
        told = {"done_s": done_s * (1 + dice.gauss(0, error)), "full_w": 1000.0 * (1 + dice.gauss(0, error / 2))}
        told |= {"start_s": 0.0, "parked_w": 100.0}
        doubt = Uncertainty(lambda at: spread, error / 2, error)
        found = split_avoided(cells(*hours), spans(*hours), [], intensity_of(booked, None), **told, doubt=doubt)
        for part, half in found.halves._asdict().items():
            if part == "event_g":
                assert half == 0, "no grid event asked for anything"
                continue
            inside[part] += abs(getattr(found, part) - getattr(truth, part)) <= half
    assert all(0.74 <= count / runs <= 0.86 for count in inside.values()), inside


def test_the_mean_of_what_varies_is_known_as_well_as_batches_of_it_agree():
    dice = random.Random(8)
    held = 0
    for _ in range(400):
        now, series = dice.gauss(0, 1), []
        for _ in range(300):
            series.append(100 + 5 * now)
            now = 0.8 * now + 0.6 * dice.gauss(0, 1)
        found = error_of_mean(series)
        mean = sum(series) / len(series)
        held += abs(mean - 100) <= BAND_SIGMAS * found * mean
    assert 0.74 <= held / 400 <= 0.86
    assert error_of_mean([1.0, 1.1]) is None


def test_a_grid_event_is_a_lever_beside_caps_and_pauses():
    hours = [("running", 1000), (EVENT, 600), (EVENT_HELD, 100), ("throttled", 600)]
    found = of(hours, [300] * 4, 2.4 * HOUR)
    parts = found.moved_g + found.parked_g + found.unloaded_g + found.capped_g + found.event_g + found.rest_g
    assert parts == pytest.approx(found.avoided_g)
    assert found.event_g == pytest.approx(0.8 * 300 - 0.6 * 300 - 0.1 * 300) and found.parked_g == 0
    assert found.capped_g == pytest.approx(0.8 * 300 - 0.6 * 300)
