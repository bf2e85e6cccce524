"""Operators with a file per day: no key."""

import csv
import io
import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid.http import BadAnswer
from carbontui.grid.providers.base import from_json, from_xml, number, text_of, unzipped, utc, whole_lines
from carbontui.grid.providers.frame import LocalClock, MixProvider, Power, amount
from carbontui.grid.types import DAY_S, HOUR_S

OFFSETS = {"EST": "-05:00", "EDT": "-04:00"}
FILE_MAX = 4 * 2**20
FILES_KEPT_S = 8 * DAY_S
"""Daily files stay for about ten days; older ones are in their month's archive."""


class Nyiso(MixProvider):
    """`Dual Fuel` burns gas on all but a few cold days; stamps end their interval and name their time zone."""

    name: ClassVar[str] = "nyiso"
    title: ClassVar[str] = "NYISO fuel mix"
    base: ClassVar[str] = "http://mis.nyiso.com/public/csv/rtfuelmix"
    zones = {"US-NY-NYIS": "NYISO"}
    path = "%Y%m%drtfuelmix.csv"
    time_zone = "America/New_York"
    fuels = {
        "Dual Fuel": "gas", "Natural Gas": "gas", "Nuclear": "nuclear", "Other Fossil Fuels": "oil",
        "Other Renewables": "biomass", "Wind": "wind", "Hydro": "hydro", "Solar": "solar", "Energy Storage": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        if end_s > now_s - FILES_KEPT_S:
            async for body in super().request(zone, start_s, end_s, now_s):
                yield body
            return
        month = self.days(start_s, end_s)[-1].replace(day=1)
        for body in unzipped((await self.get(f"{month:%Y%m%d}rtfuelmix_csv.zip")).body, self.title, FILE_MAX):
            yield body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        text = whole_lines(body)
        if not text.startswith("Time Stamp,"):
            raise BadAnswer(f"{self.title} sent no table")
        for row in csv.DictReader(io.StringIO(text)):
            at = datetime.strptime(row["Time Stamp"][:16], "%m/%d/%Y %H:%M")
            end_s = utc(f"{at:%Y-%m-%dT%H:%M:00}{OFFSETS[row['Time Zone']]}")
            # some readings lie off the five-minute marks: each belongs to the interval that contains it
            start_s = (end_s - 1) // self.step_s * self.step_s
            yield Power(start_s, row["Fuel Category"], amount(row["Gen MW"]), (end_s,))


class Ieso(MixProvider):
    """Eastern standard time all year; hour 1 ends at 01:00. OTHER includes storage, so it is left out."""

    name: ClassVar[str] = "ieso"
    title: ClassVar[str] = "IESO generator output"
    base: ClassVar[str] = "https://reports-public.ieso.ca/public/GenOutputCapability"
    window_s: ClassVar[float] = 900.0
    # hourly, written after the hour
    lateness_s: ClassVar[float] = HOUR_S
    late_s: ClassVar[float] = 4 * HOUR_S
    zones = {"CA-ON": "Ontario"}
    time_zone = "Etc/GMT+5"
    step_s = HOUR_S
    fuels = {
        "NUCLEAR": "nuclear", "GAS": "gas", "HYDRO": "hydro", "WIND": "wind", "SOLAR": "solar", "BIOFUEL": "biomass",
        "OTHER": None,
    }  # fmt: skip
    path = "PUB_GenOutputCapability_%Y%m%d.xml"

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


PADDING = re.compile(rb"^\s*\w*\(|\);?\s*$")
"""The answers are JSONP: the data are wrapped in a function call."""


class Ree(MixProvider):
    """One `curva` per system. A day's answer begins at 21:00 of the day before. `hid` and `aut` are sums of others.

    Islands supplied by cable (La Gomera, Menorca, Ibiza, Formentera) are left out: their own mix says little.
    """

    name: ClassVar[str] = "ree"
    title: ClassVar[str] = "Red Eléctrica demand"
    base: ClassVar[str] = "https://demanda.ree.es"
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

    def path_of(self, zone: str) -> str:
        system, curve = self.zones[zone].split("/")
        return f"WSvisionaMoviles{system}Rest/resources/demandaGeneracion{system}?curva={curve}&fecha=%Y-%m-%d"

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
