"""Operators' own fuel mixes: what the frame does with them, and the traps of each one's form."""

from __future__ import annotations

import inspect
import io
import json
import math
import threading
import zipfile
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import operators
import pytest
from grid_site import Answer, Request, Site, good, iso, level, told

from carbontui.grid import zones
from carbontui.grid.choose import AVERAGE, EVERY, OPERATORS
from carbontui.grid.feed import Feed
from carbontui.grid.fuels import FACTORS, intensity_g_per_kwh
from carbontui.grid.http import BadAnswer, NoData
from carbontui.grid.providers.base import Provider
from carbontui.grid.providers.frame import LocalClock, MixProvider, Power

NOW = 1896998400.0 + 20 * 3600
PAGE_MAX = 100


def made(name: str, site: Site) -> Provider:
    return next(kind for kind in EVERY if kind.name == name)(site.http(), site.settings())


def test_every_provider_is_one_page() -> None:
    for kind in EVERY:
        assert len(inspect.getsource(kind).splitlines()) <= PAGE_MAX, kind.name


def test_every_zone_of_an_operator_can_be_named() -> None:
    for kind in OPERATORS:
        covered = [key for key in zones.every() if kind.covers(key)]
        assert covered, kind.name
        if issubclass(kind, MixProvider):
            assert set(kind.zones) <= set(zones.every()), kind.name
            assert all(zones.every()[key].name != key for key in kind.zones)


def test_every_word_of_an_operator_is_a_fuel_of_the_table() -> None:
    for kind in OPERATORS:
        if issubclass(kind, MixProvider):
            assert {fuel for fuel in kind.fuels.values() if fuel} <= set(FACTORS), kind.name


def test_at_least_ten_more_operators_answer_without_a_key() -> None:
    new = [kind for kind in AVERAGE if kind in OPERATORS and not kind.keys and kind.name != "caiso"]
    fresh = {key for kind in new for key in zones.every() if kind.covers(key)}
    # countries and operators that no keyless source covered before; parts of one counted once
    assert len({key if key.startswith(("US-", "CA-", "GB-")) else key[:2] for key in fresh} - {"FR", "ES", "IE"}) >= 10


def test_burnt_fuels_count_at_the_stack_and_over_their_life() -> None:
    mix = {"coal": 1000.0, "gas": 1000.0, "wind": 2000.0, "solar": -5.0}
    assert intensity_g_per_kwh(mix, "average_direct") == pytest.approx((760 + 370) / 4)
    assert intensity_g_per_kwh(mix, "average_lifecycle") == pytest.approx((820 + 490 + 22) / 4)
    assert all(factor.direct_g <= factor.lifecycle_g or fuel == "oil" for fuel, factor in FACTORS.items())
    assert all(factor.source for factor in FACTORS.values())


async def test_new_york_reads_single_days_and_whole_months(site: Site) -> None:
    site.respond = good("nyiso", NOW)
    await made("nyiso", site).history("US-NY-NYIS", NOW - 86400, NOW, NOW)
    assert [request.path.rpartition("/")[2] for request in site.seen] == [
        "20300210rtfuelmix.csv",
        "20300211rtfuelmix.csv",
    ]
    day = good("nyiso", NOW)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("20300109", "20300110"):
            archive.writestr(f"{name}rtfuelmix.csv", day(Request(f"/{name}rtfuelmix.csv", {}, {})).body)
    site.respond = lambda request: Answer(out.getvalue())
    end_s = datetime(2030, 1, 11, tzinfo=ZoneInfo("America/New_York")).timestamp()
    rows = (await made("nyiso", site).history("US-NY-NYIS", end_s - 86400, end_s, NOW))[0].rows
    assert site.seen[-1].path.endswith("/20300101rtfuelmix_csv.zip") and len(rows) == 2 * 288
    assert rows[-1].start_s == end_s - 300 and rows[-1].value == pytest.approx(level(rows[-1].start_s), rel=1e-4)


