"""Hydro-Québec: no key; generation by kind over the last two days, hourly or finer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import ClassVar

from carbontui.grid.providers.base import DAY_S, HOUR_S, number
from carbontui.grid.providers.decode import from_json
from carbontui.grid.providers.frame import MixProvider, Power
from carbontui.grid.types import Signal


class HydroQuebec(MixProvider):
    """Nearly all hydro, so only lifecycle intensity differs between hours. Future hours hold zeros."""

    name: ClassVar[str] = "hydro-quebec"
    title: ClassVar[str] = "Hydro-Québec production"
    base: ClassVar[str] = "https://www.hydroquebec.com/data/documents-donnees/donnees-ouvertes/json"
    signal: ClassVar[Signal] = "average_lifecycle"
    licence: ClassVar[str] = "CC BY-NC 4.0, Hydro-Québec"
    window_s: ClassVar[float] = 900.0
    zones = {"CA-QC": "Québec"}
    time_zone = "America/Toronto"
    keeps_s = DAY_S
    step_s = HOUR_S
    fuels = {
        "hydraulique": "hydro", "eolien": "wind", "solaire": "solar", "thermique": "gas", "autres": "biomass",
        "total": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        yield (await self.get("production.json")).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        data = from_json(body, self.title)
        last, clock = data.get("recentHour"), self.clock()
        for record in data["details"]:
            values = record["valeurs"]
            if (last and record["date"] > last) or not values or not values.get("total"):
                continue
            start_s = clock(datetime.fromisoformat(record["date"]))
            for word, value in values.items():
                yield Power(start_s, word, number(value))
