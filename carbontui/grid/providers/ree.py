"""REE (Spain): no key; generation by technology every 5 min for the mainland, the islands, Ceuta and Melilla."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid.providers.base import number
from carbontui.grid.providers.decode import from_json
from carbontui.grid.providers.frame import LocalClock, MixProvider, Power

PADDING = re.compile(rb"^\s*\w*\(|\);?\s*$")
"""The answers are JSONP: the data are wrapped in a function call."""


class Ree(MixProvider):
    """One `curva` per system. A day's answer begins at 21:00 of the day before. `hid` and `aut` are sums of others.

    Islands supplied by cable (La Gomera, Menorca, Ibiza, Formentera) are left out: their own mix says little.
    """

    name: ClassVar[str] = "ree"
    title: ClassVar[str] = "Red Eléctrica demand"
    base: ClassVar[str] = "https://demanda.ree.es"
    licence: ClassVar[str] = "Red Eléctrica de España"
    time_zone = "Europe/Madrid"
    zones = {
        "ES": "Peninsula/DEMANDAAU", "ES-CE": "Peninsula/CEUTAAU", "ES-ML": "Peninsula/MELILLAAU",
        "ES-IB-MA": "Baleares/MALLORCAAU", "ES-CN-TE": "Canarias/TENERIFEAU", "ES-CN-GC": "Canarias/GCANARIAAU",
        "ES-CN-FVLZ": "Canarias/LZ_FVAU", "ES-CN-LP": "Canarias/LA_PALMAAU", "ES-CN-HI": "Canarias/EL_HIERROAU",
    }  # fmt: skip
    fuels = {
        "nuc": "nuclear", "car": "coal", "cc": "gas", "gas": "gas", "gf": "oil", "die": "oil", "vap": "oil",
        "turbVap": "oil", "genAux": "oil", "cogen": "gas", "cogenResto": "gas", "eol": "wind", "sol": "solar",
        "fot": "solar", "gnhd": "hydro", "termRenov": "biomass", "bio": "biomass", "trn": "biomass",
        "otrRen": "biomass", "resid": "other", "residRen": "biomass", "residNr": "other", "tnr": "other",
        **dict.fromkeys((
            "dem", "hid", "aut", "inter", "icb", "cb", "efl", "emm", "emi", "eif", "solFot", "solTer", "turb", "conb",
            "bat", "consBat", "dif", "expAnd", "expMar", "expPor", "expFra", "expTot", "impAnd", "impMar", "impPor",
            "impFra", "impTot",
        )),
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        system, curve = self.zones[zone].split("/")
        path = f"WSvisionaMoviles{system}Rest/resources/demandaGeneracion{system}?curva={curve}&fecha=%Y-%m-%d"
        async for body in self.daily(path, start_s, end_s):
            yield body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        data = from_json(PADDING.sub(b"", body), self.title)
        island = zone.startswith("ES-CN")
        burns_oil = island or zone in ("ES-CE", "ES-ML")
        clock = LocalClock(ZoneInfo("Atlantic/Canary")) if island else self.clock()
        for record in data["valoresHorariosGeneracion"]:
            # the repeated hour of autumn is written 2A and 2B
            text = record.pop("ts").replace("A:", ":").replace("B:", ":")
            day, _, time_of_day = text.partition(" ")
            start_s = clock(datetime.strptime(f"{day} {time_of_day.zfill(5)}", "%Y-%m-%d %H:%M"))
            for word, value in record.items():
                # they have no gas pipeline: their gas turbines burn diesel
                fuel = "die" if burns_oil and word in ("cc", "gas") else word
                yield Power(start_s, fuel, number(value))