@pytest.mark.parametrize(("name", "zone"), [("nyiso", "America/New_York"), ("ree", "Europe/Madrid")])
@pytest.mark.parametrize("month", [3, 11])
async def test_days_of_23_and_25_hours_have_no_gap_and_no_hour_twice(
    site: Site, name: str, zone: str, month: int
) -> None:
    here = ZoneInfo(zone)
    day = {("nyiso", 3): 10, ("nyiso", 11): 3, ("ree", 3): 31, ("ree", 11): 27}[name, month]
    month = 10 if (name, month) == ("ree", 11) else month
    noon = datetime(2030, month, day, 23, 30, tzinfo=here).timestamp()
    site.respond = good(name, noon)
    rows = (await made(name, site).history(operators.ZONE_OF[name], noon - 86400, noon, noon))[0].rows
    assert all(b.start_s - a.start_s == 300 for a, b in pairwise(rows)), [
        iso(a.start_s) for a, b in pairwise(rows) if b.start_s - a.start_s != 300
    ]
    assert all(row.value == pytest.approx(level(row.start_s), rel=1e-4) for row in rows)


async def test_the_spanish_marks_of_the_hour_that_comes_twice_are_read(site: Site) -> None:
    stamps = ["2030-10-27 2A:55", "2030-10-27 2B:00", "2030-10-27 2B:05", "2030-10-27 3:00"]
    rows = [{"ts": ts, "dem": 100, "car": 50, "eol": 50} for ts in stamps]
    site.respond = lambda request: Answer(f"null({json.dumps({'valoresHorariosGeneracion': rows})});".encode())
    now_s = datetime(2030, 10, 27, 12, tzinfo=ZoneInfo("Europe/Madrid")).timestamp()
    found = (await made("ree", site).history("ES", now_s - 3600, now_s, now_s))[0].rows
    actual = [iso(row.start_s) for row in found if not row.suspect]
    assert actual == ["2030-10-27T00:55Z", "2030-10-27T01:00Z", "2030-10-27T01:05Z", "2030-10-27T02:00Z"]


async def test_turbines_of_islands_without_a_pipeline_burn_oil(site: Site) -> None:
    rows = [{"ts": "2030-02-11 10:00", "dem": 100, "cc": 50, "eol": 50}]
    site.respond = lambda request: Answer(f"null({json.dumps({'valoresHorariosGeneracion': rows})});".encode())
    provider = made("ree", site)
    assert (await provider.history("ES-CN-TE", NOW - 3600, NOW, NOW))[0].rows[0].value == pytest.approx(733 / 2)
    assert (await provider.history("ES-IB-MA", NOW - 3600, NOW, NOW))[0].rows[0].value == pytest.approx(370 / 2)
    start_s = (await provider.history("ES-CN-TE", NOW - 3600, NOW, NOW))[0].rows[0].start_s
    assert iso(start_s) == "2030-02-11T10:00Z"  # the Canaries keep the time of Lisbon


async def test_a_fuel_that_is_not_known_makes_no_mix(site: Site) -> None:
    def mix(antimatter_mw: float) -> Answer:
        rows = [
            {"INTERVALEST": "2030-02-11 02:00:00 PM", "CATEGORY": word, "ACT": str(power)}
            for word, power in (("Coal", 6000), ("Wind", 4000), ("Antimatter", antimatter_mw))
        ]
        return told({"Fuel": {"Type": rows}})

    site.respond = lambda request: mix(256)
    provider = made("miso", site)
    rows = (await provider.history("US-MIDW-MISO", NOW - 3600, NOW, NOW))[0].rows
    assert rows[0].value == pytest.approx(0.6 * 760)
    site.respond = lambda request: mix(2560)
    with pytest.raises(BadAnswer, match="Antimatter"):
        await provider.history("US-MIDW-MISO", NOW - 3600, NOW, NOW)


