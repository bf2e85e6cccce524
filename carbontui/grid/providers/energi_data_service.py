"""Energi Data Service (Denmark): no key; CO2 measured and forecast every 5 min, day-ahead prices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.providers.base import DAY_S, PriceProvider, Provider, number, rows_of, stamp, stepped
from carbontui.grid.types import Answer, Signal

AREAS = {"DK-DK1": "DK1", "DK-DK2": "DK2"}


class EnergiDataService(Provider):
    """Naive stamps in UTC (`Minutes5UTC`); without `start` only a part of the forecast is returned.

    Licence: CC BY 4.0, Energinet (www.energidataservice.dk).
    """

    name: ClassVar[str] = "energi-data-service"
    title: ClassVar[str] = "Energi Data Service"
    base: ClassVar[str] = "https://api.energidataservice.dk"
    signal: ClassVar[Signal] = "average_direct"
    recorded: ClassVar[bool] = False
    window_s: ClassVar[float] = 300.0
    spacing_s: ClassVar[float] = 65.0  # one request per data set, minute and address since 2025-08-26, else 429
    reach_s: ClassVar[float] = 7 * DAY_S
    limits: ClassVar[str] = "forecast to the end of this or the next day"
    zones = AREAS

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        data = await self._ask("CO2Emis", zone, "Minutes5UTC", start_s, end_s)
        return self.series(zone, lambda: self._read(data, zone, "Minutes5UTC", "CO2Emission", "actual"), now_s)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> Answer:
        data = await self._ask("CO2EmisProg", zone, "Minutes5UTC", now_s - 300, end_s)
        read = lambda: self._read(data, zone, "Minutes5UTC", "CO2Emission", "forecast")  # noqa: E731
        return self.series(zone, read, now_s, now_s)

    async def _ask(self, dataset: str, zone: str, column: str, start_s: float, end_s: float) -> Any:
        return await self.json(
            f"dataset/{dataset}",
            {
                # without `timezone=utc`, start and end are local time
                "start": stamp(start_s, "%Y-%m-%dT%H:%M"),
                "end": stamp(end_s, "%Y-%m-%dT%H:%M"),
                "timezone": "utc",
                "filter": json.dumps({"PriceArea": [AREAS[zone]]}),
                "sort": f"{column} asc",
                "limit": "0",
            },
        )

    def _read(self, data: Any, zone: str, when: str, what: str, kind: str, factor: float = 1.0) -> Iterator[clean.Raw]:
        records = [record for record in rows_of(data, "records") if record.get("PriceArea") == AREAS[zone]]
        for start_s, length, record in stepped(records, when, 300.0):
            yield start_s, length, number(record[what], factor), kind


class EnergiDataPrice(PriceProvider, EnergiDataService):
    """`DayAheadPrices` (Elspotprices ended on 2025-09-30), EUR per MWh."""

    name: ClassVar[str] = "energi-data-price"
    title: ClassVar[str] = "Energi Data Service day-ahead price"
    window_s: ClassVar[float] = 900.0
    reach_s: ClassVar[float] = 14 * DAY_S
    limits: ClassVar[str] = ""

    async def between(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        data = await self._ask("DayAheadPrices", zone, "TimeUTC", start_s, end_s)
        read = lambda: self._read(data, zone, "TimeUTC", "DayAheadPriceEUR", "forecast", 1e-3)  # noqa: E731
        return self.series(zone, read, now_s, now_s)
