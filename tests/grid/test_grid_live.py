"""The feed against the local provider: first answer at once, faults told in one line, one request per window."""

from __future__ import annotations

import asyncio
import fcntl
import json
import stat
import threading
from pathlib import Path

import operators
import pytest
from grid_site import SECRETS, ZONE_OF, Answer, Request, Site, good, level, told

from carbontui.grid import cache, issues, live
from carbontui.grid.choose import AVERAGE
from carbontui.grid.feed import Feed
from carbontui.grid.forecast import answer
from carbontui.grid.http import NoData
from carbontui.grid.providers.neso import Neso
from carbontui.grid.settings import KeyFileError, read_keys

NOW = 1896998400.0 + 20 * 3600


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW

    def __call__(self) -> float:
        return self.now_s


def feed_at(
    site: Site, zone: str = "GB", clock: Clock | None = None, cache: Path | None = None, **more: object
) -> Feed:
    http = site.http(answer_s=more.pop("answer_s", 5.0))
    return Feed(zone, settings=site.settings(**more), now=clock or Clock(), cache=cache, http=http)


async def test_a_day_with_neso_past_future_source_and_band(site: Site) -> None:
    site.respond = good("neso", NOW)
    feed = feed_at(site)
    await feed.refresh()
    seen = feed.outlook(NOW, 86400, 86400, 900.0)
    assert seen is not None and seen.how == "forecast" and "NESO" in seen.source and seen.realised == 96
    for k, value in enumerate(seen.mean):
        half_hour = (seen.start_s + 900 * k) // 1800 * 1800
        assert value == pytest.approx(level(half_hour), abs=1.0)
    assert all(lo < mean < hi for lo, mean, hi in zip(seen.lo[97:], seen.mean[97:], seen.hi[97:], strict=True))
    assert [state.state for state in feed.sources][:2] == ["answers", "not asked"]
    kinds = {row.kind for row in feed.realised(NOW - 7200, NOW)}
    assert kinds == {"actual", "forecast"}  # the newest half hour has no measured value yet


async def test_history_grows_until_the_own_forecast_can_learn(site: Site) -> None:
    site.respond = good("neso", NOW)
    clock = Clock()
    feed = feed_at(site, clock=clock)
    await feed.refresh()
    request = feed.forecast_request(NOW, 96, 900.0)
    assert request is not None and json.loads(json.dumps(request)) == request
    assert len(request["published"]) == 1
    feed.adopt(answer(request))
    seen = feed.outlook(NOW, 0, 86400, 900.0)
    assert seen is not None and "own forecast" in seen.source and "NESO" in seen.source


async def test_a_successor_knows_what_was_published_in_the_weeks_before(site: Site, tmp_path: Path) -> None:
    clock = Clock()
    feed = feed_at(site, clock=clock, cache=tmp_path)
    for hour in range(0, 20, 2):
        clock.now_s = NOW + hour * 3600
        site.respond = good("neso", clock.now_s, lambda t, hour=hour: level(t) + hour)
        await feed.refresh()
    published = feed.forecast_request(clock.now_s, 96, 900.0)["published"]
    assert [(issue["issued_at_s"] - NOW) / 3600 for issue in published] == [0, 6, 12, 18]
    assert [issue["values"][0] - level(issue["times_s"][0]) for issue in published] == pytest.approx([0, 6, 12, 18])
    site.respond = lambda request: Answer(b"", 500)
    clock.now_s += 600
    successor = feed_at(site, clock=clock, cache=tmp_path)
    await successor.refresh()
    assert successor.forecast_request(clock.now_s, 96, 900.0)["published"] == published
    clock.now_s += 3600
    site.respond = good("neso", clock.now_s)
    await asyncio.gather(feed.refresh(), successor.refresh())
    for each in (feed, successor):
        times = [issue["issued_at_s"] for issue in each.forecast_request(clock.now_s, 96, 900.0)["published"]]
        assert times == [*(issue["issued_at_s"] for issue in published), clock.now_s]


