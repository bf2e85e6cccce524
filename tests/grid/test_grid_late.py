"""Late sources and outages: the forecast is that of the last known hour, its band is as wide as that is old, and the
age is said."""

from __future__ import annotations

import pytest
from grid_site import ZONE_OF, Answer, Site, good
from test_grid_live import NOW, Clock, answered_by, feed_at

from carbontui.grid.feed import Feed
from carbontui.grid.forecast import answer
from carbontui.grid.types import GridForecast
from carbontui.text import sources

HOUR = 3600.0
MADE_LATE_H = {"energy-charts": 0.25, "entsoe": 0.0, "eia": 3.0}
"""How late the local server is by itself."""


def forecast_of(feed: Feed, now_s: float) -> GridForecast:
    """As a job has it: the worker's forecast taken."""
    request = feed.forecast_request(now_s, 48, HOUR)
    assert request is not None
    feed.adopt(answer(request))
    found = feed.outlook(now_s, 0.0, 48 * HOUR, HOUR)
    assert found is not None
    return found


def width(outlook: GridForecast) -> float:
    """Of the first six hours' band, g: a plan's spread is made of it."""
    return sum(hi - lo for lo, hi in zip(outlook.lo[:6], outlook.hi[:6], strict=True) if lo is not None and hi)


@pytest.mark.parametrize("late_h", [1, 6, 36])
@pytest.mark.parametrize("name", sorted(MADE_LATE_H))
async def test_a_source_that_is_late_is_forecast_from_where_it_ends(site: Site, name: str, late_h: int) -> None:
    made = {}
    for late in (0, late_h):
        real = good(name, NOW - late * HOUR)
        site.respond = lambda request, real=real: answered_by(name, request, real)
        feed = feed_at(site, ZONE_OF[name])
        await feed.refresh()
        made[late] = forecast_of(feed, NOW)
        shown = made[late].intensity(NOW)
        assert shown is not None and shown.age_s == pytest.approx((late + MADE_LATE_H[name]) * HOUR, abs=HOUR)
        assert all(value is not None for value in made[late].mean)
    assert sources.age(shown, NOW).startswith(f"{ZONE_OF[name]} until ")
    assert sources.age(shown, NOW).endswith(" ago; forecast since")
    assert width(made[late_h]) > 1.02 * width(made[0])


async def test_an_outage_widens_the_band_and_answers_that_begin_again_narrow_it(site: Site) -> None:
    clock = Clock()
    real = good("energy-charts", NOW)
    site.respond = lambda request: answered_by("energy-charts", request, real)
    feed = feed_at(site, "DE", clock=clock)
    await feed.refresh()
    widths = [width(forecast_of(feed, NOW))]
    site.respond = lambda request: Answer(b"", 500)
    for silent_h in (1, 6, 12, 48):
        clock.now_s = NOW + silent_h * HOUR
        await feed.refresh()
        outlook = forecast_of(feed, clock.now_s)
        assert outlook.known_until_s == pytest.approx(NOW, abs=HOUR), "nothing imputed passes for measured"
        widths.append(width(outlook))
    assert widths == sorted(widths) and widths[-1] > 1.2 * widths[0]
    again = good("energy-charts", clock.now_s)
    site.respond = lambda request: answered_by("energy-charts", request, again)
    clock.now_s += HOUR
    await feed.refresh()
    outlook = forecast_of(feed, clock.now_s)
    assert outlook.known_until_s == pytest.approx(clock.now_s - HOUR, abs=HOUR) and width(outlook) < widths[-1]
