"""EirGrid and SONI (Ireland): no key; the operators' own CO2 intensity every 15 min, and their forecast of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers.base import DAY_S, HOUR_S, Provider, number, rows_of
from carbontui.grid.providers.frame import LocalClock
from carbontui.grid.types import Series, Signal

REGIONS = {"IE": "ROI", "GB-NIR": "NI"}
HERE = ZoneInfo("Europe/Dublin")


class Eirgrid(Provider):
    """Local stamps, null where no value is published yet; imports are counted as the operators count them."""

    name: ClassVar[str] = "eirgrid"
    title: ClassVar[str] = "EirGrid Smart Grid Dashboard"
    base: ClassVar[str] = "https://www.smartgriddashboard.com/api"
    signal: ClassVar[Signal] = "average_direct"
    licence: ClassVar[str] = "EirGrid Group"
    recorded: ClassVar[bool] = False
    window_s: ClassVar[float] = 900.0
    late_s: ClassVar[float] = 5 * HOUR_S
    reach_s: ClassVar[float] = 28 * DAY_S  # a month is answered; three months give an empty answer
    limits: ClassVar[str] = "hours late at times; forecast to the end of the next day at most"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone in REGIONS

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        data = await self._ask(zone, start_s, end_s, "co2intensity")
        return self.series(zone, lambda: self._read(data, zone, "actual", now_s), now_s)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        data = await self._ask(zone, now_s, now_s + DAY_S, "co2intensityforecast")
        return self.series(zone, lambda: self._read(data, zone, "forecast", now_s), now_s, now_s)

    async def _ask(self, zone: str, start_s: float, end_s: float, area: str) -> Any:
        first, last = (datetime.fromtimestamp(at, tz=HERE) for at in (start_s, end_s))
        days = {"dateFrom": f"{first:%d-%b-%Y}", "dateTo": f"{last:%d-%b-%Y}"}
        how = {"region": REGIONS[zone], "chartType": "co2", "dateRange": "day", "areas": area}
        return await self.json("chart/", {**how, **days})

    def _read(self, data: Any, zone: str, kind: str, now_s: float) -> Iterator[clean.Raw]:
        clock = LocalClock(HERE)
        for record in rows_of(data, "Rows"):
            if record["Region"] != REGIONS[zone]:
                raise BadAnswer(f"{self.title} answered for {record['Region']}, not {REGIONS[zone]}")
            word = record["FieldName"].upper()
            if "CO2" not in word or "INTENSITY" not in word or ("FORECAST" in word) != (kind == "forecast"):
                continue
            start_s = clock(datetime.strptime(record["EffectiveTime"], "%d-%b-%Y %H:%M:%S"))
            if kind == "forecast" or start_s <= now_s:
                yield start_s, 900.0, number(record["Value"]), kind
