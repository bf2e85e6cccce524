"""Every provider against a local server: its documented shape, and every fault of the list, one typed line each."""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import httpx
import operators
import pytest
from grid_site import SECRETS, ZONE_OF, Answer, Request, Site, good, iso, level, told, zipped

from carbontui.grid.choose import EVERY
from carbontui.grid.fuels import intensity_g_per_kwh
from carbontui.grid.http import (
    BadAnswer,
    Busy,
    Denied,
    GridError,
    Http,
    NoData,
    NotFound,
    Question,
    ServerFault,
    Unreachable,
)
from carbontui.grid.providers.base import Provider, steps
from carbontui.grid.providers.frame import MixProvider
from carbontui.grid.types import Series

NOW = 1896998400.0 + 20 * 3600  # 11 Feb 2030, 20:00 UTC, noon in California
NAMES = sorted(ZONE_OF)


def made(name: str, site: Site, **how: object) -> Provider:
    kind = next(kind for kind in EVERY if kind.name == name)
    return kind(site.http(**how), site.settings())


async def probe(provider: Provider) -> Series:
    zone = ZONE_OF[provider.name]
    if provider.foresees:
        return (await provider.forecast(zone, NOW + 2 * 86400, NOW))[0]
    return (await provider.history(zone, NOW - 86400, NOW, NOW))[0]


