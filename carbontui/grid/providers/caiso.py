"""CAISO (California): no key; CO2 every 5 min from the Outlook files, a forecast from CAISO's of load, sun and wind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid import clean
from carbontui.grid.faults import NotFound
from carbontui.grid.http import HttpReply
from carbontui.grid.providers import oasis
from carbontui.grid.providers.base import HOUR_S, Provider, stamp
from carbontui.grid.providers.caiso_table import STEP_S, Table, dated, mixed
from carbontui.grid.types import Mix, Series, Signal

ZONE = "US-CAL-CISO"
HERE = ZoneInfo("America/Los_Angeles")


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
    limits: ClassVar[str] = "forecast to the end of the next day, computed here from CAISO's of load, sun and wind"
    pause_s: ClassVar[float] = 5.5
    """OASIS allows one request in five seconds."""

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone == ZONE

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        there = datetime.fromtimestamp(end_s, tz=HERE)
        co2, supply = await self._tables(there, now_s)
        mixes: list[Mix] = []

        def read() -> Iterator[clean.Raw]:
            sources = dated(supply, there, now_s)
            mixes.extend(mixed(sources))
            return _intensity(dated(co2, there, now_s), sources)

        series, notes = self.series(zone, read, now_s)
        return replace(series, mix=tuple(mixes)), notes

    async def _tables(self, day: datetime, now_s: float) -> tuple[HttpReply, HttpReply]:
        """CO2 and power by source of a local day."""
        today = day.date() == datetime.fromtimestamp(now_s, tz=HERE).date()
        folder = "current" if today else f"history/{day:%Y%m%d}"
        fresh = {"_": f"{now_s:.0f}"}  # else a proxy cache may serve a copy that is hours old
        return await self.get(f"{folder}/co2.csv", fresh), await self.get(f"{folder}/fuelsource.csv", fresh)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        today = datetime.fromtimestamp(now_s, tz=HERE)
        days = []
        for day in (today - timedelta(days=1), today):
            try:
                days.append((day, *await self._tables(day, now_s)))
            except NotFound:  # the previous day's files appear some time after midnight
                if day is today:
                    raise
        url = f"{self._settings.base_urls.get('caiso-price', oasis.BASE).rstrip('/')}/SingleZip"
        form = "%Y%m%dT%H:%M-0000"
        span = {"startdatetime": stamp(now_s - HOUR_S, form), "enddatetime": stamp(end_s, form)}
        load = (await self.get(url, oasis.LOAD | span)).body
        await asyncio.sleep(self.pause_s)
        renewables = (await self.get(url, oasis.RENEWABLES | span)).body

        def read() -> Iterator[clean.Raw]:
            tables = [(dated(co2, day, now_s), dated(supply, day, now_s)) for day, co2, supply in days]
            samples = [sample for both in tables for sample in oasis.samples(*both)]
            wanted = oasis.hours(load, "TAC_AREA_NAME", {oasis.WHOLE_AREA})
            return oasis.expected(samples, wanted, oasis.hours(renewables, "TRADING_HUB", oasis.HUBS))

        return self.series(zone, read, now_s, now_s)


def _intensity(co2: Table, supply: Table) -> Iterator[clean.Raw]:
    for start_s, tonnes_per_h in co2.items():
        megawatts = sum(supply.get(start_s, {}).values())
        if megawatts > 0:
            yield start_s, STEP_S, 1000 * sum(tonnes_per_h.values()) / megawatts, "actual"
