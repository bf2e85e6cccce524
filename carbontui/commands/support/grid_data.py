"""The grid as verbs ask for it: the zone, its expected intensity, and what many zones emit now."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from carbontui import config
from carbontui.commands.support.command import Failure, refused
from carbontui.grid import choose, compose, opening, recorded, zones
from carbontui.grid.feed import Feed
from carbontui.grid.http import Http
from carbontui.grid.settings import GridSettings, KeyFileError
from carbontui.grid.types import YOURS, GridForecast

NAMED = 6
"""Candidates named where the time zone has several."""


def find_zone(wanted: str | None) -> tuple[zones.Zone | None, str]:
    """The zone asked for or configured, else the only one of the time zone; (None, why) when it is not known.

    Raises Failure (wrong use) for an unknown zone, naming the nearest ones.
    """
    if wanted:
        with refused("--zone: "):
            return zones.resolve(wanted), ""
    candidates, confidence = zones.guess(zones.local_time_zone())
    if confidence == "high":
        return candidates[0], ""
    names = ", ".join(zone.key for zone in candidates[:NAMED])
    # the repair comes first: a screen may have no room for the names
    return None, "the grid zone is not known; set it with --zone or CARBONTUI_ZONE" + (
        f" (perhaps {names})" if names else ""
    )


def sure_zone(wanted: str | None, yours: float | None = None) -> zones.Zone:
    """The zone; with an intensity of one's own none has to be known. Raises Failure that names the candidates when it
    is not."""
    found, why = find_zone(wanted)
    if found is None and yours is not None:
        return zones.Zone(YOURS, "your own intensity")
    if found is None:
        raise Failure(why, 2)
    return found


def zone_key(zone: str) -> str:
    """The zone's key for any of its names; an unknown name unchanged, which the lookup will refuse."""
    with contextlib.suppress(ValueError):
        return zones.resolve(zone).key
    return zone


def looked(
    key: str | None, settings: GridSettings, ahead_s: float, step_s: float = 900.0, *, start_s: float | None = None
) -> tuple[GridForecast | None, Feed]:
    """The outlook of a zone from now on, once its sources were asked, and the feed that gave it. Raises Failure."""
    with refused():
        feed = opening.open_feed(key, settings=settings, now=time.time)
    asyncio.run(feed.refresh())
    return feed.outlook(time.time() if start_s is None else start_s, 0.0, ahead_s, step_s), feed


def settings_of(loaded: config.Settings, *, own: bool = False) -> GridSettings:
    """The settings of a feed for a verb; with the user's `own` intensity, where one is set, as a job here counts.
    Raises Failure for keys and URLs that cannot be used."""
    marginal, yours = loaded.signal == "marginal", loaded.intensity if own else None
    given = GridSettings(False, marginal, loaded.currency, loaded.price_zone, loaded.price_per_kwh, yours)
    with refused(), refused("", KeyFileError, code=4):
        return opening.settings(given)


AT_ONCE = 6
"""Zones queried concurrently: many share one server."""
LONGEST_S = 30.0


Grids = dict[str, tuple[float, str]]
"""{zone: (gCO2/kWh, description)}"""


def now_on(settings: GridSettings, keys: Iterable[str] | None = None) -> dict[str, Grids]:
    """By signal, because values of one alone compare: the zones (all by default) whose source has answered. Cached
    values are not fetched again. Empty offline."""
    return {} if settings.offline else asyncio.run(_ask(settings, zones.every() if keys is None else keys))


async def _ask(settings: GridSettings, keys: Iterable[str]) -> dict[str, Grids]:
    http, turn = Http(), asyncio.Semaphore(AT_ONCE)
    found: dict[str, Grids] = {}

    async def ask(key: str) -> None:
        async with turn:
            feed = opening.open_feed(key, settings=settings, now=time.time, http=http)
            await feed.refresh()
            seen = feed.outlook(time.time(), 0.0, 900.0, 900.0)
            value = None if seen is None or seen.how == "default" else seen.mean[0]
            if seen is not None and value is not None:
                signal = seen.signal.replace("_", ", ")
                grids = found.setdefault(seen.signal, {})
                grids[f"{key} {zones.every()[key].name}"] = (value, f"now, {signal}: {seen.source}")

    asked = [asyncio.create_task(ask(key)) for key in keys if _has_source(key, http, settings)]
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), LONGEST_S)
    return found


def _has_source(key: str, http: Http, settings: GridSettings) -> bool:
    return any(choose.usable(provider, settings) for provider in choose.carbon(key, http, settings))


def intensity(
    zone: str | None, grid_file: str | None, start_s: float, step_s: float, slots: int
) -> tuple[Sequence[float | None], str]:
    """Mean g/kWh of each slot from `start_s` (a multiple of `step_s`) on, by the file, else by the zone's forecast, and
    the source. Raises Failure."""
    if grid_file:
        with refused("--grid: "):
            rows = recorded.load(Path(grid_file)).rows
        mean: Sequence[float | None] = compose.slot_means(rows, start_s, step_s, slots)
        source = grid_file
    else:
        place = sure_zone(zone or os.environ.get("CARBONTUI_ZONE"))
        with refused():  # a KeyFileError is one as well
            settings = opening.settings()
        seen, _ = looked(place.key, settings, slots * step_s, step_s, start_s=start_s)
        if seen is None:
            raise Failure(f"no grid data for {place.key}; submit it with sbatch", 3)
        mean, source = seen.mean, f"{seen.source} ({seen.how})"
    if all(value is None for value in mean):
        raise Failure(f"no grid data from now on ({source})", 3)
    return mean, source


def filled(
    zone: str | None, grid_file: str | None, start_s: float, slot_s: float, slots: int
) -> tuple[list[float], str]:
    """The same with every slot known: one without a value repeats the last known one. Raises Failure."""
    mean, source = intensity(zone, grid_file, start_s, slot_s, slots)
    held, found = next(value for value in mean if value is not None), []
    for value in mean:
        held = held if value is None else value
        found.append(held)
    return found, source
