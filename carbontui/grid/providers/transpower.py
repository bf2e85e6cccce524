"""Transpower (New Zealand): no key; current generation by fuel, from the live data page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers.base import HOUR_S, number
from carbontui.grid.providers.decode import from_json
from carbontui.grid.providers.frame import MixProvider, Power

DATA = re.compile(rb'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)


class Transpower(MixProvider):
    """The page embeds its figures as JSON; the timestamp is in epoch seconds."""

    name: ClassVar[str] = "transpower"
    title: ClassVar[str] = "Transpower live data"
    base: ClassVar[str] = "https://www.transpower.co.nz/system-operator/live-system-and-market-data"
    licence: ClassVar[str] = "Transpower New Zealand"
    limits: ClassVar[str] = "now only, no forecast"
    zones = {"NZ": "New Zealand"}
    keeps_s = HOUR_S
    fuels = {
        "Gas": "gas", "Coal": "coal", "Gas/Coal": "coal", "Diesel/Oil": "oil", "Co-Gen": "gas",
        "Geothermal": "geothermal", "Hydro": "hydro", "Wind": "wind", "Solar": "solar", "Battery": None, "total": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        yield (await self.get("consolidated-live-data")).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        for script in DATA.finditer(body):
            graph = from_json(script[1], self.title).get("soPgenGraph")
            if graph:
                taken_s = float(graph["timestamp"]) // self.step_s * self.step_s
                for word, value in graph["data"][self.zones[zone]].items():
                    # the total is a bare number among its parts
                    yield Power(taken_s, word, number(value["generation"] if isinstance(value, dict) else value))
                return
        raise BadAnswer(f"{self.title} sent a page without its data")
