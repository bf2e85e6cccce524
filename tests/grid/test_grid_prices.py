"""Prices: published ones are exact, beyond them an own forecast with a band; negative ones are prices; a zone of prices
may be another than that of the intensity."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from pathlib import Path

import pytest
from grid_site import Answer, Request, Site, good, told
from test_grid_live import NOW, Clock, feed_at

from carbontui.grid import opening, prices
from carbontui.grid.forecast import answer
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import Row, Series

DAY = 86400.0
HORIZON_S = NOW // DAY * DAY + 2 * DAY
"""The market has published the whole of the next day."""


def euros(at_s: float) -> float:
    """EUR/kWh: cheap at noon, below zero on every second day."""
    low = 0.16 if int(at_s // DAY) % 2 else 0.08
    return round(0.1 - low * math.exp(-(((at_s % DAY) / 3600 - 12) ** 2) / 8), 5)


def market(request: Request) -> Answer:
    def moment(name: str) -> float:
        return datetime.fromisoformat(request.query[name][0].replace("Z", "+00:00")).timestamp()

    first_s, last_s = moment("start") // 900 * 900, min(moment("end"), HORIZON_S)
    times = [first_s + k * 900 for k in range(max(0, math.ceil((last_s - first_s) / 900)))]
    return told({"unix_seconds": times, "price": [1000 * euros(at) for at in times], "unit": "EUR / MWh"})


async def priced(site: Site, clock: Clock, rounds: int):
    carbon = good("energy-charts", NOW)
    site.respond = lambda request: market(request) if request.path.endswith("price") else carbon(request)
    feed = feed_at(site, "DE", clock=clock, currency="EUR")
    for _ in range(rounds):
        await feed.refresh()
        clock.now_s = feed.next_refresh_s()
    clock.now_s = NOW + 3600
    return feed


async def test_beyond_what_the_market_has_published_stands_an_own_forecast_with_a_band(site: Site) -> None:
    feed = await priced(site, Clock(), rounds=6)
    asked = feed.price_request(NOW, 4 * 96, 900.0)
    assert asked is not None and asked["now_s"] == HORIZON_S and len(asked["values"]) > 40 * 96
    before = feed.outlook(NOW, 0.0, 4 * DAY, 900.0)
    feed.adopt_price(answer(asked))
    seen = feed.outlook(NOW, 0.0, 4 * DAY, 900.0)
    assert "day-ahead price; beyond it own forecast" in seen.price_source
    known = round((HORIZON_S - seen.start_s) / 900)
    for k, (value, lo, hi) in enumerate(zip(seen.price, seen.price_lo, seen.price_hi, strict=True)):
        at_s = seen.start_s + 900 * k
        if k < known:
            assert value == lo == hi == pytest.approx(euros(at_s))
        else:
            assert lo <= value <= hi
    ahead = [(seen.price[k], before.price[k], euros(seen.start_s + 900 * k)) for k in range(known, known + 96)]
    ours, naive = (sum(abs(pair[i] - pair[2]) for pair in ahead) for i in (0, 1))
    assert ours < 0.5 * naive, "it has learned that every second day is cheap"
    assert before.price_lo[known] is None, "nobody knows how far off the same hour of the last day is"


async def test_negative_prices_stay_negative_published_and_expected(site: Site) -> None:
    feed = await priced(site, Clock(), rounds=6)
    feed.adopt_price(answer(feed.price_request(NOW, 4 * 96, 900.0)))
    seen = feed.outlook(NOW, 0.0, 4 * DAY, 900.0)
    assert min(seen.price) < -0.03 and min(euros(seen.start_s + 900 * k) for k in range(len(seen.price))) < -0.03
    beyond = round((HORIZON_S - seen.start_s) / 900)
    assert min(seen.price[beyond:]) < 0 and min(seen.price_lo[beyond:]) < min(seen.price[beyond:])


async def test_a_country_of_several_price_zones_says_which_to_name(site: Site) -> None:
    site.respond = good("energy-charts", NOW)
    feed = feed_at(site, "DK", currency="EUR")
    await feed.refresh()
    assert "set price_zone to DK-DK1 or DK-DK2" in feed.note
    assert feed.outlook(NOW, 0.0, DAY, 900.0).price == ()
    carbon = good("energy-charts", NOW)
    site.respond = lambda request: (
        good("energi-data-price", NOW)(request) if "DayAhead" in request.path else carbon(request)
    )
    wrong = feed_at(site, "DK", currency="EUR", price_zone="DK-DK7")
    await wrong.refresh()
    assert "price_zone DK-DK7: no source has its prices in EUR" in wrong.note
    named = feed_at(site, "DK", currency="EUR", price_zone="DK-DK2")
    await named.refresh()
    assert named.zone == "DK" and named.outlook(NOW, 0.0, 3600, 900.0).price[0] is not None
    assert any('"DK2"' in request.query["filter"][0] for request in site.seen if "DayAhead" in request.path)


def test_too_few_prices_teach_nothing() -> None:
    few = Series("DE", "price", tuple(Row(NOW + 3600 * k, 3600, 0.1) for k in range(24)), "a market", currency="EUR")
    assert prices.request(few, NOW + 4 * DAY, "DE") is None
    assert prices.request(None, NOW + 4 * DAY, "DE") is None


def test_a_stale_own_forecast_of_prices_is_not_used() -> None:
    stamp = datetime.fromtimestamp(NOW, tz=timezone.utc).timestamp() // 3600 * 3600
    known = Series("DE", "price", tuple(Row(stamp + 3600 * k, 3600, 0.1) for k in range(24)), "a market")
    old = {"now_s": stamp - 2 * DAY, "step_s": 3600.0, "mean": [0.5] * 96, "lo": [0.4] * 96, "hi": [0.6] * 96}
    laid = prices.laid_out(known, old, None, stamp, 3600.0, 48)
    assert laid.mean[30] == 0.1 and laid.lo[30] is None and "last known day" in laid.source


def recording(path: Path, column: str, days: int = 3) -> Path:
    """A CSV of hours from NOW's day on, whose price is its hour of the day."""
    first_s = NOW // DAY * DAY
    rows = [
        f"{datetime.fromtimestamp(first_s + 3600 * k, timezone.utc):%Y-%m-%dT%H:%M:%SZ},300,{k % 24}"
        for k in range(24 * days)
    ]
    path.write_text("\n".join([f"time_utc,carbon_g_per_kwh,{column}", *rows]))
    return path


