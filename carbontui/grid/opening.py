"""The one way to open a feed, and the one place that reads the grid's CARBONTUI_* variables.

CARBONTUI_OFFLINE: use no network. Unset, empty, `0`, `false`, `no` and `off` mean online; anything else means offline.
CARBONTUI_GRID_URLS: `name=url` pairs, separated by commas: other base URLs of providers (mirrors).
Provider keys come from the environment or from keys.env beside config.toml (`settings.read_keys`).
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from carbontui import config, paths
from carbontui.grid import choose, recorded, zones
from carbontui.grid.feed import Feed
from carbontui.grid.http import Http
from carbontui.grid.settings import GridSettings, keys_file, read_keys
from carbontui.grid.types import GridForecast, Series, Signal
from carbontui.units import listed

GIVEN_NOTHING = GridSettings()
AT_ONCE = 6
"""Zones queried concurrently: many share one server."""
LONGEST_S = 30.0
ONLINE_WORDS = frozenset({"", "0", "false", "no", "off"})


def offline(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment forbids the network."""
    return environment.get("CARBONTUI_OFFLINE", "").strip().lower() not in ONLINE_WORDS


def base_urls(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Base URLs that replace a provider's own, by provider name. Raises ValueError naming an invalid pair."""
    found: dict[str, str] = {}
    known = sorted({kind.name for kind in choose.EVERY})
    for pair in listed(environment.get("CARBONTUI_GRID_URLS", "")):
        name, _, url = (part.strip() for part in pair.partition("="))
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"CARBONTUI_GRID_URLS: {pair[:60]!r} is not name=http(s)://...")
        if name not in known:
            raise ValueError(f"CARBONTUI_GRID_URLS: {name!r} is not a provider; known: {', '.join(known)}")
        found[name] = url
    return found


def settings(
    given: GridSettings = GIVEN_NOTHING, *, forgiving: bool = False, environment: Mapping[str, str] = os.environ
) -> GridSettings:
    """What is `given` with the keys and URLs of the environment. Raises KeyFileError or ValueError for those that
    cannot be used; a `forgiving` caller (a job, which goes on with its keyless sources) gets the error in `remark`
    instead."""
    complaints: list[str] = []
    found: list[Mapping[str, str]] = []
    for read in (partial(read_keys, keys_file(), environment), partial(base_urls, environment)):
        try:
            found.append(read())
        except ValueError as error:
            if not forgiving:
                raise
            complaints.append(str(error))
            found.append({})
    keys, urls = found
    away = given.offline or offline(environment)
    return replace(given, offline=away, keys=keys, base_urls=urls, remark="; ".join(complaints))


def open_feed(
    zone: str | None,
    *,
    settings: GridSettings,
    now: Callable[[], float],
    grid_file: str | Path | None = None,
    source: str | None = None,
    http: Http | None = None,
    cached: bool = True,
) -> Feed:
    """The feed of a zone. A recorded file replaces every live source; its signal is marginal where `settings` ask for
    it, else as `recorded.load` reads it; `source` names it. `cached=False` bypasses the cache on disk.

    Raises ValueError when `grid_file` cannot be used.
    """
    signal: Signal | None = "marginal" if settings.marginal else None
    series = price = None
    if grid_file is not None:
        path = Path(grid_file)
        series = recorded.load(path, zone=zone or "recorded", signal=signal, source=source)
        price = recorded.load_price(path)
        remark = _recorded_remark(path, price, settings.currency)
        settings = replace(settings, remark="; ".join(filter(None, (settings.remark, remark))))
    cache = paths.cache_dir() / "grid" if cached else None
    return Feed(zone, settings=settings, now=now, recorded=series, recorded_price=price, cache=cache, http=http)


def _recorded_remark(path: Path, price: Series | None, currency: str | None) -> str:
    """Which columns of the file are not used, and how to use them; '' where all are used."""
    told = []
    if price is not None and currency is None:
        told.append(f"the prices of {path.name} are not used: add --currency {price.currency}")
    elif price is not None and price.currency != currency:
        told.append(f"the prices of {path.name} are in {price.currency}, not in {currency}: they are not used")
    if unread := recorded.unread_columns(path):
        shown = ", ".join(name[:24] for name in unread[:3])
        told.append(f"columns of {path.name} not used: {shown} (a price column is named like price_eur_per_kwh)")
    return "; ".join(told)


def configured(loaded: config.Settings, *, own: bool = False) -> GridSettings:
    """The settings of a feed for a command; with the user's `own` intensity, where one is set, as a job here counts.
    Raises KeyFileError or ValueError for keys and URLs that cannot be used."""
    marginal, yours = loaded.signal == "marginal", loaded.intensity if own else None
    return settings(GridSettings(False, marginal, loaded.currency, loaded.price_zone, loaded.price_per_kwh, yours))


def polled(
    key: str | None, settings: GridSettings, ahead_s: float, step_s: float = 900.0, *, start_s: float | None = None
) -> tuple[GridForecast | None, Feed]:
    """The outlook of a zone from now on, once its sources were asked, and the feed that gave it. Raises ValueError."""
    feed = open_feed(key, settings=settings, now=time.time)
    asyncio.run(feed.refresh())
    return feed.outlook(time.time() if start_s is None else start_s, 0.0, ahead_s, step_s), feed


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
            feed = open_feed(key, settings=settings, now=time.time, http=http)
            await feed.refresh()
            seen = feed.outlook(time.time(), 0.0, 900.0, 900.0)
            value = None if seen is None or seen.how == "default" else seen.mean[0]
            if seen is not None and value is not None:
                signal = seen.signal.replace("_", ", ")
                grids = found.setdefault(seen.signal, {})
                grids[f"{key} {zones.every()[key].name}"] = (value, f"now, {signal}: {seen.source}")

    answering = [key for key in keys if any(choose.usable(one, settings) for one in choose.carbon(key, http, settings))]
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.gather(*map(ask, answering), return_exceptions=True), LONGEST_S)
    return found
