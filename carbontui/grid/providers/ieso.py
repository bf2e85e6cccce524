"""IESO (Ontario): no key; hourly output of every generator, one document a day."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import ClassVar

from carbontui.grid.providers.base import HOUR_S, number, utc
from carbontui.grid.providers.decode import from_xml, text_of
from carbontui.grid.providers.frame import MixProvider, Power


class Ieso(MixProvider):
    """Eastern standard time all year; hour 1 ends at 01:00. OTHER includes storage, so it is left out."""

    name: ClassVar[str] = "ieso"
    title: ClassVar[str] = "IESO generator output"
    base: ClassVar[str] = "https://reports-public.ieso.ca/public/GenOutputCapability"
    licence: ClassVar[str] = "IESO"
    window_s: ClassVar[float] = 900.0
    late_s: ClassVar[float] = 4 * HOUR_S
    zones = {"CA-ON": "Ontario"}
    time_zone = "Etc/GMT+5"
    step_s = HOUR_S
    fuels = {
        "NUCLEAR": "nuclear", "GAS": "gas", "HYDRO": "hydro", "WIND": "wind", "SOLAR": "solar", "BIOFUEL": "biomass",
        "OTHER": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        async for body in self.daily("PUB_GenOutputCapability_%Y%m%d.xml", start_s, end_s):
            yield body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        root = from_xml(body, self.title)
        day = datetime.strptime(text_of(root, ".//Date", self.title), "%Y-%m-%d")
        for generator in root.iter("Generator"):
            fuel = text_of(generator, "FuelType", self.title)
            for output in generator.iter("Output"):
                begins = day + timedelta(hours=int(text_of(output, "Hour", self.title)) - 1)
                # a generator that is out sends an hour without a value
                megawatts = number(output.findtext("EnergyMW") or "0")
                yield Power(utc(f"{begins:%Y-%m-%dT%H:%M:00}-05:00"), fuel, megawatts)
