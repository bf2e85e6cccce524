"""`grid` and `zones`: the local grid now, its sources and their age."""

import asyncio
import json
import time
from typing import Any

import click
from msgspec import structs

from carbontui.commands.support.command import Failure, refused, zone_keys
from carbontui.commands.support.run_values import settings_for, settings_of
from carbontui.grid import choose, opening, typical
from carbontui.grid import zones as places
from carbontui.grid.feed import Feed
from carbontui.grid.types import GridForecast
from carbontui.protocol import GridSource
from carbontui.text import sources
from carbontui.text.figures import duration as fmt_duration
from carbontui.tui.model.state_text import SIGNALS
from carbontui.units import from_iso, iso

AHEAD_S = 24 * 3600.0
OUTLOOK_FIGURES = ("step_s", "mean", "lo", "hi", "price", "price_lo", "price_hi", "price_source", "currency")
BARS = "▁▂▃▄▅▆▇█"
UNRECORDED = frozenset(kind.name for kind in choose.EVERY if not kind.recorded)
"""Sources written from their documentation alone: no recorded answer of the real service was available."""


@click.command(help="The grid now: its intensity, which source answers, how fresh it is, what a key would add.")
@click.option("--zone", shell_complete=zone_keys, help="Zone key, country or common name; see `carbontui zones`.")
@click.option("--signal", type=click.Choice(["average", "marginal"]), help="Which carbon intensity (default: average).")
@click.option("--json", "as_json", is_flag=True, help="Print data.")
def grid(zone: str | None, signal: str | None, as_json: bool) -> None:
    loaded = settings_for(signal=signal).settings
    with refused():
        place = places.sure(zone or loaded.zone, loaded.intensity)
    feed = opening.open_feed(place.key, settings=settings_of(loaded, own=zone is None), now=time.time)
    asyncio.run(feed.refresh())
    now_s = time.time()
    seen = feed.outlook(now_s, 0.0, AHEAD_S, 3600.0)
    if as_json:
        click.echo(json.dumps(_data(place, feed, seen, now_s), indent=2))
        return
    click.echo("\n".join(_lines(place, feed, seen, now_s)))


def _data(place: places.Zone, feed: Feed, outlook: GridForecast | None, now_s: float) -> dict[str, Any]:
    return {
        "schema": "carbontui.grid/1",
        "zone": place.key,
        "name": place.name,
        "measured_at": iso(now_s),
        "signal": feed.signal,
        "unit": "gCO2/kWh",
        "value_g_per_kwh": outlook.mean[0] if outlook else None,
        "intensity": (known := outlook and outlook.intensity(now_s)) and structs.asdict(known),
        "source": outlook.source if outlook else None,
        "how": outlook.how if outlook else None,
        "note": feed.note,
        "outlook": outlook
        and {"start": iso(outlook.start_s), **{name: getattr(outlook, name) for name in OUTLOOK_FIGURES}},
        "moved": outlook.moved if outlook else "",
        "accuracy": [structs.asdict(lead) for lead in feed.accuracy],
        "sources": [_source(state, now_s) for state in feed.sources],
    }


def _source(state: GridSource, now_s: float) -> dict[str, Any]:
    age_s = round(now_s - from_iso(state.fetched), 1) if state.fetched else None
    told = {"name": state.name, "title": state.title, "state": state.state, "signal": state.signal}
    return {**told, "age_s": age_s, "note": state.note, "documentation_only": state.name in UNRECORDED}


def _lines(place: places.Zone, feed: Feed, outlook: GridForecast | None, now_s: float) -> list[str]:
    lines = [f"{place.key}  {place.name}"]
    if outlook is None:
        lines.append("no data for this zone: work is not shifted in time, caps only")
    else:
        values = [value for value in outlook.mean if value is not None]
        now = f"{outlook.mean[0]:.0f} gCO2/kWh" if outlook.mean[0] is not None else "unknown"
        lines.append(f"now {now} ({SIGNALS[feed.signal]}; {outlook.how})")
        lines += filter(None, [sources.age(outlook.intensity(now_s), now_s)])
        if values and max(values) > min(values):
            span = max(values) - min(values)
            drawn = "".join(" " if v is None else BARS[min(7, int(8 * (v - min(values)) / span))] for v in outlook.mean)
            lines.append(f"next 24 h {drawn} {min(values):.0f} to {max(values):.0f} g")
        lines.append(f"from {outlook.source}")
        priced = [price for price in outlook.price if price is not None]
        if priced and outlook.price[0] is not None:
            day = f"{min(priced):.3f} to {max(priced):.3f}"
            lines.append(
                f"price {outlook.price[0]:.3f} {outlook.currency}/kWh now, next 24 h {day}, from {outlook.price_source}"
            )
        if outlook.moved:
            lines.append(f"moved by {outlook.moved}")
        if outlook.accuracy:
            lines.append(f"forecasts here so far: {sources.accuracy(outlook.accuracy)}")
    if feed.note:
        lines.append(f"note: {feed.note}")
    lines.append("")
    for state in feed.sources:
        age = f", {fmt_duration(now_s - from_iso(state.fetched))} ago" if state.fetched else ""
        note = f"  {state.note}" if state.note else ""
        note += "  (documentation only)" if state.name in UNRECORDED else ""
        lines.append(f"  {state.title:36} {state.state}{age}{note}")
    return lines


@click.command(help="List the known grid zones, and the data available for each.")
@click.argument("search", default="")
@click.option("--json", "as_json", is_flag=True, help="Print data.")
def zones(search: str, as_json: bool) -> None:
    found = places.search(search)
    if not found:
        raise Failure(f"no zone matches {search!r}", 3)
    rows = []
    for zone in found:
        sources = [kind.title for kind in choose.AVERAGE if kind.covers(zone.key)]
        known = "by the hour" if typical.has_hours(zone.key) else "as similar grids"
        kind = known if typical.profile(zone.key) else "none"
        rows.append({"zone": zone.key, "name": zone.name, "typical": kind, "sources": sources})
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['zone']:14} {row['name']:36} typical days: {row['typical']:16} {', '.join(row['sources'])}")
