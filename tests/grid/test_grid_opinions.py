"""Two sources of one zone that disagree: the note says so, and the one nearer to the usual level is used."""

from __future__ import annotations

import pytest
from grid_site import Answer, Request, Site, good, level
from test_grid_live import NOW, Clock, feed_at


def two_sources(charts: float, maps: float, now_s: float = NOW):
    """Energy-Charts and Electricity Maps of one country, each off by a factor."""
    first = good("energy-charts", now_s, lambda at: charts * level(at))
    second = good("electricity-maps", now_s, lambda at: maps * level(at))
    return lambda request: first(request) if "co2eq" in request.path else second(request)


@pytest.mark.parametrize(("charts", "maps", "taken"), [(0.4, 1.0, "Electricity Maps"), (1.0, 2.5, "Energy-Charts")])
async def test_the_nearer_to_the_usual_is_taken_and_the_line_says_so(
    site: Site, charts: float, maps: float, taken: str
) -> None:
    site.respond = two_sources(charts, maps)
    feed = feed_at(site, "DE")  # a typical day of Germany is around 300 g, too
    await feed.refresh()
    assert f"using {taken}" in feed.note and " for the same hours" in feed.note and "\n" not in feed.note
    now_g = feed.outlook(NOW, 3600.0, 3600.0, 900.0).mean[0]
    assert now_g == pytest.approx(level(NOW - 3600), rel=0.1)


async def test_sources_that_agree_are_not_mentioned_and_the_second_is_asked_once_an_hour(site: Site) -> None:
    clock = Clock()
    site.respond = two_sources(1.0, 1.5)
    feed = feed_at(site, "DE", clock=clock)
    for minute in range(0, 120, 15):
        clock.now_s = NOW + 60 * minute
        await feed.refresh()
    assert "same hours" not in feed.note and feed.outlook(NOW, 3600, 3600, 900.0).mean[0] == pytest.approx(
        level(NOW - 3600), rel=0.1
    )
    second = [request for request in site.seen if "past" in request.path or "history" in request.path]
    assert 1 <= len(second) <= 3


async def test_what_was_trusted_while_they_agreed_decides_later(site: Site) -> None:
    """Halved for good by one of them: the history from before knows better than the last answer."""
    clock = Clock()
    site.respond = two_sources(1.0, 1.0)
    feed = feed_at(site, "DE", clock=clock)
    await feed.refresh()
    clock.now_s = NOW + 26 * 3600
    site.respond = two_sources(0.3, 1.0, clock.now_s)
    await feed.refresh()
    assert "using Electricity Maps" in feed.note


async def test_a_second_source_that_fails_or_hangs_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carbontui.grid.live.OPINION_S", 0.2)
    first = good("energy-charts", NOW)
    for broken in (Answer(b"", 500), Answer(hang=True)):

        def respond(request: Request, broken: Answer = broken) -> Answer:
            return first(request) if "co2eq" in request.path else broken

        site.respond = respond
        feed = feed_at(site, "DE")
        await feed.refresh()
        assert feed.note == "" and feed.outlook(NOW, 0, 3600, 900.0).how == "forecast"


@pytest.mark.parametrize("hours", [-5, 5])
async def test_stamps_that_are_off_by_hours_are_labelled_and_never_the_value_of_now(site: Site, hours: int) -> None:
    """A source whose own clock is wrong: its values of the future are not taken, old ones are not called fresh."""
    site.respond = good("nyiso", NOW + hours * 3600)
    feed = feed_at(site, "US-NY-NYIS")
    await feed.refresh()
    assert feed.note and "\n" not in feed.note
    assert ("clock" in feed.note) if hours > 0 else ("h old" in feed.note)
    assert all(row.start_s <= NOW + 900 for row in feed.realised(NOW - 86400, NOW + 86400) if row.kind != "forecast")