def test_what_is_kept_of_published_forecasts_is_bounded_and_the_newest_always_is() -> None:
    def issue(hour: float, values: int) -> dict[str, object]:
        return {"issued_at_s": hour * 3600.0, "times_s": [0.0] * values, "values": [1.0] * values}

    month = [issue(hour, 4) for hour in range(24 * 40)]
    kept = issues.merged(month, month[-1]["issued_at_s"])
    assert 120 <= len(kept) <= 122 and kept[-1] is month[-1]
    held: issues.Issues = []
    for one in month:  # one after the other, as they come
        held = issues.merged([*held, one], one["issued_at_s"])
    assert abs(len(held) - len(kept)) <= 1 and held[-1] is month[-1]
    long = issues.merged([issue(hour, 20_000) for hour in range(0, 96, 6)], 96 * 3600.0)
    assert [one["issued_at_s"] / 3600 for one in long] == [78, 84, 90]
    assert len(issues.merged([issue(0, 200_000)], 0.0)) == 1


async def test_the_first_outlook_does_not_wait_for_a_silent_provider(site: Site) -> None:
    site.respond = lambda request: Answer(hang=True)
    feed = feed_at(site)
    asking = asyncio.create_task(feed.refresh())
    while not site.seen:
        await asyncio.sleep(0.005)
    seen = feed.outlook(NOW, 0, 86400, 900.0)
    assert seen is not None and seen.how == "default" and None not in seen.mean
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_forecast_that_never_comes_does_not_hold_up_the_values_of_now(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Neso, "forecast", never)
    monkeypatch.setattr(live, "QUESTION_S", 1.5)
    monkeypatch.setattr(live, "REFRESH_S", 8.0)
    site.respond = good("neso", NOW)
    feed = feed_at(site)
    await feed.refresh()
    assert feed.outlook(NOW, 6 * 3600, 3600, 900.0).mean[0] == pytest.approx(level(NOW - 6 * 3600), abs=2)
    assert "took longer" in state_of(feed, "neso").note