async def test_what_a_source_does_not_keep_is_not_asked_for(site: Site) -> None:
    with pytest.raises(NoData, match="no data that old"):
        await made("ercot", site).history("US-TEX-ERCO", NOW - 9 * 86400, NOW - 8 * 86400, NOW)
    assert site.seen == []


async def test_an_hour_of_wind_and_water_alone_is_zero_at_the_stack(site: Site) -> None:
    site.respond = good("ons", NOW, lambda t: 0.0)
    rows = (await made("ons", site).history("BR-NE", NOW - 3600, NOW, NOW))[0].rows
    assert [row.value for row in rows] == [0.0]


async def test_hours_of_quebec_that_have_not_come_are_no_zeros(site: Site) -> None:
    site.respond = good("hydro-quebec", NOW)
    rows = (await made("hydro-quebec", site).history("CA-QC", NOW - 86400, NOW, NOW))[0].rows
    assert rows[-1].start_s <= NOW - 3600 and min(row.value for row in rows) > 100


async def test_a_map_of_ireland_for_the_other_part_is_refused(site: Site) -> None:
    real = good("eirgrid", NOW)
    site.respond = lambda request: Answer(real(request).body.replace(b'"NI"', b'"ROI"'))
    with pytest.raises(BadAnswer, match="ROI, not NI"):
        await made("eirgrid", site).forecast("GB-NIR", NOW + 86400, NOW)


async def test_an_interval_that_is_still_being_written_is_not_read(site: Site) -> None:
    full = good("nyiso", NOW)

    def respond(request: Request) -> Answer:
        lines = full(request).body.decode().splitlines()
        return Answer("\n".join(lines[:-1]).encode() + b"\n02/11/2030 15:00:00,EST,Hyd")

    site.respond = respond
    rows = (await made("nyiso", site).history("US-NY-NYIS", NOW - 3600, NOW, NOW))[0].rows
    assert rows[-1].start_s == NOW - 600 and all(
        row.value == pytest.approx(level(row.start_s), rel=1e-4) for row in rows
    )


@pytest.mark.parametrize("whole", [False, True])
async def test_a_second_reading_inside_a_mark_is_not_added_to_the_first(site: Site, whole: bool) -> None:
    full = good("nyiso", NOW)

    def respond(request: Request) -> Answer:
        lines = full(request).body.decode().splitlines()
        of_mark = lines[-6:-3]  # the mark of 14:55, read again at 14:53
        again = [line.replace(" 14:55:", " 14:53:") for line in (of_mark if whole else of_mark[:1])]
        assert again[0] != of_mark[0]
        return Answer("\n".join([*lines, *again, ""]).encode())

    site.respond = respond
    rows = (await made("nyiso", site).history("US-NY-NYIS", NOW - 3600, NOW, NOW))[0].rows
    assert all(row.value == pytest.approx(level(row.start_s), rel=1e-4) for row in rows)


async def test_a_reading_of_another_body_is_not_added_and_a_skipped_hour_has_no_time(site: Site) -> None:
    kind = made("nyiso", site)
    assert isinstance(kind, MixProvider)
    first = [Power(0.0, "Wind", 100.0, (0, 290.0)), Power(0.0, "Natural Gas", 100.0, (0, 290.0))]
    part = [Power(0.0, "Natural Gas", 50.0, (0, 299.0)), Power(math.nan, "Wind", 1.0, (0, 1.0))]
    assert [mix.megawatts for mix in kind.mixes([*first, *part])] == [{"wind": 100.0, "gas": 100.0}]
    newer = [one._replace(megawatts=80.0, reading=(1, 290.0)) for one in first]
    assert [mix.megawatts for mix in kind.mixes([*first, *newer])] == [{"wind": 80.0, "gas": 80.0}]
    clock = LocalClock(ZoneInfo("America/Los_Angeles"))
    hours = [clock(datetime(2030, 3, 10, hour)) for hour in range(5)]  # 02:00 is skipped
    assert math.isnan(hours[2]) and hours[3] - hours[1] == 3600 and hours[4] - hours[3] == 3600


