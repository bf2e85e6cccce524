"""ERCOT (Texas): no key; generation by fuel every 5 min, today and yesterday in one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import ClassVar

from carbontui.grid.providers.base import DAY_S, number
from carbontui.grid.providers.decode import from_json
from carbontui.grid.providers.frame import MixProvider, Power


class Ercot(MixProvider):
    """Samples some seconds before each full five minutes, stamped with their offset; batteries are not counted."""

    name: ClassVar[str] = "ercot"
    title: ClassVar[str] = "ERCOT fuel mix"
    base: ClassVar[str] = "https://www.ercot.com/api/1/services/read/dashboards"
    licence: ClassVar[str] = "ERCOT"
    limits: ClassVar[str] = "no forecast, imports not counted; may refuse requests from outside the US"
    zones = {"US-TEX-ERCO": "ERCOT"}
    keeps_s = 1.5 * DAY_S
    fuels = {
        "Coal and Lignite": "coal", "Hydro": "hydro", "Natural Gas": "gas", "Nuclear": "nuclear", "Other": "other",
        "Solar": "solar", "Wind": "wind", "Power Storage": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        yield (await self.get("fuel-mix.json")).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        days = from_json(body, self.title)["data"]
        for day in days.values():
            for when, mix in day.items():
                taken_s = datetime.strptime(when, "%Y-%m-%d %H:%M:%S%z").timestamp()
                for word, value in mix.items():
                    yield Power(taken_s // self.step_s * self.step_s, word, number(value["gen"]))
