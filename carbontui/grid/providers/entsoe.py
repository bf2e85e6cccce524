"""ENTSO-E transparency platform (Europe): free token; generation by source -> lifecycle intensity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from xml.etree import ElementTree

from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers import entsoe_document as document
from carbontui.grid.providers.base import DAY_S, HOUR_S, Provider
from carbontui.grid.types import Mix, Series, Signal

# production types of the platform; B10 (pumped storage) is not generation
FUELS = {
    "B01": "biomass", "B02": "coal", "B03": "gas", "B04": "gas", "B05": "coal", "B06": "oil", "B07": "oil",
    "B08": "coal", "B09": "geothermal", "B11": "hydro", "B12": "hydro", "B13": "hydro", "B14": "nuclear",
    "B15": "biomass", "B16": "solar", "B17": "other", "B18": "wind", "B19": "wind", "B20": "other",
}  # fmt: skip


class Entsoe(Provider):
    """Generation per type (A75) to intensity; imports are not included: it is that of generation in the zone."""

    name: ClassVar[str] = "entsoe"
    title: ClassVar[str] = "ENTSO-E generation"
    base: ClassVar[str] = document.BASE
    signal: ClassVar[Signal] = "average_lifecycle"
    licence: ClassVar[str] = document.LICENCE
    keys: ClassVar[tuple[str, ...]] = document.KEYS
    window_s: ClassVar[float] = 900.0
    busy_s: ClassVar[float] = document.BAN_S
    foresees: ClassVar[bool] = False
    late_s: ClassVar[float] = 12 * HOUR_S
    reach_s: ClassVar[float] = 14 * DAY_S
    limits: ClassVar[str] = "hours late, no forecast, imports not counted"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone in document.AREAS

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        params = {"documentType": "A75", "processType": "A16", "in_Domain": document.AREAS[zone]}
        body = await document.ask(self, params, start_s, end_s)
        return await self.series_of_mix(zone, lambda: _mixes(document.tree(body), document.AREAS[zone]), now_s)


def _mixes(root: ElementTree.Element, area: str) -> Iterator[Mix]:
    mixes: dict[tuple[float, float], dict[str, float]] = {}
    for series in root.findall("TimeSeries"):
        told = series.findtext("inBiddingZone_Domain.mRID")
        if told is None:
            continue  # an out zone marks consumption by pumped storage
        if told.strip() != area:
            raise BadAnswer("ENTSO-E answered for another zone")
        fuel = FUELS.get(document.text(series, "MktPSRType/psrType"))
        if fuel is None:
            continue
        for start_s, length, power in document.points(series, "quantity"):
            mix = mixes.setdefault((start_s, length), {})
            mix[fuel] = mix.get(fuel, 0.0) + power
    # an hour for which most types are still missing could look clean
    most = max((len(mix) for mix in mixes.values()), default=0)
    for (start_s, length), mix in mixes.items():
        if 2 * len(mix) >= most:
            yield Mix(start_s, length, mix)
