import os
import time

import pytest

from carbontui import units
from carbontui.job import budget


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    os.environ.pop("TZ", None)
    time.tzset()


NOW = units.from_iso("2026-11-18T10:00:00Z")  # a Wednesday


def test_a_multiple_needs_the_work_a_duration_does_not():
    assert budget.parse("1.8x", NOW).deadline_s(100.0, 1000.0) == 1900.0
    assert budget.parse("1.8x", NOW).deadline_s(100.0, None) is None
    assert budget.parse("18h", NOW).deadline_s(100.0, None) == 100.0 + 18 * 3600


def test_a_clock_time_is_the_next_one_to_come(berlin):
    assert units.iso(budget.parse("fri 09:00", NOW).value) == "2026-11-20T08:00:00.000Z"
    assert units.iso(budget.parse("wed 09:00", NOW).value) == "2026-11-25T08:00:00.000Z"
    assert units.iso(budget.parse("18:00", NOW).value) == "2026-11-18T17:00:00.000Z"
    assert units.iso(budget.parse("09:00", NOW).value) == "2026-11-19T08:00:00.000Z"


def test_a_clock_time_keeps_its_hour_across_the_change_to_summer_time(berlin):
    saturday = units.from_iso("2026-03-28T12:00:00Z")
    assert units.iso(budget.parse("sun 09:00", saturday).value) == "2026-03-29T07:00:00.000Z"


def test_a_clock_time_that_the_change_to_summer_time_leaves_out_is_still_that_day(berlin):
    almost = units.from_iso("2026-03-29T00:45:00Z")
    assert units.iso(budget.parse("02:30", almost).value) == "2026-03-29T01:30:00.000Z"


@pytest.mark.parametrize("text", ["", "0.5x", "x", "soon", "25:00", "0h", "9999x", "nan"])
def test_what_is_no_budget_is_refused_by_name(text):
    with pytest.raises(ValueError, match=r"budget|time of day|duration"):
        budget.parse(text, NOW)


def test_until(berlin):
    assert budget.parse_until("next", NOW) == "next"
    assert units.iso(budget.parse_until("18:00", NOW)) == "2026-11-18T17:00:00.000Z"
    with pytest.raises(ValueError, match="not understood"):
        budget.parse_until("later", NOW)