BROKEN: dict[str, Answer] = {
    "401": Answer(b"x", 401),
    "403": Answer(b"<html>", 403),
    "404": Answer(b"", 404),
    "429": Answer(b"", 429, {"Retry-After": "900"}),
    "500": Answer(b"{}", 500),
    "[]": Answer(b"[]"),
    "{}": Answer(b"{}"),
    "html": Answer(b"<html>sorry</html>"),
    "cut": Answer(b'{"data": [{"from": "2030-'),
    "hang": Answer(hang=True),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_every_fault_falls_back_to_typical_days_in_one_line(site: Site, fault: str) -> None:
    site.respond = lambda request: BROKEN[fault]
    feed = feed_at(site, answer_s=0.1 if fault == "hang" else 5.0)
    await feed.refresh()
    seen = feed.outlook(NOW, 0, 86400, 900.0)
    assert seen is not None and seen.how == "default" and "typical days" in seen.source
    assert feed.note and "\n" not in feed.note and seen.note == feed.note
    assert not any(secret in feed.note for secret in SECRETS.values())
    assert feed.next_refresh_s() > NOW
    if fault == "429":
        # the next source may be asked at any time, the busy one not before its hour
        count = len([r for r in site.seen if r.path.startswith("/intensity")])
        await feed.refresh()
        assert len([r for r in site.seen if r.path.startswith("/intensity")]) == count


async def test_stale_values_are_not_taken_for_fresh_ones(site: Site) -> None:
    real = good("neso", NOW - 30 * 3600)

    def respond(request: Request) -> Answer:
        return told({"data": []}) if "fw48h" in request.path else real(request)

    site.respond = respond
    feed = feed_at(site)
    await feed.refresh()
    assert feed.sources[0].state in ("stale", "fails") and feed.note
    seen = feed.outlook(NOW, 3600, 86400, 900.0)
    assert seen is not None and seen.how in ("estimated", "default") and seen.mean[0] is None


async def test_the_last_good_answer_is_kept_when_the_source_falls_silent(site: Site) -> None:
    clock = Clock()
    site.respond = good("neso", NOW)
    feed = feed_at(site, clock=clock)
    await feed.refresh()
    site.respond = lambda request: Answer(b"", 500)
    clock.now_s += 2000
    await feed.refresh()
    seen = feed.outlook(clock.now_s, 0, 3600, 900.0)
    assert seen is not None and seen.how == "forecast" and seen.mean[0] == pytest.approx(level(NOW + 1800), abs=2)
    assert "500" in feed.note or feed.sources[0].state == "answers"


async def test_a_second_source_takes_over_with_nothing_of_the_first_left_in_the_series(site: Site) -> None:
    clock = Clock()
    charts, maps = good("energy-charts", NOW), good("electricity-maps", NOW, lambda t: level(t) + 50)
    site.respond = lambda request: charts(request) if "co2eq" in request.path else maps(request)
    feed = feed_at(site, "DE", clock)
    await feed.refresh()
    assert "Energy-Charts" in feed.outlook(NOW, 0, 3600, 900.0).source
    clock.now_s += 5 * 3600
    maps = good("electricity-maps", clock.now_s, lambda t: level(t) + 50)
    site.respond = lambda request: Answer(b"", 500) if "co2eq" in request.path else maps(request)
    await feed.refresh()
    seen = feed.outlook(clock.now_s, 3 * 3600, 3600, 3600.0)
    if "Energy-Charts" not in seen.source:
        assert "Electricity Maps" in seen.source and "500" in feed.note
        assert seen.mean[0] == pytest.approx(level(seen.start_s) + 50)


async def test_twenty_feeds_on_one_machine_make_one_request_per_question(site: Site, tmp_path: Path) -> None:
    site.respond = good("neso", NOW)
    feeds = [feed_at(site, cache=tmp_path) for _ in range(20)]
    await asyncio.gather(*(feed.refresh() for feed in feeds))
    paths = [request.path for request in site.seen]
    assert len([path for path in paths if path.endswith("fw48h")]) == 1
    assert len(paths) == len(set(paths)) == 3  # forecast, history, one older stretch
    assert all(feed.outlook(NOW, 0, 3600, 900.0).how == "forecast" for feed in feeds)


async def test_an_outage_of_two_days_changes_nothing_but_a_label(site: Site, tmp_path: Path) -> None:
    """Forecast and band go on, from what is known; nothing new is called measured; the line says who is silent."""
    clock = Clock()
    site.respond = lambda request: good("neso", clock.now_s)(request)
    feed = feed_at(site, clock=clock, cache=tmp_path)
    for _ in range(12):
        await feed.refresh()
        clock.now_s = max(clock.now_s + 600, feed.next_refresh_s())
    feed.adopt(answer(feed.forecast_request(clock.now_s, 96, 900.0)))
    assert feed.note == ""
    silent_s = clock.now_s
    site.respond = lambda request: Answer(b"", 503)
    site.seen.clear()
    for hour in range(1, 49):
        clock.now_s = silent_s + 3600 * hour
        await feed.refresh()
        feed.adopt(answer(feed.forecast_request(clock.now_s, 96, 900.0)))
        seen = feed.outlook(clock.now_s, 3600.0, 86400.0, 900.0)
        ahead = list(zip(seen.lo, seen.mean, seen.hi, strict=True))[seen.realised :]
        assert all(lo is not None and lo <= mean <= hi for lo, mean, hi in ahead)
        assert max(abs(mean - level(seen.start_s + 900 * k)) for k, mean in enumerate(seen.mean) if mean) < 60
        assert ("503" in feed.note or hour <= 3) and "\n" not in feed.note
        assert not [row for row in feed.realised(silent_s + 1800, clock.now_s) if row.kind == "actual"]
    assert len(site.seen) < 48 * 8, "a source that is down is not hammered"
    site.respond = lambda request: good("neso", clock.now_s)(request)
    clock.now_s += 3 * 3600
    await feed.refresh()
    assert feed.note == "" and any(row.kind == "actual" for row in feed.realised(clock.now_s - 7200, clock.now_s))


async def test_the_cache_serves_a_new_process_without_network_and_holds_no_key(site: Site, tmp_path: Path) -> None:
    site.respond = good("electricity-maps", NOW)
    await feed_at(site, "FR", cache=tmp_path).refresh()
    assert site.seen
    text = b"".join(path.read_bytes() for path in tmp_path.glob("*.json")).decode()
    assert "3" in text and not any(secret in text for secret in SECRETS.values())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    site.seen.clear()
    later = feed_at(site, "FR", cache=tmp_path)
    await later.refresh()
    answered = [r for r in site.seen if "carbon-intensity" in r.path and "past-range" not in r.path]
    assert not answered and later.outlook(NOW, 3600, 3600, 900.0).how == "forecast"


async def test_a_damaged_cache_is_asked_anew(site: Site, tmp_path: Path) -> None:
    site.respond = good("neso", NOW)
    await feed_at(site, cache=tmp_path).refresh()
    for path in tmp_path.glob("*.json"):
        path.write_text('{"v": 1, "series": {"rows')
    feed = feed_at(site, cache=tmp_path)
    await feed.refresh()
    assert feed.outlook(NOW, 0, 3600, 900.0).how == "forecast"


@pytest.mark.parametrize("cell", [b'"next_s":"soon"', b'"rows":[[null,1,2]]', b'"rows":[["x",1,2]]', b'"notes":7'])
async def test_a_cache_of_the_wrong_types_is_asked_anew(site: Site, tmp_path: Path, cell: bytes) -> None:
    site.respond = good("neso", NOW)
    await feed_at(site, cache=tmp_path).refresh()
    for path in tmp_path.glob("*.json"):
        place = b'"series":{' if b"rows" in cell else b"{"
        path.write_bytes(path.read_bytes().replace(place, place + cell + b",", 1))
    feed = feed_at(site, cache=tmp_path)
    asked = len(site.seen)
    await feed.refresh()
    assert len(site.seen) > asked
    assert feed.outlook(NOW, 0, 3600, 900.0).how == "forecast" and "failed" not in feed.note


async def test_an_unwritable_cache_does_not_matter(site: Site, tmp_path: Path) -> None:
    site.respond = good("neso", NOW)
    blocked = tmp_path / "file"
    blocked.write_text("")
    feed = feed_at(site, cache=blocked / "grid")
    await feed.refresh()
    assert feed.outlook(NOW, 0, 3600, 900.0).how == "forecast"


async def test_a_disk_that_takes_no_writes_does_not_make_us_ask_again_and_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.paths, "write_whole", full)
    site.respond = lambda request: Answer(b"", 429, {"Retry-After": "3600"})
    feed = feed_at(site, cache=tmp_path)
    await feed.refresh()
    asked = len(site.seen)
    await feed.refresh()
    assert asked and len(site.seen) == asked


