"""Energi Data Service (Denmark): no key; CO2 measured and forecast every 5 min, day-ahead prices."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.providers.base import PriceProvider, Provider, number, rows_of, stamp, stepped
from carbontui.grid.types import DAY_S, Kind, Signal

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
    limits: ClassVar[str] = "forecast to the end of this or the next day"
    zones = AREAS

    seen_s: ClassVar[float] = 300.0
    data_sets: ClassVar[Mapping[str, str]] = {"actual": "CO2Emis", "forecast": "CO2EmisProg"}
    columns: ClassVar[tuple[str, str]] = ("Minutes5UTC", "CO2Emission")
    factor: ClassVar[float] = 1.0

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        data = await self.json(
            f"dataset/{self.data_sets[kind]}",
            {
                # without `timezone=utc`, start and end are local time
                "start": stamp(start_s, "%Y-%m-%dT%H:%M"),
                "end": stamp(end_s, "%Y-%m-%dT%H:%M"),
                "timezone": "utc",
                "filter": json.dumps({"PriceArea": [AREAS[zone]]}),
                "sort": f"{self.columns[0]} asc",
                "limit": "0",
            },
        )
        return self._read(data, zone, kind)

    def _read(self, data: Any, zone: str, kind: Kind) -> Iterator[clean.Raw]:
        when, what = self.columns
        records = [record for record in rows_of(data, "records") if record.get("PriceArea") == AREAS[zone]]
        for start_s, length, record in stepped(records, when, 300.0):
            yield start_s, length, number(record[what], self.factor), kind


class EnergiDataPrice(PriceProvider, EnergiDataService):
    """`DayAheadPrices` (Elspotprices ended on 2025-09-30), EUR per MWh."""

    name: ClassVar[str] = "energi-data-price"
    title: ClassVar[str] = "Energi Data Service day-ahead price"
    window_s: ClassVar[float] = 900.0
    reach_s: ClassVar[float] = 14 * DAY_S
    limits: ClassVar[str] = ""
    data_sets: ClassVar[Mapping[str, str]] = dict.fromkeys(("actual", "forecast"), "DayAheadPrices")
    columns: ClassVar[tuple[str, str]] = ("TimeUTC", "DayAheadPriceEUR")
    factor: ClassVar[float] = 1e-3
