"""Faults and quirks in compressed time, source by source: nothing wrong passes for measured, no outage is silent, and
nobody is asked more often than he allows.

Half a day by default, a month with `pytest -m soak tests/grid/test_grid_month.py --junitxml FILE`; the properties in
that file are the figures of tests/bench/results/grid_month.json.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import operators
import pytest
from grid_site import ZONE_OF, Answer, Request, Site, good, level
from test_grid_live import answered_by

from carbontui.grid.choose import AVERAGE
from carbontui.grid.feed import Feed

BEGIN = 1896998400.0
HOUR = 3600.0
NAMES = sorted(kind.name for kind in AVERAGE)
BROKEN = (
    Answer(b"", 500), Answer(b"<html>down</html>", 503), Answer(b"", 429, {"Retry-After": "1200"}), Answer(b"", 404),
    Answer(b"{}"), Answer(b"[]"), Answer(b"null"), Answer(b"<!DOCTYPE html><html>sorry</html>"), Answer(b"Time,\n"),
)  # fmt: skip


DIRECT = frozenset({"neso", "energi-data-service", "energy-charts", "electricity-maps", "caiso", "eirgrid", "eco2mix"})
"""They publish an intensity, of which 0 g is a fault; of a mix of wind and water it is the truth."""
PACIFIC = ZoneInfo("America/Los_Angeles")


class World:
    """A source that is well most of the time, hiccups now and then and is out for hours twice a week; and that has the
    quirks that the real services were seen with."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.now_s = name, BEGIN
        self.chance = random.Random(seed)
        self.out_until_s = 0.0
        self.answered_s = BEGIN
        self.last_s: dict[str, float] = {}
        self.refused = 0

    def __call__(self) -> float:
        return self.now_s

    def respond(self, request: Request) -> Answer:
        if self.chance.random() < 1 / 400 and self.now_s > self.out_until_s:
            self.out_until_s = self.now_s + self.chance.uniform(6, 48) * HOUR
        if self.now_s < self.out_until_s or self.chance.random() < 0.05:
            return self.chance.choice(BROKEN)
        if (odd := self.quirk(request)) is not None:
            return odd
        whole = answered_by(self.name, request, good(self.name, self.now_s))
        if whole.status != 200 or self.chance.random() >= 0.03:
            self.answered_s = self.now_s if whole.status == 200 else self.answered_s
            return whole
        return Answer(whole.body[: self.chance.randrange(len(whole.body))])

    def quirk(self, request: Request) -> Answer | None:
        """What only this service does, and now and then what any does: a copy of hours ago from a cache on the way,
        values that have not come in for hours, zeros all over."""
        now_s, name = self.now_s, self.name
        if name == "energi-data-service":
            # one request per data set and minute
            last_s, self.last_s[request.path] = self.last_s.get(request.path, 0.0), now_s
            if now_s - last_s < 60:
                self.refused += 1
                return Answer(b"", 429)
        if name == "electricity-maps" and request.path.endswith("past-range"):
            return Answer(b"", 404)
        if name == "caiso" and "/current/" in request.path:
            there = datetime.fromtimestamp(now_s, tz=PACIFIC)
            if there.hour == 0 and there.minute < 20:
                yesterday = now_s - 60 * there.minute - there.second - 1
                return answered_by(name, request, good(name, yesterday))
        draw = self.chance.random()
        if name == "entsoe" and draw < 0.02:
            body = answered_by(name, request, good(name, now_s)).body
            return Answer(body.replace(b"PT60M", self.chance.choice((b"PT0M", b"PT9999M", b"P1Y", b"PT1S"))))
        if draw < 0.04:
            return answered_by(name, request, good(name, now_s - self.chance.uniform(0.3, 20) * HOUR))
        if draw < 0.06:
            since_s = now_s - 6 * HOUR
            return answered_by(name, request, good(name, now_s, lambda at: level(at) if at < since_s else None))
        if draw < 0.07 and name in DIRECT:
            return answered_by(name, request, good(name, now_s, lambda at: 0.0))
        return None


def truth(name: str, at_s: float) -> float:
    if name in ("eia", "entsoe"):
        gas = 10 * level(at_s)
        return (490 * gas + 12 * 3000) / (gas + 3000)
    return level(at_s) * operators.SCALE.get(name, 1.0)


async def elapsed(name: str, site: Site, cache: Path, days: float, seed: int) -> tuple[int, int]:
    """Rounds lived (an hour or more apart), and rounds of them without fresh data."""
    world = World(name, seed)
    site.respond = world.respond
    kind = next(kind for kind in AVERAGE if kind.name == name)
    zone = ZONE_OF[name]
    feed = Feed(zone, settings=site.settings(), now=world, cache=cache, http=site.http())
    hours = unreadable = 0
    while world.now_s < BEGIN + days * 86400:
        asked = len(site.seen)
        await feed.refresh()
        assert len(site.seen) - asked <= 40, "one round asks no more than its questions and their second tries"
        for row in feed.realised(world.now_s - 86400, world.now_s):
            if row.kind in ("actual", "estimated") and not row.suspect:
                step_s = min(row.dur_s, HOUR)
                expected = [truth(name, row.start_s + k * 60) for k in range(max(1, int(step_s // 60)))]
                assert min(expected) * 0.97 <= row.value <= max(expected) * 1.03, (name, world.now_s, row)
        seen = feed.outlook(world.now_s, 6 * HOUR, 24 * HOUR, 900.0)
        assert seen is not None and "\n" not in feed.note
        assert all(value is None or math.isfinite(value) for value in seen.mean)
        state = next(state for state in feed.sources if state.name == name)
        if world.now_s - world.answered_s > max(kind.late_s, 3 * HOUR) + 49 * HOUR * kind.foresees:
            assert feed.note, f"{name} has been silent and nobody says so"
        unreadable += state.state != "answers"
        hours += 1
        world.now_s = max(world.now_s + HOUR, feed.next_refresh_s())
        if hours % 40 == 0:  # a new supervisor, on the same cache
            feed = Feed(zone, settings=site.settings(), now=world, cache=cache, http=site.http())
    assert world.refused == 0, "asked more often than it allows"
    return hours, unreadable


@pytest.mark.parametrize("name", NAMES)
async def test_hours_of_faults_show_nothing_wrong_as_measured(site: Site, tmp_path: Path, name: str) -> None:
    hours, _ = await elapsed(name, site, tmp_path, 0.5, seed=NAMES.index(name))
    assert hours >= 6


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", NAMES)
async def test_a_month_of_faults_shows_nothing_wrong_as_measured(
    site: Site, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    hours, unreadable = await elapsed(name, site, tmp_path, 30.0, seed=100 + NAMES.index(name))
    told = {"source": name, "rounds": hours, "without_fresh_data": unreadable, "requests": len(site.seen)}
    record_property("month", json.dumps(told))
    assert hours > 600 and unreadable < 0.5 * hours
