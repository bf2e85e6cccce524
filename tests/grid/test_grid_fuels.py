"""Reasons name the fuels that moved, where the source tells its mix."""

from __future__ import annotations

import pytest
from grid_site import Site, good
from test_grid_live import NOW, feed_at

from carbontui.grid import fuels
from carbontui.grid.types import Mix

HOUR = 3600.0


def mixes(step_s: float = 300.0, last_s: float = NOW):
    """For hours 8 GW of coal, 10 of wind, 5 of hydro; then within three hours coal +2.1, wind -3, hydro +0.9."""
    found = []
    for k in range(int(14 * HOUR / step_s)):
        at_s = last_s - 14 * HOUR + k * step_s
        done = min(1.0, max(0.0, (at_s - (last_s - 4 * HOUR)) / (3 * HOUR)))
        mix = {"coal": 8000 + 2100 * done, "wind": 10000 - 3000 * done, "hydro": 5000 + 900 * done, "solar": 0.0}
        found.append(Mix(at_s, step_s, mix))
    return found


@pytest.mark.parametrize("step_s", [300.0, 900.0, 1800.0, 3600.0])
def test_the_fuels_that_raised_the_intensity_are_named_and_what_lowered_it_is_not(step_s: float) -> None:
    found = fuels.moved(mixes(step_s), NOW)
    assert found is not None and found.change_g > 0
    assert dict(found.fuels) == pytest.approx({"coal": 2100, "wind": -3000}, abs=1)
    assert NOW - 13 * HOUR <= found.since_s <= NOW - 4 * HOUR
    words = fuels.words(found, NOW)
    assert "coal +2.1 GW" in words and "wind −3.0 GW" in words and " since " in words


def test_nothing_is_said_of_a_grid_that_stands_still_or_has_been_silent() -> None:
    still = [Mix(NOW - k * HOUR, HOUR, {"gas": 500.0 + k, "wind": 500.0}) for k in range(12, 0, -1)]
    assert fuels.moved(still, NOW) is None and fuels.words(None, NOW) == ""
    assert fuels.moved(mixes(), NOW + 6 * HOUR) is None, "what moved hours ago is no reason for now"
    assert fuels.moved([], NOW) is None
    assert fuels.moved([Mix(NOW - 600, 300, {"coal": 1.0})], NOW) is None


def test_small_grids_are_told_in_megawatts() -> None:
    moved = fuels.Moved(NOW - 2 * HOUR, 30.0, (("oil", 62.4), ("wind", -48.0)))
    assert fuels.words(moved, NOW).startswith("oil +62 MW, wind −48 MW since ")


@pytest.mark.parametrize(
    ("name", "zone"),
    [("nyiso", "US-NY-NYIS"), ("entsoe", "NL"), ("caiso", "US-CAL-CISO"), ("ieso", "CA-ON")],
)
async def test_a_source_that_tells_its_mix_hands_it_on_and_a_cache_keeps_it(
    site: Site, tmp_path, name: str, zone: str
) -> None:
    """A grid that swings between 200 and 400 g: the burnt fuel rises, or the clean one gives way."""
    now_s = NOW + 11 * HOUR  # the morning's rise is over
    site.respond = good(name, now_s)
    feed = feed_at(site, zone, clock=lambda: now_s, cache=tmp_path)
    await feed.refresh()
    seen = feed.outlook(now_s, HOUR, HOUR, 900.0)
    assert " since " in seen.moved and seen.moved == feed.moved(now_s)
    site.respond = lambda request: pytest.fail("the cache knows")
    successor = feed_at(site, zone, clock=lambda: now_s, cache=tmp_path)
    await successor.refresh()
    assert successor.moved(now_s) == seen.moved
