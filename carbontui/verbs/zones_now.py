"""Current intensity of many zones: queries every zone that has a source, for half a minute at most."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable

from carbontui.grid import choose, opening, zones
from carbontui.grid.http import Http
from carbontui.grid.settings import GridSettings

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