async def test_an_answer_from_the_future_does_not_keep_us_from_asking(site: Site, tmp_path: Path) -> None:
    """The machine's clock was a year ahead when the cache was written, and has been set right since."""
    ahead = Clock()
    ahead.now_s = NOW + 366 * 86400.0
    site.respond = good("neso", ahead.now_s)
    await feed_at(site, clock=ahead, cache=tmp_path).refresh()
    site.respond = good("neso", NOW)
    feed = feed_at(site, cache=tmp_path)
    await feed.refresh()
    assert feed.outlook(NOW, 0, 3600, 900.0).how == "forecast"


async def test_marginal_never_falls_back_to_average(site: Site) -> None:
    site.respond = lambda request: Answer(b"", 500)
    feed = feed_at(site, "US-CAL-CISO", marginal=True)
    await feed.refresh()
    assert {state.name for state in feed.sources} == {"watttime"}
    assert feed.outlook(NOW, 0, 3600, 900.0) is None and feed.note


async def test_prices_come_in_the_currency_asked_for_or_not_at_all(site: Site) -> None:
    carbon, price = good("energy-charts", NOW), good("energy-charts-price", NOW)
    site.respond = lambda request: price(request) if request.path.endswith("price") else carbon(request)
    feed = feed_at(site, "DE", currency="EUR")
    await feed.refresh()
    seen = feed.outlook(NOW, 0, 3600, 900.0)
    assert seen.currency == "EUR" and seen.price[0] == pytest.approx(level(NOW) * 0.2 / 1000, rel=1e-3)
    other = feed_at(site, "DE", currency="USD")
    await other.refresh()
    assert other.outlook(NOW, 0, 3600, 900.0).price == ()
    flat = feed_at(site, "DE", currency="USD", price_per_kwh=0.25)
    assert flat.outlook(NOW, 0, 3600, 900.0).price[0] == 0.25


async def test_a_wrong_clock_is_told(site: Site) -> None:
    real = good("neso", NOW)

    def respond(request: Request) -> Answer:
        reply = real(request)
        return Answer(reply.body, headers={"Date": "Mon, 11 Feb 2030 20:00:00 GMT"})

    site.respond = respond
    feed = feed_at(site)
    await feed.refresh()
    assert "clock is" in feed.note and "behind the provider" in feed.note


def test_keys_come_from_a_private_file_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys.env"
    assert read_keys(path, {}) == {}
    path.write_text("# mine\nEIA_API_KEY=abc\n")
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        read_keys(path, {})
    path.chmod(0o600)
    assert read_keys(path, {"ENTSOE_TOKEN": "t", "HOME": "/"}) == {"EIA_API_KEY": "abc", "ENTSOE_TOKEN": "t"}
    assert read_keys(path, {"EIA_API_KEY": "other"})["EIA_API_KEY"] == "other"
    assert read_keys(path, {"EIA_API_KEY": " pasted\r\n", "ENTSOE_TOKEN": " "}) == {"EIA_API_KEY": "pasted"}
    path.write_text("EIA_KEY=very-secret\n")
    with pytest.raises(KeyFileError) as caught:
        read_keys(path, {})
    assert "very-secret" not in str(caught.value) and "line 1" in str(caught.value)


