"""The feed over recorded and typical data: the future stays hidden, the answer is always there."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui.grid import compose, recorded, typical, zones
from carbontui.grid.feed import Feed
from carbontui.grid.forecast import answer
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import Row, Series
from carbontui.units import mean_over

EXAMPLE = recorded.load(recorded.example_path(), zone="DE")
NOW = 1586476800.0 + 6 * 86400  # 16 April 2020, 00:00 UTC


def feed_on(series: Series | None, zone: str | None = "DE", now_s: float = NOW) -> Feed:
    return Feed(zone, settings=GridSettings(offline=True), now=lambda: now_s, recorded=series)


def with_other_future(series: Series, now_s: float) -> Series:
    rows = [Row(row.start_s, row.dur_s, row.value if row.start_s <= now_s else 9.0) for row in series.rows]
    return Series(series.zone, series.signal, tuple(rows), series.source)


def test_replay_shows_what_happened_and_hides_what_comes() -> None:
    series = EXAMPLE
    one, other = feed_on(series), feed_on(with_other_future(series, NOW))
    for feed in (one, other):
        request = feed.forecast_request(NOW, 96, 900.0)
        assert request is not None
        feed.adopt(answer(request))
    seen = one.outlook(NOW, 86400, 86400, 900.0)
    assert seen == other.outlook(NOW, 86400, 86400, 900.0)
    assert seen is not None and seen.realised == 96 and len(seen.mean) == 192 and seen.how == "replay"
    truth = {row.start_s: row.value for row in series.rows}
    assert [truth[seen.start_s + k * 900] for k in range(96)] == list(seen.mean[:96])
    future = seen.mean[96:]
    assert all(value is not None and 20 < value < 900 for value in future)
    assert all(lo <= mean <= hi for lo, mean, hi in zip(seen.lo[96:], future, seen.hi[96:], strict=True))


@pytest.mark.parametrize("begun_s", [0.0, 5 * 86400.0])
def test_the_slot_that_runs_has_the_value_of_the_file(begun_s: float) -> None:
    now = NOW + 1800.0
    rows = tuple(Row(NOW - begun_s + k * 3600.0, 3600.0, 700.0) for k in range(400))
    feed = feed_on(Series("DE", "average_direct", rows, "file"), now_s=now)
    if (request := feed.forecast_request(now, 96, 900.0)) is not None:
        feed.adopt(answer(request))
    seen = feed.outlook(now, 3600, 86400, 900.0)
    assert seen is not None and seen.value_at(now) == 700.0


@pytest.mark.parametrize("years", [-3, 6])
def test_a_recording_of_another_time_is_not_said_to_be_what_is_shown(years: int) -> None:
    now = NOW + years * 365 * 86400.0
    feed = feed_on(EXAMPLE, now_s=now)
    seen = feed.outlook(now, 3600, 86400, 900.0)
    assert seen is not None and seen.how == "default" and seen.source.startswith("typical days")
    assert "expected, not recorded" in feed.note


def test_where_a_published_forecast_ends_the_curve_goes_on_from_it() -> None:
    cells = [(300.0, 250.0, 350.0)] * 24
    made = compose.overlaid(cells, [400.0] * 8 + [None] * 16, 20.0, NOW, NOW, 3600.0)
    steps = [abs(after[0] - before[0]) for before, after in zip(made, made[1:], strict=False)]
    assert max(steps) < 15 and abs(made[-1][0] - 300) < 25 and all(lo < mean < hi for mean, lo, hi in made)


def test_realised_rows_of_a_replay_end_at_now() -> None:
    rows = feed_on(EXAMPLE).realised(NOW - 3600, NOW + 3600)
    assert [row.start_s for row in rows] == [NOW - 3600 + k * 900 for k in range(4)]
    assert {row.kind for row in rows} == {"actual"}


def test_without_any_source_typical_days_answer_and_say_so() -> None:
    feed = feed_on(None)
    seen = feed.outlook(NOW, 3600, 86400, 900.0)
    assert seen is not None and seen.how == "default" and "typical days" in seen.source
    assert None not in seen.mean
    assert {row.kind for row in feed.realised(NOW, NOW + 7200)} == {"estimated"}
    assert feed.forecast_request(NOW, 96, 900.0) is None


def test_no_zone_gives_no_outlook_and_a_line_that_says_how_to_mend_it() -> None:
    feed = feed_on(None, zone=None)
    assert feed.outlook(NOW, 0, 3600, 900) is None and feed.realised(NOW, NOW + 3600) == ()
    assert "--zone" in feed.note


def test_adopt_leaves_a_broken_answer_aside() -> None:
    feed = feed_on(EXAMPLE)
    before = feed.outlook(NOW, 0, 7200, 900)
    for broken in ({}, {"mean": [1], "lo": [], "hi": [1], "now_s": NOW, "step_s": 900}, {"mean": None}):
        feed.adopt(broken)
    assert feed.outlook(NOW, 0, 7200, 900) == before


def test_coarser_slots_are_means_of_finer_rows() -> None:
    series = EXAMPLE
    hourly = feed_on(series).outlook(NOW, 3600, 3600, 3600.0)
    assert hourly is not None
    inside = [row.value for row in series.rows if NOW - 3600 <= row.start_s < NOW]
    assert hourly.mean[0] == pytest.approx(sum(inside) / 4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time_utc,value\n2020-01-01T00:00:00Z,abc\n", "line 2: 'abc' is not a number"),
        ("time_utc,value\n2020-01-01T00:00:00Z,1\nyesterday,2\n", "line 3"),
        ("time_utc,value\n2020-01-01T00:00:00,1\n", "has no zone"),
        ("time_utc,value\n2020-01-01T00:00:00Z,-5\n", "'-5' is not a carbon intensity"),
        ("time_utc,value\n2020-01-01T00:00:00Z,nan\n", "'nan'"),
        ("when,what\n1,2\n", "expected 'time_utc,carbon_g_per_kwh'"),
        ("", "expected"),
        ("time_utc,value\n2020-01-01T00:00:00Z,1\n", "at least two rows"),
        ("time_utc,value\n2020-01-01T00:00:00Z,300,5\n", "write 300.5, not 300,5"),
        ("time_utc,value\n2020-01-01T00:00:00Z,1\n2020-01-01T00:00:00Z,2\n", "twice"),
        ("time_utc,value\n2020-01-01T00:00:00Z,1\n2020-01-02T00:00:00Z,2\n", "24 h apart"),
        ("time_utc,value\n2020-01-01T00:00:00Z,0.3\n2020-01-01T01:00:00Z,0.45\n", "kg/kWh?"),
    ],
)
def test_a_bad_file_is_named_with_line_and_value(tmp_path, text, complaint) -> None:
    path = tmp_path / "grid.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"grid\.csv") as caught:
        recorded.load(path)
    assert complaint in str(caught.value)


def test_gaps_stay_gaps(tmp_path) -> None:
    path = tmp_path / "grid.csv"
    hours = ["2020-01-01T00", "2020-01-01T01", "2020-01-01T05", "2020-01-01T06"]
    path.write_text("time_utc,value\n" + "".join(f"{hour}:00:00Z,100\n" for hour in hours))
    assert [row.dur_s for row in recorded.load(path).rows] == [3600.0] * 4


def test_typical_days_cover_every_hour_of_the_year_with_an_ordered_band() -> None:
    for zone in typical.zones():
        seen = typical.outlook(zone, 1577836800.0, 3600.0, 366 * 24)
        assert all(lo <= mean <= hi for lo, mean, hi in zip(seen.lo, seen.mean, seen.hi, strict=True))


def test_typical_days_of_a_past_year_are_scaled_to_the_last_one_and_stay_direct() -> None:
    now = typical.outlook("DE", NOW, 3600.0, 48)
    _, mean, year = typical.yearly_means()["DE"]
    then = [typical.recorded()["DE"].at(NOW + hour * 3600.0)[0] for hour in range(48)]
    assert now.mean == pytest.approx([value * mean / 355.61 for value in then]) and now.signal == "average_direct"
    assert now.source == f"typical days of DE 2020, scaled to {year}'s mean"
    assert typical.outlook("US-CAL-CISO", NOW, 3600.0, 1).source == "typical days of US-CAL-CISO 2022"


def test_a_country_with_only_a_yearly_mean_has_a_day_like_similar_grids() -> None:
    week = typical.outlook("FR", 1586736000.0, 3600.0, 7 * 24)
    mean = typical.yearly_means()["FR"][1]
    assert sum(week.mean) / len(week.mean) == pytest.approx(mean, rel=0.01) and len(set(week.mean)) > 24
    assert all(0.2 * m < lo < m < hi < 2.5 * m for lo, m, hi in zip(week.lo, week.mean, week.hi, strict=True))
    assert "yearly mean of France" in week.source and "similar grids" in week.source


def test_the_day_of_similar_grids_follows_the_local_clock() -> None:
    def cleanest_hour(zone: str) -> int:
        day = typical.outlook(zone, 1586736000.0, 3600.0, 24)
        return min(range(24), key=day.mean.__getitem__)

    assert typical.utc_offset_h("JP") == 9 and typical.utc_offset_h("AU-NSW") == 10
    assert (cleanest_hour("JP") + 9) % 24 == (cleanest_hour("ZA") + 2) % 24


def test_a_part_of_a_country_may_be_far_from_its_mean_and_the_band_says_so() -> None:
    part, whole = (typical.outlook(zone, NOW, 3600.0, 24) for zone in ("AU-TAS", "AU"))
    assert part.lo[0] < 0.2 * part.mean[0] and part.hi[0] > 1.3 * whole.hi[0]


def test_a_system_of_its_own_does_not_borrow_the_days_of_a_country_far_from_it() -> None:
    assert typical.profile("ES-CN-TE") is None and not typical.has_hours("ES-IB-MA")
    assert "Ireland" in typical.profile("GB-NIR").source
    assert typical.profile("GB-13") is typical.profile("GB")


def test_the_band_of_similar_grids_holds_as_often_as_it_says() -> None:
    spec = importlib.util.spec_from_file_location("make", Path(__file__).parents[1] / "bench" / "make_similar_days.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    covered = [make.coverage(zone) for zone in ("DE", "ES", "NL", "US-NY-NYIS", "US-SW-AZPS", "US-TEX-ERCO")]
    assert 0.75 <= sum(covered) / len(covered) <= 0.85


def test_zones_are_found_by_the_names_people_use() -> None:
    assert zones.resolve("uk").key == "GB" and zones.resolve("Germany").key == "DE"
    assert zones.resolve("ercot").key == "US-TEX-ERCO" and zones.resolve("gb-13").name.endswith("London")
    with pytest.raises(ValueError, match="did you mean DE"):
        zones.resolve("Germny")
    with pytest.raises(ValueError, match="several grids"):
        zones.resolve("us")


def test_only_a_time_zone_of_one_grid_is_sure() -> None:
    assert zones.guess("Europe/Berlin")[1] == "high"
    candidates, confidence = zones.guess("America/New_York")
    assert confidence == "low" and "US-NY-NYIS" in {zone.key for zone in candidates}
    assert zones.guess("UTC") == ((), "none") and zones.guess(None) == ((), "none")


def test_next_refresh_of_a_recording_never_comes() -> None:
    assert feed_on(EXAMPLE).next_refresh_s() == math.inf


@given(
    values=st.lists(st.floats(0, 2000), min_size=1, max_size=60),
    step_s=st.sampled_from([300.0, 900.0, 1800.0, 3600.0]),
    slot_s=st.sampled_from([900.0, 1800.0, 3600.0, 7200.0]),
)
def test_a_plan_of_longer_slots_sees_what_one_resampling_of_the_forecast_would_give(
    values: list[float], step_s: float, slot_s: float
) -> None:
    """The outlook is in quarters of an hour, plans may not be: means of means of whole slots are the mean itself."""
    start_s = 7200.0 * 1000
    rows = [Row(start_s + k * step_s, step_s, value, "forecast") for k, value in enumerate(values)]
    slots = int(len(values) * step_s // slot_s)
    quarters = compose.slot_means(rows, start_s, 900.0, int(slots * slot_s / 900))
    twice = [
        mean_over(quarters, start_s, 900.0, start_s + k * slot_s, start_s + (k + 1) * slot_s) for k in range(slots)
    ]
    assert twice == pytest.approx(compose.slot_means(rows, start_s, slot_s, slots))
