"""Joules into rows and grams: whatever is booked, an independent reader of the rows finds the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbontui import units
from carbontui.account import accounts
from carbontui.job.ledger import Ledger

pieces = st.lists(
    st.tuples(st.floats(0.1, 2000.0), st.floats(0.0, 1e7), st.sampled_from(["running", "paused"])),
    min_size=1,
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(pieces, st.lists(st.floats(10.0, 900.0), min_size=1, max_size=8))
def test_rows_bins_and_total_agree(spans, grid):
    ledger = Ledger(pue=1.2)
    at, wall = 1_000_000.0, 0.0
    for seconds, joules, state in spans:
        ledger.add("GPU-1", at, at + seconds, joules, "counter", state, wall, gpu=True)
        at, wall = at + seconds, wall + 1.0
    total = sum(joules for _, joules, _ in spans)
    rows = ledger.drain(everything=True)
    assert sum(row[3] for row in rows) == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert ledger.gpu_kwh == pytest.approx(units.joules_to_kwh(total), abs=1e-15)

    def lookup(start):
        return grid[int(start // accounts.BIN_S) % len(grid)]

    by_rows = sum(units.joules_to_kwh(j) * lookup(t0 // accounts.BIN_S * accounts.BIN_S) for t0, _, _, j, _, _ in rows)
    assert accounts.weigh(ledger.wall_bins(), lookup).value == pytest.approx(1.2 * by_rows, rel=1e-9, abs=1e-12)


def test_a_row_ends_where_the_state_changes_and_where_a_bin_ends():
    ledger = Ledger()
    ledger.add("g", 0.0, 100.0, 10.0, "counter", "running", 0.0, gpu=True)
    ledger.add("g", 100.0, 200.0, 10.0, "counter", "running", 1.0, gpu=True)
    ledger.add("g", 200.0, 250.0, 1.0, "counter", "paused", 2.0, gpu=True)
    ledger.add("g", 250.0, 350.0, 2.0, "counter", "paused", 3.0, gpu=True)
    rows = ledger.drain(everything=True)
    assert [(r[0], r[1], r[5]) for r in rows] == [(0, 200, "running"), (200, 300, "paused"), (300, 350, "paused")]
    assert rows[1][3] == pytest.approx(2.0)


def test_an_idle_gpu_before_the_start_counts_only_when_asked():
    for count_idle, kwh in ((False, 0.0), (True, 1.0)):
        ledger = Ledger(count_idle=count_idle)
        ledger.add("g", 0.0, 60.0, 3.6e6, "counter", "waiting", 0.0, gpu=True)
        assert ledger.gpu_kwh == pytest.approx(kwh)
        assert len(ledger.drain(everything=True)) == 1


def test_unknown_intensity_is_counted_at_the_known_mean_and_marked():
    total = accounts.weigh([(0.0, 3.6e6), (300.0, 3.6e6)], lambda start: 200.0 if start == 0 else None)
    assert total.value == pytest.approx(400.0) and total.unknown_j == 3.6e6


def test_run_now_follows_the_realised_grid():
    total = accounts.run_now(0.0, 600.0, 1000.0, lambda start: 100.0 if start < 300 else 300.0)
    assert total.value == pytest.approx(units.joules_to_kwh(300_000) * 100 + units.joules_to_kwh(300_000) * 300)


def test_a_successor_goes_on_with_the_same_books():
    ledger = Ledger()
    ledger.add("g", 0.0, 700.0, 5.0, "counter", "running", 0.0, gpu=True)
    ledger.add("g", 700.0, 800.0, 2.0, "counter", "paused", 1.0, gpu=True)
    written = [(t0, t1, joules, state) for t0, t1, _, joules, _, state in ledger.drain()]
    other = Ledger()
    other.restore(ledger.to_dict(), written, 2.0)
    assert other.gpu_j == ledger.gpu_j and dict(other.bins) == pytest.approx(dict(ledger.bins))
    assert [row[2:] for row in other.drain(everything=True)] == [row[2:] for row in ledger.drain(everything=True)]