@pytest.mark.parametrize("name", NAMES)
async def test_the_documented_shape_is_read_in_our_units(site: Site, name: str) -> None:
    site.respond = good(name, NOW)
    provider = made(name, site)
    series = await probe(provider)
    assert series.zone == ZONE_OF[name] and series.signal == provider.signal and series.source == provider.title
    starts = [row.start_s for row in series.rows]
    assert starts == sorted(set(starts)) and all(row.dur_s > 0 for row in series.rows)
    row = next(row for row in series.rows if row.start_s >= NOW - 5 * 3600)
    if name in ("eia", "entsoe"):
        gas, nuclear = 10 * level(row.start_s), 3000.0
        assert row.value == pytest.approx((490 * gas + 12 * nuclear) / (gas + nuclear), rel=1e-4)
    elif name == "octopus-agile":
        assert row.value == pytest.approx(level(row.start_s) * 0.1 / 100, rel=1e-4) and series.currency == "GBP"
    elif provider.signal == "price":
        assert row.value == pytest.approx(level(row.start_s) * 0.2 / 1000, rel=1e-4)
        assert series.currency == ("USD" if name == "caiso-price" else "EUR")
    else:
        assert row.value == pytest.approx(level(row.start_s) * operators.SCALE.get(name, 1.0), rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
async def test_history_holds_what_happened_and_nothing_of_the_future(site: Site, name: str) -> None:
    provider = made(name, site)
    if provider.signal == "price":
        pytest.skip("prices are asked for ahead only")
    site.respond = good(name, NOW)
    rows = (await provider.history(ZONE_OF[name], NOW - 86400, NOW, NOW))[0].rows
    assert {row.kind for row in rows} <= {"actual", "estimated"} and rows[-1].start_s <= NOW


def gone(*_: object, **__: object) -> list[object]:
    raise socket.gaierror("no such name")


def status(code: int, body: bytes = b"<html>no</html>", **headers: str) -> Callable[[Request], Answer]:
    return lambda request: Answer(body, code, headers)


FAULTS: dict[str, tuple[Callable[[Request], Answer], tuple[type[GridError], ...]]] = {
    "401": (status(401), (Denied,)),
    "403": (status(403), (Denied,)),
    "404": (status(404), (NotFound,)),
    "429": (status(429, **{"Retry-After": "77"}), (Busy,)),
    "500": (status(500, b'{"error": {"code": "500 Internal Server Error"}}'), (ServerFault,)),
    "empty list": (status(200, b"[]"), (NoData, BadAnswer)),
    "empty object": (status(200, b"{}"), (NoData, BadAnswer)),
    "empty body": (status(200, b""), (BadAnswer,)),
    "empty data": (status(200, b'{"data": [], "records": [], "results": []}'), (NoData, BadAnswer)),
    "a number": (status(200, b"7"), (NoData, BadAnswer)),
    "null": (status(200, b"null"), (NoData, BadAnswer)),
    "web page": (status(200, b"<!DOCTYPE html><html><body>Maintenance</body></html>"), (BadAnswer,)),
    "xml error": (status(200, b"<Acknowledgement_MarketDocument><Reason/></Acknowledgement_MarketDocument>"),
                  (NoData, BadAnswer)),
    "another shape": (status(200, b'{"data": {"x": [1]}, "records": [3], "results": {"a": 1}}'), (NoData, BadAnswer)),
    "not modified": (status(304), (BadAnswer,)),
    "moved nowhere": (status(302), (BadAnswer,)),
    "moved": (lambda request: Answer(b"x", 302, {"Location": "http://elsewhere.test/login"}), (BadAnswer,)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", NAMES)
async def test_a_fault_is_one_typed_line_without_a_key(site: Site, name: str, fault: str) -> None:
    site.respond, kinds = FAULTS[fault]
    with pytest.raises(kinds) as caught:
        await probe(made(name, site))
    text = str(caught.value)
    assert text and "\n" not in text and not any(secret in text for secret in SECRETS.values())
    if fault == "429":
        assert caught.value.retry_after_s == 77 and len(site.seen) == 1


async def test_a_key_is_not_carried_on_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answered(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.scheme)
        return httpx.Response(301, headers={"Location": "http://127.0.0.1/v3/latest"})

    real = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **how: real(**how, transport=httpx.MockTransport(answered)))
    with pytest.raises(BadAnswer, match=r"redirects to http://127\.0\.0\.1; not followed"):
        await Http().get(Question("https://127.0.0.1/v3/latest", headers={"auth-token": "secret"}))
    assert asked == ["https"]


@pytest.mark.parametrize("name", NAMES)
async def test_no_name_no_connection_no_answer_and_half_an_answer(site: Site, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", gone)
        with pytest.raises(Unreachable, match="cannot be resolved"):
            await probe(made(name, site))
        silent = threading.Event()
        patch.setattr(socket, "getaddrinfo", lambda *_, **__: silent.wait(5) and [])
        with pytest.raises(Unreachable, match="did not answer"):
            await probe(made(name, site, answer_s=0.15))
        silent.set()
    site.respond = lambda request: Answer(hang=True)
    with pytest.raises(Unreachable, match="did not answer"):
        await probe(made(name, site, answer_s=0.15))
    site.respond = lambda request: Answer(b'{"data": [', cut=True)
    with pytest.raises(Unreachable, match=r"the request to .* failed"):
        await probe(made(name, site, answer_s=30.0))
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        site.port = door.getsockname()[1]
    with pytest.raises(Unreachable, match="refused"):
        await probe(made(name, site, answer_s=30.0))


@pytest.mark.parametrize("name", NAMES)
async def test_a_truncated_answer_is_no_answer(site: Site, name: str) -> None:
    whole = good(name, NOW)
    site.respond = lambda request: (
        whole(request) if request.path.endswith("login") else Answer(whole(request).body[:-40])
    )
    if name in ("nyiso", "spp", "japan"):  # a table has no end mark: the last line is lost, the others stand
        assert (await probe(made(name, site))).rows
        return
    with pytest.raises(GridError):
        await probe(made(name, site))


@pytest.mark.parametrize("name", NAMES)
async def test_all_nulls_are_no_data(site: Site, name: str) -> None:
    site.respond = good(name, NOW, lambda t: None)
    with pytest.raises((NoData, BadAnswer)):
        await probe(made(name, site))


@pytest.mark.parametrize("name", sorted(set(NAMES) - operators.NOW_ONLY))
async def test_some_nulls_are_left_out(site: Site, name: str) -> None:
    hole = (NOW - 7 * 3600, NOW + 4 * 3600)
    site.respond = good(name, NOW, lambda t: None if hole[0] <= t < hole[1] else level(t))
    rows = (await probe(made(name, site))).rows
    assert rows and not any(hole[0] <= row.start_s < hole[1] for row in rows)


def leaps(name: str) -> bool:
    """Whether an answer can hold a leap: no price, and no mix, which never leaves its dirtiest fuel."""
    kind = next(kind for kind in EVERY if kind.name == name)
    return kind.signal != "price" and not issubclass(kind, MixProvider)


@pytest.mark.parametrize("name", filter(leaps, NAMES))
async def test_a_leap_of_ten_is_left_out(site: Site, name: str) -> None:
    glitch = {NOW - 10 * 3600 + 3600 * k for k in range(0, 40, 13)}
    hour = lambda t: math.floor(t / 3600) * 3600  # noqa: E731
    site.respond = good(name, NOW, lambda t: level(t) * (10 if hour(t) in glitch else 1))
    rows = (await probe(made(name, site))).rows
    assert max(row.value for row in rows) < 500


@pytest.mark.parametrize("name", ["electricity-maps", "watttime", "eia", "entsoe"])
async def test_an_answer_for_another_zone_is_refused(site: Site, name: str) -> None:
    real = good(name, NOW)

    def other(request: Request) -> Answer:
        body = real(request).body
        for mine, foreign in (
            (b'"FR"', b'"DE"'),
            (b"CAISO_NORTH", b"ERCOT_EAST"),
            (b"NYIS", b"PJM"),
            (b"10YNL-", b"10YXX-"),
        ):
            body = body.replace(mine, foreign)
        return Answer(body)

    site.respond = other
    with pytest.raises(BadAnswer, match=r"answered for|another zone"):
        await probe(made(name, site))


async def test_the_three_shapes_of_neso_and_a_wrong_region(site: Site) -> None:
    provider = made("neso", site)
    regional = good("neso", NOW)
    site.respond = regional
    first = (await provider.forecast("GB-13", NOW + 86400, NOW))[0]
    assert site.seen[-1].path.endswith(f"/{iso(NOW)}/{iso(NOW + 86400)}/regionid/13")
    site.respond = lambda request: told({"data": [json.loads(regional(request).body)["data"]]})
    assert (await provider.forecast("GB-13", NOW + 86400, NOW))[0].rows == first.rows
    past = (await provider.history("GB-13", NOW - 86400, NOW, NOW))[0].rows
    assert {row.kind for row in past} == {"estimated"}
    site.respond = lambda request: told({"data": {"regionid": 4, "data": []}})
    with pytest.raises(BadAnswer, match="region 4, not 13"):
        await provider.forecast("GB-13", NOW + 86400, NOW)


async def test_a_short_horizon_and_a_duplicate_record_are_no_fault(site: Site) -> None:
    record = {"from": iso(NOW), "to": iso(NOW + 1800), "intensity": {"forecast": 200, "actual": None}}
    later = {**record, "intensity": {"forecast": 210, "actual": None}}
    site.respond = lambda request: told({"data": [record, later]})
    series, notes = await made("neso", site).forecast("GB", NOW + 86400, NOW)
    assert [row.value for row in series.rows] == [210] and "duplicate" in notes[0]


async def test_unequal_arrays_of_energy_charts_are_refused(site: Site) -> None:
    site.respond = lambda request: told({"unix_seconds": [NOW, NOW + 900], "co2eq_forecast": [300.0]})
    with pytest.raises(BadAnswer, match="2 times but 1 values"):
        await probe(made("energy-charts", site))


async def test_prices_may_be_negative_and_change_their_step(site: Site) -> None:
    times = [NOW - 7200, NOW - 3600, NOW, NOW + 900, NOW + 1800]
    site.respond = lambda request: told({"unix_seconds": times, "price": [-12.5, 40, 41, 42, None]})
    rows = (await probe(made("energy-charts-price", site))).rows
    assert [(row.value, row.dur_s) for row in rows] == [(-0.0125, 3600), (0.04, 3600), (0.041, 900), (0.042, 900)]
    assert steps([0, 900, 1800, 5400, 9000], 900) == [900, 900, 3600, 3600, 3600]
    assert steps([0, 300, 3000, 3300], 300) == [300, 300, 300, 300]


async def test_a_lost_tariff_never_becomes_a_price_of_zero(site: Site) -> None:
    site.respond = lambda request: told({"count": 1, "next": None, "results": [
        {"value_inc_vat": None, "valid_from": iso(NOW), "valid_to": iso(NOW + 1800)}]})  # fmt: skip
    with pytest.raises(NoData):
        await probe(made("octopus-agile", site))


async def test_positions_left_out_under_a03_repeat_the_price_before(site: Site) -> None:
    second = "classificationSequence_AttributeInstanceComponent.position"
    body = f"""<Publication_MarketDocument xmlns="urn:x"><TimeSeries><curveType>A03</curveType><Period>
      <timeInterval><start>{iso(NOW)}</start><end>{iso(NOW + 6 * 3600)}</end></timeInterval>
      <resolution>PT60M</resolution>
      <Point><position>1</position><price.amount>40.5</price.amount></Point>
      <Point><position>4</position><price.amount>37</price.amount></Point></Period></TimeSeries>
      <TimeSeries><{second}>2</{second}>
      <Period><timeInterval><start>{iso(NOW)}</start><end>{iso(NOW + 3600)}</end></timeInterval>
      <resolution>PT15M</resolution>
      <Point><position>1</position><price.amount>99</price.amount></Point></Period></TimeSeries></Publication_MarketDocument>"""
    site.respond = lambda request: Answer(body.encode())
    rows = (await probe(made("entsoe-price", site))).rows
    assert [row.value * 1000 for row in rows] == pytest.approx([40.5, 40.5, 40.5, 37, 37, 37])


async def test_an_xml_error_inside_a_zip_is_no_data(site: Site) -> None:
    site.respond = lambda request: Answer(zipped("INVALID.xml", "<m:ERROR><m:ERR_CODE>1000</m:ERR_CODE></m:ERROR>"))
    with pytest.raises(NoData, match="XML error"):
        await probe(made("caiso-price", site))


async def test_a_document_type_is_refused_unread(site: Site) -> None:
    site.respond = lambda request: Answer(b'<!DOCTYPE x [<!ENTITY a "b">]><GL_MarketDocument/>')
    with pytest.raises(BadAnswer, match="document type"):
        await probe(made("entsoe", site))


async def test_an_hour_without_one_of_its_fuels_is_no_clean_hour(site: Site) -> None:
    rows = [
        {"period": iso(NOW - 7200 + 3600 * k, "%Y-%m-%dT%H"), "respondent": "NYIS", "fueltype": fuel, "value": value}
        for k in range(3)
        for fuel, value in (("NG", None if k == 1 else 5000), ("WAT", 3000), ("BAT", -400))
    ]
    site.respond = lambda request: told({"response": {"data": rows}})
    found = (await probe(made("eia", site))).rows
    # the stamp ends the hour: the first row began three hours before now
    assert found[0].start_s == NOW - 3 * 3600
    assert all(row.value == pytest.approx((490 * 5000 + 24 * 3000) / 8000) for row in found)
    assert intensity_g_per_kwh({"coal": 0.0, "gas": -3.0}) is None


async def test_the_autumn_hour_that_comes_twice_in_california(site: Site) -> None:
    midnight = 1919833200.0  # 2 Nov 2030, 07:00 UTC; clocks go back on 3 Nov 2030 at 09:00 UTC
    now_s = midnight + 86400 + 12 * 3600
    site.respond = good("caiso", now_s)
    rows = (await made("caiso", site).history("US-CAL-CISO", now_s - 3600, now_s, now_s))[0].rows
    starts = [row.start_s for row in rows]
    assert all(b - a == 300 for a, b in pairwise(starts))
    assert all(row.value == pytest.approx(level(row.start_s), rel=1e-3) for row in rows)


async def test_watttime_logs_in_again_once_when_its_token_ran_out(site: Site) -> None:
    real, tokens = good("watttime", NOW), iter(["old", "new"])

    def respond(request: Request) -> Answer:
        if request.path == "/login":
            return told({"token": next(tokens)})
        return real(request) if request.headers["authorization"] == "Bearer new" else Answer(b"{}", 401)

    site.respond = respond
    assert (await probe(made("watttime", site))).rows
    assert [request.path for request in site.seen] == ["/login", "/v3/forecast", "/login", "/v3/forecast"]


async def test_a_free_electricity_maps_key_still_gives_the_last_day(site: Site) -> None:
    real = good("electricity-maps", NOW)
    site.respond = lambda request: Answer(b"{}", 401) if "past-range" in request.path else real(request)
    assert (await made("electricity-maps", site).history("FR", NOW - 10 * 86400, NOW, NOW))[0].rows
    assert site.seen[-1].query["shouldUseFallbackCallerLookup"] == ["false"]


async def test_keys_stay_out_of_every_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in NAMES:
        for respond in (good(name, NOW), status(500)):
            site.respond = respond
            try:
                await probe(made(name, site))
            except GridError as error:
                logging.getLogger("any").info("%r", error)
    assert not any(secret in caplog.text for secret in SECRETS.values())
    assert "s3cret" not in repr(site.settings())


async def test_what_has_to_be_asked_a_minute_apart_is_not_asked_again_at_once(site: Site) -> None:
    """A request that is too late for us has been counted by the service: the next within its minute is refused."""
    for name, asked in (("energi-data-service", 1), ("miso", 1), ("neso", 2)):
        site.seen.clear()
        site.respond = status(500)
        with pytest.raises(ServerFault):
            await probe(made(name, site))
        assert len(site.seen) == asked, name


async def test_retry_after_may_be_a_date_and_is_bounded(site: Site) -> None:
    when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 90))
    for header, low, high in ((when, 60, 120), ("1e9", 86400, 86400), ("soon", 300, 300), ("-5", 1, 1)):
        site.respond = status(429, **{"Retry-After": header})
        with pytest.raises(Busy) as caught:
            await probe(made("neso", site))
        assert caught.value.retry_after_s is not None and low <= caught.value.retry_after_s <= high
