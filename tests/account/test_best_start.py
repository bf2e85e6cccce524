"""The cleanest window for work in one piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui.account.compare import GAIN_LEAST, best_start


def test_the_cleanest_hours_within_the_budget_are_chosen():
    day = [400.0] * 8 + [100.0] * 8 + [400.0] * 16  # quarters of an hour
    found = best_start(day, 0.0, 900.0, now_s=0.0, work_s=7200.0, deadline_s=8 * 3600.0)
    assert (found.begin_s, found.mean_g, found.now_g, found.saved) == (7200.0, 100.0, 400.0, 0.75)
    tight = best_start(day, 0.0, 900.0, now_s=0.0, work_s=7200.0, deadline_s=3 * 3600.0)
    assert (tight.begin_s, tight.mean_g) == (3600.0, 250.0)


def test_a_flat_grid_is_no_reason_to_wait_and_nor_is_one_per_cent():
    found = best_start([300.0, 299.0] + [298.0] * 30, 0.0, 900.0, now_s=10.0, work_s=900.0, deadline_s=20_000.0)
    assert (found.begin_s, found.saved) == (10.0, 0.0)


def test_a_budget_without_slack_starts_now_and_an_unknown_grid_says_so():
    found = best_start([400.0, 100.0], 0.0, 900.0, now_s=0.0, work_s=7200.0, deadline_s=3600.0)
    assert found.begin_s == found.latest_s == 0.0
    assert best_start([None, None], 0.0, 900.0, now_s=0.0, work_s=60.0, deadline_s=3600.0) is None


def test_a_gap_counts_as_what_was_known_before_it():
    found = best_start([200.0, None, 500.0], 0.0, 900.0, now_s=0.0, work_s=1800.0, deadline_s=1800.0)
    assert found.mean_g == 200.0


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1000)), min_size=1, max_size=60).filter(any),
    st.floats(0, 5000),
    st.floats(60, 40_000),
    st.floats(0, 80_000),
)
def test_never_worse_than_now_never_late_where_now_is_not(mean_g, now_s, work_s, slack_s):
    deadline_s = now_s + work_s + slack_s
    found = best_start(mean_g, 0.0, 900.0, now_s=now_s, work_s=work_s, deadline_s=deadline_s)
    assert found.mean_g <= found.now_g + 1e-6
    assert now_s <= found.begin_s <= deadline_s - work_s + 1e-6
    assert found.begin_s == now_s or found.saved >= GAIN_LEAST - 1e-9
    assert found.mean_g == pytest.approx(found.mean_g)