CARBON = sorted(kind.name for kind in AVERAGE)


def state_of(feed: Feed, name: str):
    return next(state for state in feed.sources if state.name == name)


@pytest.mark.parametrize("name", CARBON)
async def test_each_provider_feeds_an_outlook_of_its_own(site: Site, name: str) -> None:
    real = good(name, NOW)
    site.respond = lambda request: answered_by(name, request, real)
    feed = feed_at(site, ZONE_OF[name])
    await feed.refresh()
    assert state_of(feed, name).state == "answers", state_of(feed, name)
    seen = feed.outlook(NOW, 6 * 3600, 86400, 3600.0)
    assert seen is not None and state_of(feed, name).title in (seen.source, feed.past_source)
    assert all(value is not None for value in seen.mean[7:])
    assert any(row.kind in ("actual", "estimated") for row in feed.realised(NOW - 6 * 3600, NOW))


@pytest.mark.parametrize("name", CARBON)
async def test_stale_values_of_any_provider_are_told_as_stale(site: Site, name: str) -> None:
    real = good(name, NOW - 4 * 86400)

    def respond(request: Request) -> Answer:
        reply = answered_by(name, request, real)
        # four days before NOW; only CAISO needs it, whose table bears no date
        return Answer(reply.body, reply.status, {"Last-Modified": "Thu, 07 Feb 2030 20:00:00 GMT"})

    site.respond = respond
    feed = feed_at(site, ZONE_OF[name])
    await feed.refresh()
    assert state_of(feed, name).state in ("stale", "fails")
    assert feed.note and "\n" not in feed.note and feed.outlook(NOW, 0, 3600, 900.0) is not None


@pytest.mark.parametrize("name", sorted(set(CARBON) - operators.NOW_ONLY))
async def test_a_provider_whose_clock_is_an_hour_ahead_shows_no_future_as_past(site: Site, name: str) -> None:
    real = good(name, NOW + 3600)
    site.respond = lambda request: answered_by(name, request, real)
    feed = feed_at(site, ZONE_OF[name])
    await feed.refresh()
    seen = feed.outlook(NOW, 3 * 3600, 3600, 900.0)
    assert seen is not None and seen.realised == 12
    assert all(row.kind == "forecast" or row.start_s <= NOW + 900 for row in feed.realised(NOW - 3600, NOW + 7200))


def answered_by(name: str, request: Request, real) -> Answer:
    """Only the provider in question answers; what else covers the zone is not to be found."""
    marks = {
        "neso": "/intensity", "energi-data-service": "/dataset/CO2", "energy-charts": "/co2eq",
        "electricity-maps": "/carbon-intensity", "entsoe": "/api", "eia": "/v2/electricity",
        "caiso": "/current/|/history/|SingleZip",
        **operators.MARKS,
    }  # fmt: skip
    return real(request) if any(mark in request.path for mark in marks[name].split("|")) else Answer(b"", 404)


async def test_an_answer_that_takes_long_to_read_holds_up_nobody(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, free = threading.Event(), threading.Event()
    waited = []

    async def history(self: Neso, *asked: object) -> None:
        reading.set()
        waited.append(free.wait(10))
        raise NoData("nothing")

    monkeypatch.setattr(Neso, "history", history)
    site.respond = good("neso", NOW)
    refreshing = asyncio.ensure_future(feed_at(site).refresh())
    while not reading.is_set():
        await asyncio.sleep(0.001)
    free.set()
    await refreshing
    assert waited == [True]


async def test_where_no_source_answers_the_line_says_what_is_used_instead(site: Site) -> None:
    site.respond = lambda _request: Answer(status=503)
    feed = feed_at(site)
    await feed.refresh()
    assert "503" in feed.note and "meanwhile using typical days of GB" in feed.note


async def test_a_lock_held_too_long_costs_one_question_not_the_whole_round(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "LOCK_S", 0.1)
    site.respond = good("neso", NOW)
    feed = feed_at(site, cache=tmp_path)
    with (tmp_path / "neso-GB-history.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await feed.refresh()
    states = [state.note for state in feed.sources]
    assert "taking too long" in states[0], states
    assert feed.outlook(NOW, 86400, 86400, 900.0).how == "forecast" and "failed" not in feed.note
