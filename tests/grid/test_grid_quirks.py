"""What the real services do that their documentation does not say, played by the local provider."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from grid_site import Answer, Request, Site, good, iso, level, told

from carbontui.grid import cache as caches
from carbontui.grid.choose import EVERY
from carbontui.grid.feed import Feed
from carbontui.grid.http import SIZE_MAX, BadAnswer, Busy, Denied, NoData, NotFound
from carbontui.grid.providers.base import Provider
from carbontui.grid.settings import read_keys
from carbontui.grid.types import Series

NOW = 1896998400.0 + 20 * 3600  # 11 Feb 2030, 20:00 UTC, noon in California
PACIFIC = ZoneInfo("America/Los_Angeles")


def made(name: str, site: Site) -> Provider:
    return next(kind for kind in EVERY if kind.name == name)(site.http(), site.settings())


class Clock:
    def __init__(self, now_s: float = NOW) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


# --- Energi Data Service: one request per data set, minute and address -------------------------------------------


class Danish:
    """Honours start and end; a second request to a data set within a minute is refused."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.last_s: dict[str, float] = {}
        self.answered: Counter[str] = Counter()
        self.refused = 0

    def __call__(self, request: Request) -> Answer:
        dataset = request.path.rpartition("/")[2]
        if not dataset.startswith("CO2"):
            return Answer(b"", 404)
        if self.clock() - self.last_s.get(dataset, 0.0) < 60:
            self.refused += 1
            return Answer(b"", 429)
        self.last_s[dataset] = self.clock()
        self.answered[dataset] += 1
        begin, end = (
            datetime.fromisoformat(request.query[name][0]).replace(tzinfo=timezone.utc).timestamp()
            for name in ("start", "end")
        )
        end = min(end, self.clock() + (86400 if dataset == "CO2EmisProg" else 0))
        area = json.loads(request.query["filter"][0])["PriceArea"][0]
        times = [300.0 * k for k in range(int(begin // 300), int(end // 300))]
        return told(
            {
                "records": [
                    {"Minutes5UTC": iso(t, "%Y-%m-%dT%H:%M:%S"), "PriceArea": area, "CO2Emission": level(t)}
                    for t in times
                ]
            }
        )


async def live(feeds: list[Feed], clock: Clock, hours: float) -> None:
    """Refresh each feed whenever it asks to be."""
    until_s = clock.now_s + hours * 3600
    while clock.now_s < until_s:
        for feed in feeds:
            if feed.next_refresh_s() <= clock.now_s:
                await feed.refresh()
        clock.now_s = min(feed.next_refresh_s() for feed in feeds)


async def test_denmark_gets_its_history_without_being_refused_once(site: Site, tmp_path: Path) -> None:
    clock = Clock()
    service = site.respond = Danish(clock)
    feed = Feed("DK-DK1", settings=site.settings(), now=clock, cache=tmp_path, http=site.http())
    await live([feed], clock, 1.5)
    assert service.refused == 0 and not feed.note
    request = feed.forecast_request(clock(), 96, 900.0)
    assert len(request["values"]) * request["step_s"] > 55 * 86400


async def test_both_danish_zones_on_one_machine_take_turns(site: Site, tmp_path: Path) -> None:
    clock = Clock()
    service = site.respond = Danish(clock)
    feeds = [
        Feed(zone, settings=site.settings(), now=clock, cache=tmp_path, http=site.http())
        for zone in ("DK-DK1", "DK-DK2")
    ]
    await feeds[0].refresh()
    await feeds[1].refresh()
    assert "next request in" in feeds[1].note
    await live(feeds, clock, 0.5)
    assert service.refused == 0 and all(feed.outlook(clock(), 0, 3600, 900.0).how == "forecast" for feed in feeds)
    assert service.answered["CO2EmisProg"] >= 8


async def test_a_source_that_is_down_is_asked_less_and_less_often(site: Site, tmp_path: Path) -> None:
    clock = Clock()
    site.respond = lambda request: Answer(b"", 503)
    feed = Feed("GB", settings=site.settings(), now=clock, cache=tmp_path, http=site.http())
    await live([feed], clock, 12)
    asked = [request for request in site.seen if request.path.endswith("/fw48h")]
    # twice a round (one retry), rounds half an hour apart at last
    assert len(asked) <= 2 * (2 * 12 + 6)


async def test_windows_end_a_little_later_each_time_by_chance(tmp_path: Path) -> None:
    series = Series("GB", "average_direct", (), "x")

    async def fetch(old: caches.Entry) -> tuple[Series, tuple[str, ...]]:
        return series, ()

    ends = [
        (await caches.Cache(None, lambda: NOW, lambda share=share: share).ask("k", 1000.0, fetch)).next_s - NOW
        for share in (0.0, 0.5, 1.0)
    ]
    assert ends == [1000.0, 1050.0, 1100.0]


async def test_a_bug_in_reading_one_source_leaves_the_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from carbontui.grid.providers.europe import EnergyCharts

    async def broken(*_: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(EnergyCharts, "history", broken)
    monkeypatch.setattr(EnergyCharts, "forecast", broken)
    site.respond = good("electricity-maps", NOW)
    feed = Feed("FR", settings=site.settings(), now=Clock(), cache=None, http=site.http())
    await feed.refresh()
    assert feed.outlook(NOW, 0, 3600, 900.0).how == "forecast" and "could not be read" in feed.note


# --- CAISO: files without a date ---------------------------------------------------------------------------------


def table(rows: list[tuple[str, float | None]], co2: bool) -> bytes:
    """co2.csv or fuelsource.csv of rows (HH:MM, intensity): 20,000 MW throughout."""
    head = "Time,Natural Gas CO2,Imports CO2" if co2 else "Time,Solar,Natural gas"
    lines = [head]
    for clock, value in rows:
        if value is None:
            lines.append(f"  {clock},,")
        else:
            lines.append(f"  {clock},{value * 20 + 35},-35" if co2 else f"  {clock},12000,8000")
    return "\n".join([*lines, ""]).encode()


def whole_day(value: Callable[[int], float]) -> list[tuple[str, float | None]]:
    return [(f"{5 * k // 60:02d}:{5 * k % 60:02d}", value(k)) for k in range(288)]


def caiso(rows: list[tuple[str, float | None]], supply: list[tuple[str, float | None]] | None = None):
    def respond(request: Request) -> Answer:
        co2 = request.path.endswith("co2.csv")
        return Answer(table(rows if co2 or supply is None else supply, co2))

    return respond


async def caiso_rows(site: Site, now_s: float):
    return (await made("caiso", site).history("US-CAL-CISO", now_s - 3600, now_s, now_s))[0].rows


async def test_yesterdays_file_after_midnight_is_yesterdays(site: Site) -> None:
    midnight = datetime(2030, 2, 12, tzinfo=PACIFIC).timestamp()
    site.respond = caiso(whole_day(lambda k: 200.0 + k))
    rows = await caiso_rows(site, midnight + 600)
    assert len(rows) == 288 and rows[0].start_s == midnight - 86400 and rows[-1].start_s == midnight - 300
    assert rows[0].value == pytest.approx(200)


async def test_yesterdays_table_beside_one_of_today_is_not_mixed_with_it(site: Site) -> None:
    midnight = datetime(2030, 2, 12, tzinfo=PACIFIC).timestamp()
    today = [("00:00", 1.0), ("00:05", 1.0), *((clock, None) for clock, _ in whole_day(lambda k: 0.0)[2:])]
    site.respond = caiso(whole_day(lambda k: 200.0 + k), supply=today)
    with pytest.raises(NoData):
        await caiso_rows(site, midnight + 900)


async def test_a_closing_midnight_row_belongs_to_the_next_day(site: Site) -> None:
    day = datetime(2030, 2, 11, tzinfo=PACIFIC)
    site.respond = caiso([*whole_day(lambda k: 231.0 if k == 0 else 200.0), ("00:00", 127.0)])
    now_s = day.timestamp() + 86400 + 12 * 3600
    rows = (await made("caiso", site).history("US-CAL-CISO", now_s - 86400, now_s - 43200 - 3600, now_s))[0].rows
    assert rows[0].start_s == day.timestamp() and rows[0].value == pytest.approx(231)
    assert rows[-1].start_s == day.timestamp() + 86400 and rows[-1].value == pytest.approx(127)


async def test_an_hour_that_does_not_exist_does_not_move_the_day(site: Site) -> None:
    day = datetime(2030, 3, 10, tzinfo=PACIFIC)
    site.respond = caiso(whole_day(lambda k: 200.0))  # with rows for 02:00 to 02:55, which the clock skips
    end_s = day.timestamp() + 23 * 3600
    rows = (await made("caiso", site).history("US-CAL-CISO", end_s - 86400, end_s - 3600, end_s + 43200))[0].rows
    assert rows[0].start_s == day.timestamp() and rows[-1].start_s == end_s - 300
    assert len({row.start_s for row in rows}) == len(rows)


async def test_a_stale_copy_on_the_way_is_passed_by(site: Site) -> None:
    noon = [(clock, 250.0 if clock < "12:00" else None) for clock, _ in whole_day(lambda k: 0.0)]
    stale = [(clock, 250.0 if clock < "06:00" else None) for clock, _ in noon]
    fresh, old = caiso(noon), caiso(stale)
    site.respond = lambda request: fresh(request) if "_" in request.query else old(request)
    assert (await caiso_rows(site, NOW))[-1].start_s == NOW - 300


# --- the others --------------------------------------------------------------------------------------------------


async def test_a_site_without_keys_that_refuses_us_does_not_speak_of_a_key(site: Site) -> None:
    site.respond = lambda request: Answer(b"<html>", 403)
    with pytest.raises(Denied) as caught:
        await caiso_rows(site, NOW)
    assert "refuses the key" not in str(caught.value) and "403" in str(caught.value)
    with pytest.raises(Denied, match="refuses the key"):
        await made("eia", site).history("US-NY-NYIS", NOW - 86400, NOW, NOW)


async def test_sun_and_wind_with_a_battery_are_sun_and_wind(site: Site) -> None:
    mix = {"NG": 5000, "SUN": 1000, "SNB": 3000, "WND": 500, "WNB": 500, "BAT": 900, "PS": 5, "OES": 7, "UES": 3}
    rows = [
        {"period": iso(NOW - 3600 * k, "%Y-%m-%dT%H"), "respondent": "CISO", "fueltype": fuel, "value": value}
        for k in range(3)
        for fuel, value in mix.items()
    ]
    site.respond = lambda request: told({"response": {"data": rows}})
    found = (await made("eia", site).history("US-CAL-CISO", NOW - 86400, NOW, NOW))[0].rows
    assert found[0].value == pytest.approx((490 * 5000 + 45 * 4000 + 11 * 1000) / 10000)


@pytest.mark.parametrize(("zone", "low_g"), [("AU-TAS", 37.0), ("US-AK-SEAPA", 29.0)])
async def test_a_clean_part_of_a_dirty_country_is_believed(site: Site, zone: str, low_g: float) -> None:
    real = good("electricity-maps", NOW, lambda t: low_g)
    site.respond = real
    rows = (await made("electricity-maps", site).forecast(zone, NOW + 86400, NOW))[0].rows
    assert rows[0].value == low_g
    site.respond = good("electricity-maps", NOW, lambda t: 5.0)
    with pytest.raises(BadAnswer, match="another unit"):  # of PL itself a mean is known
        await made("electricity-maps", site).forecast("PL", NOW + 86400, NOW)


@pytest.mark.parametrize("empty", [None, {}, {"data": []}, {"data": {"regionid": 1, "data": []}}])
async def test_a_region_of_zeros_or_without_values_shows_the_nation_and_says_so(site: Site, empty: object) -> None:
    nation = good("neso", NOW)

    def respond(request: Request) -> Answer:
        if "regional" not in request.path:
            return nation(request)
        if empty is not None:
            return told(empty)
        record = {"from": iso(NOW), "to": iso(NOW + 1800), "intensity": {"forecast": 0}, "generationmix": []}
        return told({"data": {"regionid": 1, "data": [record]}})

    site.respond = respond
    feed = Feed("GB-1", settings=site.settings(), now=Clock(), cache=None, http=site.http())
    await feed.refresh()
    seen = feed.outlook(NOW, 0, 3600, 900.0)
    assert seen.mean[0] == pytest.approx(level(NOW), abs=1) and "Great Britain as a whole" in seen.source
    assert "GB-1" in feed.note and "Great Britain as a whole" in feed.note


async def test_a_region_is_asked_as_far_ahead_as_its_forecast_reaches(site: Site) -> None:
    site.respond = good("neso", NOW)
    await made("neso", site).forecast("GB-13", NOW + 4 * 86400, NOW)
    assert iso(NOW + 4 * 86400) in site.seen[-1].path


async def test_a_range_that_a_free_plan_does_not_have_is_not_the_end(site: Site) -> None:
    real = good("electricity-maps", NOW)
    site.respond = lambda request: Answer(b"", 404) if "past-range" in request.path else real(request)
    provider = made("electricity-maps", site)
    rows = (await provider.history("FR", NOW - 7 * 86400, NOW, NOW))[0].rows
    assert rows and site.seen[-1].path.endswith("/history")
    with pytest.raises(NotFound):  # what is long past only the range has
        await provider.history("FR", NOW - 20 * 86400, NOW - 10 * 86400, NOW)


async def test_energy_charts_may_take_its_time(site: Site) -> None:
    real, late = good("energy-charts", NOW), threading.Event()

    def patient(request: Request) -> Answer:
        late.wait(0.5)
        return real(request)

    site.respond = patient
    provider = next(kind for kind in EVERY if kind.name == "energy-charts")(site.http(answer_s=0.4), site.settings())
    assert (await provider.forecast("DE", NOW + 86400, NOW))[0].rows


async def test_who_is_shut_out_for_ten_minutes_stays_away_for_them(site: Site) -> None:
    site.respond = lambda request: Answer(b"", 429)
    with pytest.raises(Busy) as caught:
        await made("entsoe", site).history("NL", NOW - 86400, NOW, NOW)
    assert caught.value.retry_after_s > 600


def test_watttimes_own_name_of_the_user_is_read_too(tmp_path: Path) -> None:
    given = {"WATTTIME_USER": "me", "WATTTIME_PASSWORD": "p"}
    assert read_keys(tmp_path / "none", given)["WATTTIME_USERNAME"] == "me"
    path = tmp_path / "keys.env"
    path.write_text("WATTTIME_USER=you\n")
    path.chmod(0o600)
    assert read_keys(path, {})["WATTTIME_USERNAME"] == "you"


# --- hostile answers ---------------------------------------------------------------------------------------------


def period(start: str, end: str, resolution: str) -> bytes:
    return (
        f"<GL_MarketDocument><TimeSeries><inBiddingZone_Domain.mRID>10YNL----------L</inBiddingZone_Domain.mRID>"
        f"<MktPSRType><psrType>B04</psrType></MktPSRType><curveType>A03</curveType><Period><timeInterval>"
        f"<start>{start}</start><end>{end}</end></timeInterval><resolution>{resolution}</resolution>"
        f"<Point><position>1</position><quantity>5</quantity></Point></Period></TimeSeries></GL_MarketDocument>"
    ).encode()


@pytest.mark.parametrize(
    "span",
    [
        ("1971-01-01T00:00Z", "2990-01-01T00:00Z", "PT1M"),
        ("2030-02-10T00:00Z", "2030-02-11T00:00Z", "PT0M"),
        ("2030-02-10T00:00Z", "2030-02-11T00:00Z", "PT0H"),
        ("2030-02-11T00:00Z", "2030-02-10T00:00Z", "PT1H"),
    ],
)
async def test_an_absurd_period_or_resolution_is_refused_at_once(site: Site, span: tuple[str, str, str]) -> None:
    site.respond = lambda request: Answer(period(*span))
    with pytest.raises(BadAnswer, match="impossible"):
        await made("entsoe", site).history("NL", NOW - 86400, NOW, NOW)


async def test_more_rows_than_a_year_has_are_refused(site: Site) -> None:
    span = ("2029-03-01T00:00Z", "2030-02-11T00:00Z", "PT1M")
    site.respond = lambda request: Answer(period(*span))
    with pytest.raises(BadAnswer, match="more than"):
        await made("entsoe", site).history("NL", NOW - 86400, NOW, NOW)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
async def test_a_document_type_is_refused_in_every_encoding(site: Site, encoding: str) -> None:
    text = '<!DOCTYPE GL_MarketDocument [<!ENTITY a "b">]><GL_MarketDocument>&a;</GL_MarketDocument>'
    if encoding.startswith("utf-16"):
        text = f'<?xml version="1.0" encoding="UTF-16"?>{text}'
    site.respond = lambda request: Answer(text.encode(encoding))
    with pytest.raises(BadAnswer, match="document type"):
        await made("entsoe", site).history("NL", NOW - 86400, NOW, NOW)


async def test_a_body_that_swells_is_refused_before_it_fills_the_memory(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tracemalloc

    bomb = gzip.compress(bytes(8 * SIZE_MAX), 1)
    site.respond = lambda request: Answer(bomb, headers={"Content-Encoding": "gzip"})
    tracemalloc.start()
    try:
        with pytest.raises(BadAnswer, match="MiB"):
            await made("energy-charts", site).forecast("DE", NOW + 86400, NOW)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * SIZE_MAX


async def test_a_packed_answer_is_read_and_a_cut_one_refused(site: Site) -> None:
    real = good("energy-charts", NOW)

    def packed(request: Request, keep: int | None = None) -> Answer:
        return Answer(gzip.compress(real(request).body)[:keep], headers={"Content-Encoding": "gzip"})

    site.respond = packed
    assert (await made("energy-charts", site).forecast("DE", NOW + 86400, NOW))[0].rows
    site.respond = lambda request: packed(request, -30)
    with pytest.raises(BadAnswer, match="cut-off"):
        await made("energy-charts", site).forecast("DE", NOW + 86400, NOW)
    site.respond = lambda request: Answer(real(request).body, headers={"Content-Encoding": "br"})
    with pytest.raises(BadAnswer, match="compressed as 'br'"):
        await made("energy-charts", site).forecast("DE", NOW + 86400, NOW)


@pytest.mark.parametrize("text", ["inf", "-inf", "1e999", "nan", "soon"])
async def test_a_time_to_come_back_that_is_none_is_five_minutes(site: Site, text: str) -> None:
    site.respond = lambda request: Answer(b"", 429, {"Retry-After": text})
    with pytest.raises(Busy) as caught:
        await made("energy-charts", site).forecast("DE", NOW + 86400, NOW)
    assert caught.value.retry_after_s == 300


async def test_another_port_of_the_same_host_is_not_followed(site: Site) -> None:
    site.respond = lambda request: Answer(b"x", 302, {"Location": "http://localhost:9/login"})
    with pytest.raises(BadAnswer, match="localhost:9; not followed"):
        await made("eia", site).history("US-NY-NYIS", NOW - 86400, NOW, NOW)
