"""ONS (Brazil): no key; current generation by kind in each of the four subsystems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import ClassVar

from carbontui.grid.providers.base import HOUR_S, number
from carbontui.grid.providers.decode import from_json
from carbontui.grid.providers.frame import MixProvider, Power


class Ons(MixProvider):
    """One instant per answer, stamped with its offset. `termica` does not name its fuel: counted as 'other'."""

    name: ClassVar[str] = "ons"
    title: ClassVar[str] = "ONS energy balance"
    base: ClassVar[str] = "https://integra.ons.org.br/api/energiaagora"
    licence: ClassVar[str] = "ONS"
    limits: ClassVar[str] = "now only, no forecast, imports not counted, fuel of thermal plants unknown"
    zones = {"BR-CS": "sudesteECentroOeste", "BR-S": "sul", "BR-NE": "nordeste", "BR-N": "norte"}
    keeps_s = HOUR_S
    fuels = {
        "hidraulica": "hydro", "itaipu50HzBrasil": "hydro", "itaipu60Hz": "hydro", "termica": "other",
        "eolica": "wind", "nuclear": "nuclear", "solar": "solar", "total": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        yield (await self.get("GetBalancoEnergetico/null")).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        data = from_json(body, self.title)
        taken_s = datetime.fromisoformat(data["Data"].replace("Z", "+00:00")).timestamp()
        for word, value in data[self.zones[zone]]["geracao"].items():
            yield Power(taken_s // self.step_s * self.step_s, word, number(value))
