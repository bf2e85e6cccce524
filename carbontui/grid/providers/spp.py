"""SPP (US Great Plains): no key; generation by fuel every 5 min for the last hours."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers.base import HOUR_S, utc
from carbontui.grid.providers.decode import whole_lines
from carbontui.grid.providers.frame import MixProvider, Power, amount

STAMPS = ("GMT MKT Interval", "GMTTime")


class Spp(MixProvider):
    """UTC stamps that end their interval; `BAA` names the area. Before 2026 two columns a fuel (`Market`, `Self`)."""

    name: ClassVar[str] = "spp"
    title: ClassVar[str] = "SPP generation mix"
    base: ClassVar[str] = "https://portal.spp.org/chart-api"
    licence: ClassVar[str] = "SPP"
    zones = {"US-CENT-SWPP": "SPP"}
    keeps_s = 2 * HOUR_S
    fuels = {
        "Coal": "coal", "Natural Gas": "gas", "Gas": "gas", "Diesel Fuel Oil": "oil", "Nuclear": "nuclear",
        "Hydro": "hydro", "Wind": "wind", "Solar": "solar", "Waste Disposal Services": "biomass",
        "Waste Heat": "other", "Other": "other", "Energy Storage": None, "Battery Storage": None,
        "Average Actual Load": None, "Load": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        yield (await self.get("gen-mix/asFile")).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        table = csv.DictReader(io.StringIO(whole_lines(body)), skipinitialspace=True)
        when = next((name for name in table.fieldnames or () if name.strip() in STAMPS), None)
        if when is None:
            raise BadAnswer(f"{self.title} sent a table in an undocumented format")
        for row in table:
            if row.pop("BAA", self.zones[zone]) != self.zones[zone]:
                continue
            start_s = utc(row.pop(when)) - self.step_s
            for word, cell in row.items():
                fuel = word.strip().removesuffix(" Market").removesuffix(" Self")
                yield Power(start_s, fuel, amount(cell or "") or 0.0)
