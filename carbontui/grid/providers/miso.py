"""MISO (US Midwest): no key; today's generation by fuel every 5 min."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import ClassVar

from carbontui.grid.providers.base import HOUR_S, utc
from carbontui.grid.providers.decode import from_json
from carbontui.grid.providers.frame import MixProvider, Power, amount


class Miso(MixProvider):
    """Eastern standard time all year (`INTERVALEST`). `Other` is mostly hydro, with some oil, waste and wood.

    The URL for yesterday mostly returns values of today, so it is not used.
    """

    name: ClassVar[str] = "miso"
    title: ClassVar[str] = "MISO fuel mix"
    base: ClassVar[str] = "https://public-api.misoenergy.org/api/FuelMix"
    licence: ClassVar[str] = "MISO"
    limits: ClassVar[str] = "no forecast, imports not counted, 'other' counted as water power"
    spacing_s: ClassVar[float] = 60.0  # one request a minute
    zones = {"US-MIDW-MISO": "MISO"}
    time_zone = "Etc/GMT+5"
    keeps_s = HOUR_S
    fuels = {
        "Coal": "coal", "Natural Gas": "gas", "Nuclear": "nuclear", "Wind": "wind", "Solar": "solar",
        "Hydro": "hydro", "Other": "hydro", "Battery Storage": None, "Storage": None, "Imports": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        yield (await self.get("Today")).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        records = from_json(body, self.title)["Fuel"]["Type"]
        for record in records:
            at = datetime.strptime(record["INTERVALEST"], "%Y-%m-%d %I:%M:%S %p")
            yield Power(utc(f"{at:%Y-%m-%dT%H:%M:00}-05:00"), record["CATEGORY"], amount(record["ACT"]))
