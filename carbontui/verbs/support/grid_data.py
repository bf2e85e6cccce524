"""The grid as verbs ask for it: the zone, its expected intensity, and what many zones emit now."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from carbontui import config
from carbontui.grid import choose, opening, zones
from carbontui.grid.feed import Feed
from carbontui.grid.http import Http
from carbontui.grid.settings import GridSettings, KeyFileError
from carbontui.grid.types import GridForecast
from carbontui.verbs.support.command import Failure, refused

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


def sure_zone(wanted: str | None) -> zones.Zone:
    """The zone. Raises Failure that names the candidates when it is not known."""
    found, why = find_zone(wanted)
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


def settings_of(loaded: config.Settings) -> GridSettings:
    """The settings of a feed for a verb. Raises Failure for keys and URLs that cannot be used."""
    marginal = loaded.signal == "marginal"
    given = GridSettings(False, marginal, loaded.currency, loaded.price_zone, loaded.price_per_kwh)
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
    zone: str | None, grid_file: str | None, start_s: float, ahead_s: float, step_s: float
) -> tuple[Sequence[float | None], float, str]:
    """Mean g/kWh per slot of `step_s`, the start of the first slot, and the source. Raises Failure."""
    if grid_file:
        return _recorded(grid_file, start_s, start_s + ahead_s, step_s)
    return _expected(zone, start_s, ahead_s, step_s)


def filled(
    zone: str | None, grid_file: str | None, start_s: float, slot_s: float, slots: int
) -> tuple[list[float], str]:
    """g/kWh per slot; slots beyond the known hours repeat the last known value. Raises Failure."""
    mean, begins_s, source = intensity(zone, grid_file, start_s, slots * slot_s, slot_s)
    known = [value for value in mean if value is not None]
    if not known:
        raise Failure(f"no grid data from now on ({source})", 3)
    filled, held = [], known[0]
    for value in mean:
        held = held if value is None else value
        filled.append(held)
    places = [int((start_s + (slot + 0.5) * slot_s - begins_s) // slot_s) for slot in range(slots)]
    return [filled[min(max(place, 0), len(filled) - 1)] for place in places], source


def _recorded(path: str, start_s: float, end_s: float, step_s: float) -> tuple[Sequence[float | None], float, str]:
    """The rows of a file as slots from `start_s` on."""
    from carbontui.backtest.assumed_job import Grid
    from carbontui.grid import recorded

    try:
        grid = Grid(recorded.load(Path(path)))
        start_s += math.ceil(max(0.0, grid.start_s - start_s) / step_s) * step_s
        edges = [start_s + i * step_s for i in range(int((min(end_s, grid.end_s) - start_s) // step_s) + 1)]
        return grid.slots(edges), start_s, path
    except (ValueError, IndexError) as error:
        raise Failure(f"--grid: {path}: has no values from now on ({error})", 2) from None


def _expected(
    zone: str | None, start_s: float, ahead_s: float, step_s: float
) -> tuple[Sequence[float | None], float, str]:
    """The zone's forecast."""
    place = sure_zone(zone or os.environ.get("CARBONTUI_ZONE"))
    with refused():  # a KeyFileError is one as well
        settings = opening.settings()
    seen, _ = looked(place.key, settings, ahead_s, step_s, start_s=start_s)
    if seen is None:
        raise Failure(f"no grid data for {place.key}; submit it with sbatch", 3)
    return seen.mean, seen.start_s, f"{seen.source} ({seen.how})"
