"""Sources of Europe and of Denmark, with forecast and day-ahead prices: no key."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer
from carbontui.grid.providers.base import PriceProvider, Provider, number, rows_of, stamp, stepped, steps
from carbontui.grid.types import DAY_S, HOUR_S, Kind, Signal

# Fraunhofer Energy-Charts (Europe): no key; measured and forecast CO2eq to the end of the day, day-ahead prices.
COUNTRIES = frozenset({
    "AL", "AM", "AT", "AZ", "BA", "BE", "BG", "BY", "CH", "CY", "CZ", "DE", "DK", "EE", "ES", "FI",
    "FR", "GE", "GR", "HR", "HU", "IE", "IT", "LT", "LU", "LV", "MD", "ME", "MK", "MT", "NL", "NO",
    "PL", "PT", "RO", "RS", "SE", "SI", "SK", "TR", "UA", "XK",
})  # fmt: skip
# our zone -> bidding zone; only zones whose prices may be reused (CC BY 4.0, from SMARD)
PRICE_ZONES = {
    "AT": "AT", "BE": "BE", "CH": "CH", "CZ": "CZ", "DE": "DE-LU", "LU": "DE-LU", "DK-DK1": "DK1", "DK-DK2": "DK2",
    "FR": "FR", "HU": "HU", "IT-NO": "IT-North", "NL": "NL", "NO-NO2": "NO2", "PL": "PL", "SE-SE4": "SE4", "SI": "SI",
}  # fmt: skip


class EnergyCharts(Provider):
    """`/co2eq?country=de`: parallel arrays of actual and forecast values, each null where the other is set; both are
    null at the end."""

    name: ClassVar[str] = "energy-charts"
    title: ClassVar[str] = "Energy-Charts"
    base: ClassVar[str] = "https://api.energy-charts.info"
    signal: ClassVar[Signal] = "average_lifecycle"
    # its generation is that of ENTSO-E and SMARD, which publish within an hour
    lateness_s: ClassVar[float] = HOUR_S
    window_s: ClassVar[float] = 900.0
    patience: ClassVar[float] = 3.0  # at times it answers slowly for hours
    reach_s: ClassVar[float] = 14 * DAY_S
    limits: ClassVar[str] = "forecast to the end of the day"
    zones: ClassVar[Collection[str]] = COUNTRIES

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        # the forecast is asked for without a span
        span = {"start": stamp(start_s), "end": stamp(end_s)} if kind == "actual" else {}
        data = await self.json("co2eq", {"country": zone.lower(), **span})
        return self._read(data, "co2eq" if kind == "actual" else "co2eq_forecast", kind)

    def _read(self, data: Any, column: str, kind: str, factor: float = 1.0) -> Iterator[clean.Raw]:
        stamps = [float(value) for value in data["unix_seconds"]] if data else []
        values = data[column] if data else []
        if len(stamps) != len(values):
            raise BadAnswer(f"{self.title} sent {len(stamps)} times but {len(values)} values")
        for start_s, length, value in zip(stamps, steps(stamps, 900.0), values, strict=True):
            yield start_s, length, number(value, factor), kind


class EnergyChartsPrice(PriceProvider, EnergyCharts):
    """`/price?bzn=DE-LU`: EUR/MWh, 60 min until 2025-09-30, 15 min since; negative prices are valid.

    Licence: CC BY 4.0, Bundesnetzagentur | SMARD.de via Energy-Charts.
    """

    name: ClassVar[str] = "energy-charts-price"
    title: ClassVar[str] = "Energy-Charts day-ahead price"
    recorded: ClassVar[bool] = False
    limits: ClassVar[str] = ""
    zones = PRICE_ZONES

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        span = {"start": stamp(start_s), "end": stamp(end_s)}
        data = await self.json("price", {"bzn": PRICE_ZONES[zone], **span})
        return self._read(data, "price", kind, 1e-3)


# Energi Data Service (Denmark): no key; CO2 measured and forecast every 5 min, day-ahead prices.
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
