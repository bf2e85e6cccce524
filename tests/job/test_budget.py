import os
import time

import pytest

from carbontui import units
from carbontui.job.terms import budget
from carbontui.text import figures


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
    assert budget.parse("1.8 X", NOW).value == budget.parse("1.8×", NOW).value == 1.8
    assert budget.parse("1.8x", NOW).deadline_s(100.0, None) is None
    assert budget.parse("18h", NOW).deadline_s(100.0, None) == 100.0 + 18 * 3600


def test_a_clock_time_is_the_next_one_to_come(berlin):
    assert units.iso(budget.parse("fri 09:00", NOW).value) == "2026-11-20T08:00:00.000Z"
    assert units.iso(budget.parse("wed 09:00", NOW).value) == "2026-11-25T08:00:00.000Z"
    assert units.iso(budget.parse("18:00", NOW).value) == "2026-11-18T17:00:00.000Z"
    assert units.iso(budget.parse("09:00", NOW).value) == "2026-11-19T08:00:00.000Z"


MOMENTS = {
    "mon 9": "2026-11-23T08:00",
    "monday 9:30": "2026-11-23T08:30",
    "tomorrow 09:00": "2026-11-19T08:00",
    "today 18:00": "2026-11-18T17:00",
    "2026-11-24 09:00": "2026-11-24T08:00",
    "2026-11-24T09:00": "2026-11-24T08:00",
    "2026-11-24T09:00Z": "2026-11-24T09:00",
    "2026-11-24 09:00+05:00": "2026-11-24T04:00",
}


@pytest.mark.parametrize("text", MOMENTS)
def test_a_deadline_may_be_a_day_and_an_hour_or_a_date_with_or_without_its_zone(berlin, text):
    for said in (text, text.upper()):
        assert units.iso(budget.parse(said, NOW).value) == f"{MOMENTS[text]}:00.000Z"
        assert budget.parse_until(said, NOW) == budget.parse(said, NOW).value


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


REFUSED = [
    ("0001-01-01T00:00:00Z", "over already"),
    ("0001-01-01T00:00:00", "over already|not understood"),
    ("today 08:00", "over already"),
    ("mon", "not understood"),
    ("9", "not understood"),
    ("1970-01-01T00:00:00Z", "over already"),
    ("2027-11-30T00:00:00Z", "366 days"),
    ("2300-01-01T00:00:00Z", "366 days"),
    ("367d", "366d"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_a_deadline_that_only_a_typing_error_can_mean_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        budget.parse(text, NOW)


@pytest.mark.parametrize("value", [1e308, -1e308, float("nan"), float("inf"), NOW + 400 * 86400, 0.0, "soon", None])
@pytest.mark.parametrize("kind", ["deadline", "factor", "duration", "wish"])
def test_a_kept_budget_that_cannot_be_one_is_not_taken_over(kind, value):
    with pytest.raises(ValueError):
        budget.restored({"kind": kind, "value": value, "text": "t"}, NOW - 3600, NOW)


def test_a_kept_deadline_that_has_passed_is_still_the_budget():
    kept = {"kind": "deadline", "value": NOW - 600, "text": "09:50"}
    assert budget.restored(kept, NOW - 3600, NOW).value == NOW - 600


def test_a_stored_budget_that_cannot_be_one_is_the_default_and_named():
    found, why = budget.stored("2300-01-01T00:00:00Z", NOW)
    assert (found.kind, found.value) == ("factor", 1.0) and "2300" in why
    assert budget.stored("18h", NOW)[1] == ""


def test_a_day_more_than_half_a_year_away_is_said_with_its_year(berlin):
    assert figures.clock(NOW + 366 * 86400, NOW) == "19 Nov 2027 11:00"
    assert figures.clock(NOW + 30 * 86400, NOW) == "18 Dec 11:00"


def test_until(berlin):
    assert budget.parse_until("next", NOW) == "next"
    assert units.iso(budget.parse_until("18:00", NOW)) == "2026-11-18T17:00:00.000Z"
    with pytest.raises(ValueError, match="'later' is not a time"):
        budget.parse_until("later", NOW)
    with pytest.raises(ValueError, match="366 days"):
        budget.parse_until("9999-12-31T23:59:59Z", NOW)
