"""RTE eco2mix (France) from the operators' open data: no key; RTE's own CO2 rate every 15 min, measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers.base import DAY_S, Provider, number, stamp, steps, utc
from carbontui.grid.types import Series, Signal


class Eco2mix(Provider):
    """`taux_co2`, g/kWh generated; future rows of the day are null."""

    name: ClassVar[str] = "eco2mix"
    title: ClassVar[str] = "RTE eco2mix"
    base: ClassVar[str] = "https://odre.opendatasoft.com/api/explore/v2.1/catalog/datasets/eco2mix-national-tr"
    signal: ClassVar[Signal] = "average_direct"
    licence: ClassVar[str] = "Licence Ouverte 2.0, RTE eco2mix via ODRÉ"
    window_s: ClassVar[float] = 900.0
    reach_s: ClassVar[float] = 14 * DAY_S
    foresees: ClassVar[bool] = False
    limits: ClassVar[str] = "no forecast, imports not counted"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone == "FR"

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        span = f"date_heure >= date'{stamp(start_s)}' and date_heure < date'{stamp(end_s)}'"
        params = {"select": "date_heure,taux_co2", "where": span, "order_by": "date_heure"}
        data = await self.json("exports/json", params)
        return self.series(zone, lambda: self._read(data), now_s)

    def _read(self, data: Any) -> Iterator[clean.Raw]:
        # an export is a bare list; the paged form of the same data wraps its rows
        records = data if isinstance(data, list) else data.get("results", data.get("records"))
        if not isinstance(records, list):
            raise BadAnswer(f"{self.title} sent an answer in an unexpected format")
        records = [record.get("fields", record) for record in records]
        records.sort(key=lambda record: utc(record["date_heure"]))
        starts = [utc(record["date_heure"]) for record in records]
        for start_s, length, record in zip(starts, steps(starts, 900.0), records, strict=True):
            yield start_s, length, number(record["taux_co2"]), "actual"
