import time

import pytest

from carbontui import units
from carbontui.text import figures


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
        ("5min", 300),
        ("8hours", 28800),
        ("1 day 2 hrs", 93600),
    ],
)
def test_durations_as_people_write_them(text, seconds):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "h", "4 hours!", "-3h", "nan"])
def test_a_bad_duration_is_refused_by_name(text):
    with pytest.raises(ValueError, match="not a duration"):
        units.parse_duration(text)


def test_times_have_milliseconds_and_z_and_read_back():
    assert units.iso(0.9996) == "1970-01-01T00:00:01.000Z"
    assert units.iso(1_900_000_000.25) == "2030-03-17T17:46:40.250Z"
    assert units.from_iso(units.iso(1_900_000_000.25)) == 1_900_000_000.25


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no zone"):
        units.from_iso("2030-02-11T08:00:00")


@pytest.mark.parametrize(("text", "watts"), [("300W", 300), ("300", 300), (" 250.5w ", 250.5), ("0.25kW", 250)])
def test_watts(text, watts):
    assert units.parse_watts(text) == watts


@pytest.mark.parametrize("text", ["0", "-5W", "300kW", "abc", "1e9"])
def test_bad_watts(text):
    with pytest.raises(ValueError, match="not a power"):
        units.parse_watts(text)


def test_what_people_read():
    assert figures.duration(42) == "42 s"
    assert figures.duration(3 * 3600 + 300) == "3 h 05"
    assert figures.grams(1239) == "1.24 kg"
    assert figures.grams(-0.004) == figures.signed(-0.004, figures.grams) == "< 0.01 g", "no minus before nothing"
    assert figures.kwh(8e-9) == "< 0.01 Wh" and figures.grams(-0.0) == figures.signed(0.0, figures.grams) == "0.00 g"
    assert figures.kwh(0.0351) == "35.1 Wh"
    assert figures.kwh(-0.0) == "0 Wh", "nothing is not less than nothing"
    assert figures.watts(None) == "–"


def test_a_clock_time_is_never_two_days(monkeypatch):
    now = units.from_iso("2030-02-11T16:00:00Z")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        said = [figures.clock(now + hours * 3600, now) for hours in (1, 9, 24 * 5, 24 * 7)]
    time.tzset()
    assert said == ["17:00", "Tue 01:00", "Sat 16:00", "18 Feb 16:00"]


def test_an_intensity_and_a_price_take_their_units():
    assert [units.parse_intensity(text) for text in ("300", "300g", "300 g/kWh", "0.3kg")] == [300.0] * 4
    assert units.parse_price("80 EUR/t") == (80.0, "EUR") and units.parse_price("0.3") == (0.3, None)


@pytest.mark.parametrize("text", ["", "g", "0", "-3g", "6kg", "３００", "300 W"])
def test_what_is_no_intensity_is_refused(text):
    with pytest.raises(ValueError, match="is not an intensity"):
        units.parse_intensity(text)


@pytest.mark.parametrize("text", ["", "EUR", "-1EUR", "3 EU", "３EUR", "1e12", "3EUR/week"])
def test_what_is_no_price_is_refused(text):
    with pytest.raises(ValueError, match="is not a price"):
        units.parse_price(text)


@pytest.mark.parametrize(("text", "count"), [("1e5", 100_000), ("100k", 100_000), ("2.5M", 2_500_000), ("1,000", 1000)])
def test_a_count_is_read_as_people_write_it(text, count):
    assert units.parse_count(text) == count


@pytest.mark.parametrize("text", ["1.5", "1.23e1", "k", "1,00", "１", "1e999", "-1", ""])
def test_what_is_no_whole_number_is_refused_by_name(text):
    with pytest.raises(ValueError, match="whole number"):
        units.parse_count(text)


def test_hours_are_those_of_who_types_them():
    now_s = units.from_iso("2026-11-22T22:30:00Z")
    begun = "2026-11-22T22:00:00.000Z/2026-11-23T06:00:00.000Z"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        read = [units.hours(text, now_s) for text in ("22:00-06:00", f" {begun}", "daily 22:00 – 6:00")]
        patch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        at = units.hours("fri 09:00-12:00", now_s)
    time.tzset()
    assert read == [begun, begun, f"daily {begun}"]
    assert units.hours("now-18:00", now_s) == "now-18:00" and units.hours("22:00", now_s) == "22:00"
    assert at == "2026-11-27T03:15:00.000Z/2026-11-27T06:15:00.000Z"
