"""Operators whose one answer holds their newest values, of this moment or of the last hours: no key."""

import csv
import io
import re
from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar

from carbontui.grid.http import BadAnswer
from carbontui.grid.providers.base import from_json, number, utc, whole_lines
from carbontui.grid.providers.frame import MixProvider, Power, amount
from carbontui.grid.types import DAY_S, HOUR_S, Signal


class Ons(MixProvider):
    """One instant per answer, stamped with its offset. `termica` does not name its fuel: counted as 'other'."""

    name: ClassVar[str] = "ons"
    title: ClassVar[str] = "ONS energy balance"
    base: ClassVar[str] = "https://integra.ons.org.br/api/energiaagora"
    limits: ClassVar[str] = "now only, no forecast, imports not counted, fuel of thermal plants unknown"
    zones = {"BR-CS": "sudesteECentroOeste", "BR-S": "sul", "BR-NE": "nordeste", "BR-N": "norte"}
    keeps_s = HOUR_S
    fuels = {
        "hidraulica": "hydro", "itaipu50HzBrasil": "hydro", "itaipu60Hz": "hydro", "termica": "other",
        "eolica": "wind", "nuclear": "nuclear", "solar": "solar", "total": None,
    }  # fmt: skip
    path = "GetBalancoEnergetico/null"

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        data = from_json(body, self.title)
        taken_s = datetime.fromisoformat(data["Data"].replace("Z", "+00:00")).timestamp()
        for word, value in data[self.zones[zone]]["geracao"].items():
            yield Power(taken_s // self.step_s * self.step_s, word, number(value))


DATA = re.compile(rb'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)


class Transpower(MixProvider):
    """The page embeds its figures as JSON; the timestamp is in epoch seconds."""

    name: ClassVar[str] = "transpower"
    title: ClassVar[str] = "Transpower live data"
    base: ClassVar[str] = "https://www.transpower.co.nz/system-operator/live-system-and-market-data"
    limits: ClassVar[str] = "now only, no forecast"
    zones = {"NZ": "New Zealand"}
    keeps_s = HOUR_S
    fuels = {
        "Gas": "gas", "Coal": "coal", "Gas/Coal": "coal", "Diesel/Oil": "oil", "Co-Gen": "gas",
        "Geothermal": "geothermal", "Hydro": "hydro", "Wind": "wind", "Solar": "solar", "Battery": None, "total": None,
    }  # fmt: skip
    path = "consolidated-live-data"

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


KIND = re.compile(r"<A NAME='([^']*)'", re.IGNORECASE)
NAME, OUTPUT = 2, 4
GEOTHERMAL, BIOFUEL = ("Geothermal", "地熱"), ("Biofuel", "生質能")


class Taipower(MixProvider):
    """A table of units with a subtotal line per kind; local time without an offset (no summer time in Taiwan)."""

    name: ClassVar[str] = "taipower"
    title: ClassVar[str] = "Taipower unit output"
    base: ClassVar[str] = "https://www.taipower.com.tw/d006/loadGraph/loadGraph/data"
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
    path = "genary_eng.json"

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


class Miso(MixProvider):
    """Eastern standard time all year (`INTERVALEST`). `Other` is mostly hydro, with some oil, waste and wood.

    The URL for yesterday mostly returns values of today, so it is not used.
    """

    name: ClassVar[str] = "miso"
    title: ClassVar[str] = "MISO fuel mix"
    base: ClassVar[str] = "https://public-api.misoenergy.org/api/FuelMix"
    limits: ClassVar[str] = "no forecast, imports not counted, 'other' counted as water power"
    spacing_s: ClassVar[float] = 60.0  # one request a minute
    zones = {"US-MIDW-MISO": "MISO"}
    time_zone = "Etc/GMT+5"
    keeps_s = HOUR_S
    fuels = {
        "Coal": "coal", "Natural Gas": "gas", "Nuclear": "nuclear", "Wind": "wind", "Solar": "solar",
        "Hydro": "hydro", "Other": "hydro", "Battery Storage": None, "Storage": None, "Imports": None,
    }  # fmt: skip
    path = "Today"

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        records = from_json(body, self.title)["Fuel"]["Type"]
        for record in records:
            at = datetime.strptime(record["INTERVALEST"], "%Y-%m-%d %I:%M:%S %p")
            yield Power(utc(f"{at:%Y-%m-%dT%H:%M:00}-05:00"), record["CATEGORY"], amount(record["ACT"]))


STAMPS = ("GMT MKT Interval", "GMTTime")


class Spp(MixProvider):
    """UTC stamps that end their interval; `BAA` names the area. Before 2026 two columns a fuel (`Market`, `Self`)."""

    name: ClassVar[str] = "spp"
    title: ClassVar[str] = "SPP generation mix"
    base: ClassVar[str] = "https://portal.spp.org/chart-api"
    zones = {"US-CENT-SWPP": "SPP"}
    keeps_s = 2 * HOUR_S
    fuels = {
        "Coal": "coal", "Natural Gas": "gas", "Gas": "gas", "Diesel Fuel Oil": "oil", "Nuclear": "nuclear",
        "Hydro": "hydro", "Wind": "wind", "Solar": "solar", "Waste Disposal Services": "biomass",
        "Waste Heat": "other", "Other": "other", "Energy Storage": None, "Battery Storage": None,
        "Average Actual Load": None, "Load": None,
    }  # fmt: skip
    path = "gen-mix/asFile"

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


class Ercot(MixProvider):
    """Samples some seconds before each full five minutes, stamped with their offset; batteries are not counted."""

    name: ClassVar[str] = "ercot"
    title: ClassVar[str] = "ERCOT fuel mix"
    base: ClassVar[str] = "https://www.ercot.com/api/1/services/read/dashboards"
    limits: ClassVar[str] = "no forecast, imports not counted; may refuse requests from outside the US"
    zones = {"US-TEX-ERCO": "ERCOT"}
    keeps_s = 1.5 * DAY_S
    fuels = {
        "Coal and Lignite": "coal", "Hydro": "hydro", "Natural Gas": "gas", "Nuclear": "nuclear", "Other": "other",
        "Solar": "solar", "Wind": "wind", "Power Storage": None,
    }  # fmt: skip
    path = "fuel-mix.json"

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        days = from_json(body, self.title)["data"]
        for day in days.values():
            for when, mix in day.items():
                taken_s = datetime.strptime(when, "%Y-%m-%d %H:%M:%S%z").timestamp()
                for word, value in mix.items():
                    yield Power(taken_s // self.step_s * self.step_s, word, number(value["gen"]), (taken_s,))


class HydroQuebec(MixProvider):
    """Nearly all hydro, so only lifecycle intensity differs between hours. Future hours hold zeros.

    Licence: CC BY-NC 4.0, Hydro-Québec.
    """

    name: ClassVar[str] = "hydro-quebec"
    title: ClassVar[str] = "Hydro-Québec production"
    base: ClassVar[str] = "https://www.hydroquebec.com/data/documents-donnees/donnees-ouvertes/json"
    signal: ClassVar[Signal] = "average_lifecycle"
    # hourly, written after the hour
    lateness_s: ClassVar[float] = HOUR_S
    window_s: ClassVar[float] = 900.0
    zones = {"CA-QC": "Québec"}
    time_zone = "America/Toronto"
    keeps_s = DAY_S
    step_s = HOUR_S
    fuels = {
        "hydraulique": "hydro", "eolien": "wind", "solaire": "solar", "thermique": "gas", "autres": "biomass",
        "total": None,
    }  # fmt: skip
    path = "production.json"

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
