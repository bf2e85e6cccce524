"""Cleaning: every repair has a note; what cannot be repaired stays a gap."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from carbontui.grid.clean import clean
from carbontui.grid.http import BadAnswer, NoData

NOW = 1896998400.0


def hours(*values: float | None, kind: str = "actual", start_s: float | None = None) -> list[tuple]:
    begin = NOW - len(values) * 3600 if start_s is None else start_s
    return [(begin + k * 3600, 3600.0, value, kind) for k, value in enumerate(values)]


def tidy(raw: list[tuple], **how: object):
    return clean(raw, **{"signal": "average_direct", "now_s": NOW, **how})[:2]  # type: ignore[arg-type]


def test_zero_grams_is_a_fault_not_a_clean_grid() -> None:
    rows, notes = tidy(hours(200, 0, 220, 230))
    assert [(row.value, row.kind, row.suspect) for row in rows][1] == (210, "estimated", True)
    assert "0 g" in notes[0] and "interpolated" in notes[1]
    assert tidy(hours(200, 0.0, 220), signal="marginal")[0][1].value == 0
    with pytest.raises(NoData):
        tidy(hours(0, 0, 0))


def test_a_marginal_rate_below_zero_is_left_out_and_one_of_zero_is_not() -> None:
    """A problem file takes no negative intensity: one such value would keep the job without a plan."""
    rows, notes = tidy(hours(300, 0, -50, 310), signal="marginal")
    assert min(row.value for row in rows) == 0 and "below 0 g" in notes[0]


def test_a_short_gap_is_bridged_and_marked_a_long_one_stays_open() -> None:
    short, notes = tidy(hours(100, None, None, 160))
    assert [row.value for row in short] == [100, 120, 140, 160] and notes == ("2 missing values interpolated",)
    assert [row.kind for row in short] == ["actual", "estimated", "estimated", "actual"]
    assert [row.value for row in tidy(hours(100, None, None, None, 160))[0]] == [100, 160]
    assert len(tidy(hours(100, None, 160, kind="forecast", start_s=NOW))[0]) == 2


def test_order_and_duplicates() -> None:
    rows, notes = tidy([*hours(100, 110, 120)[::-1], *hours(130)])
    assert [row.value for row in rows] == [100, 110, 130] and "1 duplicate" in notes[0]


def test_another_unit_is_refused_as_a_whole() -> None:
    with pytest.raises(BadAnswer, match="another unit"):
        tidy(hours(0.3, 0.31, 0.29), usual_g=300)
    with pytest.raises(BadAnswer, match="another unit"):
        tidy(hours(300_000, 310_000), usual_g=300)
    # a clean grid may be far below its usual level without being in another unit
    assert tidy(hours(30, 35, 40), usual_g=150)[0]


def test_values_of_other_years_or_that_hold_for_weeks_make_no_endless_series() -> None:
    hour = [(NOW - 3600.0 * k, 3600.0, 300.0, "actual") for k in range(1, 9)]
    odd = [(31_536_000.0, 900.0, 300.0, "actual"), (32_187_000_000.0, 900.0, 300.0, "forecast")]
    rows, notes = tidy([*hour, *odd, (NOW + 7200.0, 1e9, 300.0, "forecast")])
    assert [row.start_s for row in rows] == sorted(row[0] for row in hour)
    assert any("3 values from other years" in note for note in notes)


def test_stuck_values_are_kept_and_marked() -> None:
    rows, notes = tidy(hours(*[250.0] * 8, 260.0))
    assert [row.suspect for row in rows] == [True] * 8 + [False] and "unchanged for hours" in notes[0]
    assert not any(row.suspect for row in tidy(hours(*[250.0] * 5, 260.0))[0])


def test_a_clock_off_by_an_hour_shows() -> None:
    rows, notes = tidy(hours(100, 110, 120, 130, start_s=NOW - 2 * 3600))
    assert rows[-1].start_s == NOW and "is the clock right?" in notes[0]


def test_days_of_23_and_25_hours_have_no_gap_and_no_double_in_utc() -> None:
    for begin in (1900803600.0, 1919546400.0):  # a day before the European changes of March and October 2030
        rows, notes = tidy([(begin + 900 * k, 900.0, 200 + k % 7, "forecast") for k in range(3 * 96)], now_s=begin)
        assert len(rows) == 288 and notes == () and all(b.start_s - a.start_s == 900 for a, b in pairwise(rows))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-200, 50).map(lambda k: NOW + 900.0 * k),
            st.sampled_from([900.0, 3600.0]),
            st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(1, 900)),
            st.sampled_from(["actual", "estimated", "forecast"]),
        ),
        max_size=80,
    ),
    st.sampled_from(["average_direct", "marginal", "price"]),
)
def test_whatever_comes_in_a_series_comes_out(raw: list[tuple], signal: str) -> None:
    try:
        rows, _ = tidy(raw, signal=signal)
    except NoData:
        reject()
    assert all(math.isfinite(row.value) for row in rows)
    assert all(a.start_s + a.dur_s <= b.start_s + 1e-6 for a, b in pairwise(rows))
    if signal == "average_direct":
        assert all(row.value > 0 for row in rows)