@pytest.mark.parametrize("hour, known_days", [(9, 1), (14, 2)])
def test_a_price_column_of_a_recording_is_known_as_far_as_a_market_tells_it(
    tmp_path: Path, hour: int, known_days: int
) -> None:
    path, now_s = recording(tmp_path / "grid.csv", "price_eur_per_mwh"), NOW // DAY * DAY + hour * 3600
    settings = opening.settings(GridSettings(currency="EUR"))
    feed = opening.open_feed("DE", settings=settings, now=lambda: now_s, grid_file=path)
    seen = feed.outlook(now_s, 0.0, 60 * 3600.0, 3600.0)
    assert seen is not None and seen.currency == "EUR" and feed.note == ""
    published = [lo is not None for lo in seen.price_lo]
    assert sum(published) == known_days * 24 - hour and seen.price[0] == pytest.approx(hour / 1000)


@pytest.mark.parametrize(
    "column, currency, said",
    [
        ("price_eur_per_kwh", None, "not used: add --currency EUR"),
        ("price_eur_per_kwh", "USD", "in EUR, not in USD"),
        ("Price", "EUR", "columns of grid.csv not used: Price"),
    ],
)
def test_a_column_that_is_not_used_is_said(tmp_path: Path, column: str, currency: str | None, said: str) -> None:
    path = recording(tmp_path / "grid.csv", column)
    settings = opening.settings(GridSettings(currency=currency))
    feed = opening.open_feed("DE", settings=settings, now=lambda: NOW, grid_file=path)
    seen = feed.outlook(NOW, 0.0, DAY, 3600.0)
    assert said in feed.note and seen is not None and not any(seen.price)
