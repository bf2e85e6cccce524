"""What each means gave: parts that add up, and that say what a person would say of plain runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui.account.split import EnergyBin, StateSpan, intensity_of, split_avoided, work_of

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


def test_waiting_for_a_clean_hour_is_shifting_and_what_the_pause_drew_stands_against_it():
    found = of([("paused", 100), ("running", 1000)], [500, 200], HOUR)
    assert (found.run_now_g, found.emitted_g) == (pytest.approx(500), pytest.approx(250))
    assert found.moved_g == pytest.approx(300) and found.parked_g == pytest.approx(-50)
    assert found.shifting_g == pytest.approx(found.avoided_g) and found.capped_g == found.unloaded_g == 0
    assert found.rest_g == pytest.approx(0, abs=1e-9)


def test_unloading_gives_what_staying_parked_would_have_drawn():
    found = of([("unloaded", 20), ("running", 1000)], [500, 200], HOUR)
    assert found.parked_g == pytest.approx(-50) and found.unloaded_g == pytest.approx(40)
    blind = of([("unloaded", 20), ("running", 1000)], [500, 200], HOUR, parked_w=None)
    assert blind.parked_g == pytest.approx(-10) and blind.unloaded_g == 0


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
