"""CAISO (California): no key; CO2 every 5 min from the Outlook files, a forecast from its own of load, sun and wind."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer, NotFound
from carbontui.grid.http import Reply
from carbontui.grid.providers import oasis
from carbontui.grid.providers.base import HOUR_S, Provider, number, stamp
from carbontui.grid.providers.decode import whole_lines
from carbontui.grid.types import Series, Signal

ZONE = "US-CAL-CISO"
HERE = ZoneInfo("America/Los_Angeles")
UNSTEADY = frozenset({"Solar", "Wind"})


class Caiso(Provider):
    """Tonnes per hour by source over megawatts by source; stamps are bare Pacific HH:MM of one day."""

    name: ClassVar[str] = "caiso"
    title: ClassVar[str] = "CAISO Outlook"
    base: ClassVar[str] = "https://www.caiso.com/outlook"
    signal: ClassVar[Signal] = "average_direct"
    licence: ClassVar[str] = "CAISO"
    window_s: ClassVar[float] = 300.0
    forecast_window_s: ClassVar[float | None] = HOUR_S
    reach_s: ClassVar[float] = 18 * HOUR_S
    limits: ClassVar[str] = "forecast to the end of the next day, computed by us from CAISO's of load, sun and wind"
    pause_s: ClassVar[float] = 5.5
    """OASIS takes one request in five seconds."""

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone == ZONE

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        there = datetime.fromtimestamp(end_s, tz=HERE)
        co2, supply = await self._tables(there, now_s)
        return self.series(zone, lambda: _intensity(_dated(co2, there, now_s), _dated(supply, there, now_s)), now_s)

    async def _tables(self, day: datetime, now_s: float) -> tuple[Reply, Reply]:
        """CO2 and power by source of a local day."""
        today = day.date() == datetime.fromtimestamp(now_s, tz=HERE).date()
        folder = "current" if today else f"history/{day:%Y%m%d}"
        fresh = {"_": f"{now_s:.0f}"}  # else a copy of hours ago may come from a cache on the way
        return await self.get(f"{folder}/co2.csv", fresh), await self.get(f"{folder}/fuelsource.csv", fresh)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        today = datetime.fromtimestamp(now_s, tz=HERE)
        days = []
        for day in (today - timedelta(days=1), today):
            try:
                days.append((day, *await self._tables(day, now_s)))
            except NotFound:  # the day before appears some time after midnight
                if day is today:
                    raise
        url = f"{self._settings.base_urls.get('caiso-price', oasis.BASE).rstrip('/')}/SingleZip"
        form = "%Y%m%dT%H:%M-0000"
        span = {"startdatetime": stamp(now_s - HOUR_S, form), "enddatetime": stamp(end_s, form)}
        load = (await self.get(url, oasis.LOAD | span)).body
        await asyncio.sleep(self.pause_s)
        renewables = (await self.get(url, oasis.RENEWABLES | span)).body

        def read() -> Iterator[clean.Raw]:
            samples = [sample for day, co2, supply in days for sample in _samples(co2, supply, day, now_s)]
            wanted = oasis.hours(load, "TAC_AREA_NAME", {oasis.WHOLE_AREA})
            return oasis.expected(samples, wanted, oasis.hours(renewables, "TRADING_HUB", oasis.HUBS))

        return self.series(zone, read, now_s, now_s)


def _samples(co2: Reply, supply: Reply, day: datetime, now_s: float) -> Iterator[oasis.Sample]:
    tonnes, power = _dated(co2, day, now_s), _dated(supply, day, now_s)
    unsteady = _dated(supply, day, now_s, UNSTEADY)
    for at_s in tonnes.keys() & power.keys():
        yield power[at_s] - unsteady.get(at_s, 0.0), tonnes[at_s]


def _dated(reply: Reply, day: datetime, now_s: float, only: frozenset[str] | None = None) -> dict[float, float]:
    """Sums by epoch seconds. The files bear no date: one left over from another day would pass for this one's."""
    if reply.modified_s is not None and reply.modified_s < day.timestamp():
        day = datetime.fromtimestamp(reply.modified_s, tz=day.tzinfo)
    sums = dict(_sums(reply.body, day, only))
    if sums and max(sums) > now_s + clean.AHEAD_S:
        # for some minutes after midnight the file is still that of the day before
        sums = dict(_sums(reply.body, day - timedelta(days=1), only))
    return sums


def _intensity(co2: dict[float, float], supply: dict[float, float]) -> Iterator[clean.Raw]:
    for start_s, tonnes_per_h in co2.items():
        megawatts = supply.get(start_s)
        if megawatts and megawatts > 0:
            yield start_s, 300.0, 1000 * tonnes_per_h / megawatts, "actual"


def _sums(body: bytes, day: datetime, only: frozenset[str] | None) -> Iterator[tuple[float, float]]:
    """Epoch seconds and sum over the columns (or `only` some); rows without values (the future) are left out."""
    text = whole_lines(body)
    if text.lstrip().startswith("<") or not text.startswith("Time,"):
        raise BadAnswer("CAISO Outlook sent no table")
    last_s = 0.0
    head, *rows = csv.reader(io.StringIO(text))
    for cells in rows:
        named = zip(head[1:], cells[1:], strict=False)
        values = [number(cell.strip()) for name, cell in named if only is None or name.strip() in only]
        if not cells or not any(value is not None for value in values):
            continue
        hour, minute = cells[0].strip().split(":")
        moment = day.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0, fold=0)
        # in autumn 01:xx comes twice, and a closing 00:00 is the next day's; the order in the file is the only hint
        start_s = moment.timestamp()
        if start_s <= last_s:
            start_s = moment.replace(fold=1).timestamp()
        if start_s <= last_s:
            start_s = (moment + timedelta(days=1)).timestamp()
        last_s = start_s
        yield start_s, sum(value for value in values if value is not None)
