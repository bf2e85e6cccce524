"""Operators' own CO2 intensity every 15 min: no key; RTE (France), EirGrid and SONI (Ireland) with a forecast."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer
from carbontui.grid.providers.base import Provider, number, rows_of, stamp, stepped
from carbontui.grid.providers.frame import LocalClock
from carbontui.grid.types import DAY_S, HOUR_S, Kind, Signal


class Eco2mix(Provider):
    """`taux_co2`, g/kWh generated; future rows of the day are null.

    Licence: Licence Ouverte 2.0, RTE eco2mix via ODRÉ.
    """

    name: ClassVar[str] = "eco2mix"
    title: ClassVar[str] = "RTE eco2mix"
    base: ClassVar[str] = "https://odre.opendatasoft.com/api/explore/v2.1/catalog/datasets/eco2mix-national-tr"
    signal: ClassVar[Signal] = "average_direct"
    window_s: ClassVar[float] = 900.0
    reach_s: ClassVar[float] = 14 * DAY_S
    foresees: ClassVar[bool] = False
    limits: ClassVar[str] = "no forecast, imports not counted"
    zones = frozenset({"FR"})

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        span = f"date_heure >= date'{stamp(start_s)}' and date_heure < date'{stamp(end_s)}'"
        params = {"select": "date_heure,taux_co2", "where": span, "order_by": "date_heure"}
        return self.read(await self.json("exports/json", params))

    def read(self, data: Any) -> Iterator[clean.Raw]:
        # an export is a bare list; the paged form of the same data wraps its rows
        records = data if isinstance(data, list) else data.get("results", data.get("records"))
        if not isinstance(records, list):
            raise BadAnswer(f"{self.title} sent an answer in an unexpected format")
        records = [record.get("fields", record) for record in records]
        for start_s, length, record in stepped(records, "date_heure", 900.0):
            yield start_s, length, number(record["taux_co2"]), "actual"


REGIONS = {"IE": "ROI", "GB-NIR": "NI"}
HERE = ZoneInfo("Europe/Dublin")


class Eirgrid(Provider):
    """Local stamps, null where no value is published yet; imports are counted as the operators count them."""

    name: ClassVar[str] = "eirgrid"
    title: ClassVar[str] = "EirGrid Smart Grid Dashboard"
    base: ClassVar[str] = "https://www.smartgriddashboard.com/api"
    signal: ClassVar[Signal] = "average_direct"
    recorded: ClassVar[bool] = False
    window_s: ClassVar[float] = 900.0
    # seen hours late at times
    lateness_s: ClassVar[float] = HOUR_S
    late_s: ClassVar[float] = 5 * HOUR_S
    reach_s: ClassVar[float] = 28 * DAY_S  # a month is answered; three months give an empty answer
    limits: ClassVar[str] = "hours late at times; forecast to the end of the next day at most"
    zones = REGIONS

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        last_s = now_s + DAY_S if kind == "forecast" else end_s
        first, last = (datetime.fromtimestamp(at, tz=HERE) for at in (start_s, last_s))
        days = {"dateFrom": f"{first:%d-%b-%Y}", "dateTo": f"{last:%d-%b-%Y}"}
        areas = "co2intensityforecast" if kind == "forecast" else "co2intensity"
        how = {"region": REGIONS[zone], "chartType": "co2", "dateRange": "day", "areas": areas}
        return self._read(await self.json("chart/", {**how, **days}), zone, kind, now_s)

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
