"""Taipower (Taiwan): no key; current output of every unit, updated every ten minutes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers.base import HOUR_S, utc
from carbontui.grid.providers.decode import from_json
from carbontui.grid.providers.frame import MixProvider, Power, amount

KIND = re.compile(r"<A NAME='([^']*)'", re.IGNORECASE)
NAME, OUTPUT = 2, 4
GEOTHERMAL, BIOFUEL = ("Geothermal", "地熱"), ("Biofuel", "生質能")


class Taipower(MixProvider):
    """A table of units with a subtotal line per kind; local time without an offset (no summer time in Taiwan)."""

    name: ClassVar[str] = "taipower"
    title: ClassVar[str] = "Taipower unit output"
    base: ClassVar[str] = "https://www.taipower.com.tw/d006/loadGraph/loadGraph/data"
    licence: ClassVar[str] = "Taiwan Power Company"
    window_s: ClassVar[float] = 600.0
    limits: ClassVar[str] = "now only, no forecast"
    zones = {"TW": "Taiwan"}
    keeps_s = HOUR_S
    step_s = 600.0
    fuels = {
        "nuclear": "nuclear", "coal": "coal", "ippcoal": "coal", "lng": "gas", "ipplng": "gas", "cogen": "other",
        "oil": "oil", "diesel": "oil", "hydro": "hydro", "wind": "wind", "solar": "solar", "geothermal": "geothermal",
        "biofuel": "biomass", "otherrenewableenergy": "biomass", "energystoragesystem": None,
        "energystoragesystemload": None, "storagesystem": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        yield (await self.get("genary_eng.json")).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        data = from_json(body, self.title)
        taken_s = utc(data[""].replace(" ", "T") + ":00+08:00")
        for unit in data.get("dataset") or data["aaData"]:
            kind = KIND.search(unit[0])
            if kind is None:
                raise BadAnswer(f"{self.title} sent a table in an undocumented format")
            name, word = unit[NAME], kind[1].lower()
            if name.startswith(("Subtotal", "小計")):
                continue
            if any(part in name for part in GEOTHERMAL):
                word = "geothermal"
            elif any(part in name for part in BIOFUEL):
                word = "biofuel"
            yield Power(taken_s, word, amount(unit[OUTPUT].split("(")[0]) or 0.0)