@pytest.mark.parametrize("at", range(1, 14))
async def test_half_a_number_at_the_end_of_a_table_is_not_read(site: Site, at: int) -> None:
    full = good("caiso", NOW)

    def cut(request: Request) -> Answer:
        body = full(request).body
        return Answer(body[: body.rfind(b"11:55") + at] if request.path.endswith("fuelsource.csv") else body)

    site.respond = cut
    rows = (await made("caiso", site).history("US-CAL-CISO", NOW - 3600, NOW, NOW))[0].rows
    assert rows[-1].start_s == NOW - 600
    assert all(row.value == pytest.approx(level(row.start_s), rel=1e-3) for row in rows)


async def test_californias_own_forecasts_become_an_intensity(site: Site) -> None:
    site.respond = good("caiso", NOW)
    series, _ = await made("caiso", site).forecast("US-CAL-CISO", NOW + 2 * 86400, NOW)
    assert {row.kind for row in series.rows} == {"forecast"} and series.rows[-1].start_s >= NOW + 22 * 3600
    assert all(row.value == pytest.approx(level(row.start_s), rel=1e-3) for row in series.rows)


async def test_a_past_that_does_not_follow_the_net_load_gives_no_forecast(site: Site) -> None:
    steady = good("caiso", NOW, lambda t: 300.0)
    real = good("caiso", NOW)
    site.respond = lambda request: steady(request) if request.path.endswith("co2.csv") else real(request)
    with pytest.raises(NoData, match="do not follow"):
        await made("caiso", site).forecast("US-CAL-CISO", NOW + 2 * 86400, NOW)


async def test_a_month_of_values_is_read_beside_the_loop_that_renews_leases(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    real = MixProvider.mixes
    monkeypatch.setattr(
        MixProvider, "mixes", lambda self, powers: (threads.add(threading.current_thread().name), real(self, powers))[1]
    )
    site.respond = good("nyiso", NOW)
    keyless = replace(site.settings(), keys={})
    await Feed("US-NY-NYIS", settings=keyless, now=lambda: NOW, http=site.http()).refresh()
    assert threads and threading.current_thread().name not in threads


async def test_both_forms_of_the_great_plains_are_read(site: Site) -> None:
    stamp = iso(NOW, "%Y-%m-%dT%H:%M:00Z")
    forms = (
        f"GMT MKT Interval, Coal Market, Coal Self, Wind Market, Wind Self, Average Actual Load\n"
        f"{stamp}, 100, 300, 500, 100, 1000\n",
        "GMT MKT Interval,BAA,Coal,Diesel Fuel Oil,Wind,Energy Storage,Load\n"
        f"{stamp},SPP,400.00,0.00,600.00,-20.00,1000\n",
    )
    for form in forms:
        site.respond = lambda request, form=form: Answer(form.encode())
        rows = (await made("spp", site).history("US-CENT-SWPP", NOW - 3600, NOW, NOW))[0].rows
        assert [(row.start_s, round(row.value, 6)) for row in rows] == [(NOW - 300, 304.0)]


@pytest.mark.parametrize("zone", ["JP-TH", "JP-TK", "JP-KY"])
async def test_japans_tables_of_a_month_or_a_day_begin_or_end_their_half_hours(site: Site, zone: str) -> None:
    site.respond = good("japan", NOW)
    series, _ = await made("japan", site).history(zone, NOW - 30 * 3600, NOW, NOW)
    assert series.rows[-1].start_s + 1800 == NOW
    assert all(row.value == pytest.approx(level(row.start_s), abs=0.1) for row in series.rows)
    asked = [request.path.rpartition("/")[2] for request in site.seen]
    assert len(asked) == len(set(asked)) == (3 if zone == "JP-TH" else 1)
