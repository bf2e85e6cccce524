"""ENTSO-E transparency platform (Europe): free token; day-ahead prices, generation by source -> lifecycle intensity."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar
from xml.etree import ElementTree

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer, NoData
from carbontui.grid.providers.base import DAY_S, HOUR_S, Provider, stamp, utc
from carbontui.grid.providers.decode import from_xml, text_of
from carbontui.grid.providers.mix import intensity_g_per_kwh
from carbontui.grid.types import Series, Signal

AREAS = {
    "AT": "10YAT-APG------L", "BE": "10YBE----------2", "BG": "10YCA-BULGARIA-R", "CH": "10YCH-SWISSGRIDZ",
    "CZ": "10YCZ-CEPS-----N", "DE": "10Y1001A1001A82H", "DK-DK1": "10YDK-1--------W", "DK-DK2": "10YDK-2--------M",
    "EE": "10Y1001A1001A39I", "ES": "10YES-REE------0", "FI": "10YFI-1--------U", "FR": "10YFR-RTE------C",
    "GR": "10YGR-HTSO-----Y", "HR": "10YHR-HEP------M", "HU": "10YHU-MAVIR----U", "IT-NO": "10Y1001A1001A73I",
    "LT": "10YLT-1001A0008Q", "LV": "10YLV-1001A00074", "NL": "10YNL----------L", "NO-NO1": "10YNO-1--------2",
    "NO-NO2": "10YNO-2--------T", "PL": "10YPL-AREA-----S", "PT": "10YPT-REN------W", "RO": "10YRO-TEL------P",
    "SE-SE3": "10Y1001A1001A46L", "SE-SE4": "10Y1001A1001A47J", "SI": "10YSI-ELES-----O", "SK": "10YSK-SEPS-----K",
}  # fmt: skip
# production types of the platform; B10 (pumped storage) is no source
FUELS = {
    "B01": "biomass", "B02": "coal", "B03": "gas", "B04": "gas", "B05": "coal", "B06": "oil", "B07": "oil",
    "B08": "coal", "B09": "geothermal", "B11": "hydro", "B12": "hydro", "B13": "hydro", "B14": "nuclear",
    "B15": "biomass", "B16": "solar", "B17": "other", "B18": "wind", "B19": "wind", "B20": "other",
}  # fmt: skip
_DURATION = re.compile(r"PT(?:(\d{1,2})H)?(?:(\d{1,4})M)?")
STEP_S = (60.0, DAY_S)
PERIOD_MAX_S = 366 * DAY_S
"""A year is the most that one answer of the platform holds."""


class Entsoe(Provider):
    """Generation per type (A75) to intensity; imports are not seen, so it is of what is produced in the zone."""

    name: ClassVar[str] = "entsoe"
    title: ClassVar[str] = "ENTSO-E generation"
    base: ClassVar[str] = "https://web-api.tp.entsoe.eu"
    signal: ClassVar[Signal] = "average_lifecycle"
    licence: ClassVar[str] = "ENTSO-E Transparency Platform"
    keys: ClassVar[tuple[str, ...]] = ("ENTSOE_TOKEN",)
    window_s: ClassVar[float] = 900.0
    busy_s: ClassVar[float] = 660.0  # who asks too often is shut out for ten minutes
    foresees: ClassVar[bool] = False
    late_s: ClassVar[float] = 12 * HOUR_S
    reach_s: ClassVar[float] = 14 * DAY_S
    limits: ClassVar[str] = "hours late, no forecast, imports not counted"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone in AREAS

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        params = {"documentType": "A75", "processType": "A16", "in_Domain": AREAS[zone]}
        body = await self._ask(params, start_s, end_s)
        return await self.series_aside(zone, lambda: _intensity(_tree(body), AREAS[zone]), now_s)

    async def _ask(self, params: dict[str, str], start_s: float, end_s: float) -> bytes:
        form = "%Y%m%d%H00"
        span = {"periodStart": stamp(start_s, form), "periodEnd": stamp(end_s + HOUR_S, form)}
        token = {"securityToken": self.key("ENTSOE_TOKEN")}
        return (await self.get("api", {**params, **span, **token})).body


class EntsoePrice(Entsoe):
    """Day-ahead price (A44), EUR per MWh."""

    name: ClassVar[str] = "entsoe-price"
    title: ClassVar[str] = "ENTSO-E day-ahead price"
    signal: ClassVar[Signal] = "price"
    foresees: ClassVar[bool] = True
    remembers: ClassVar[bool] = False
    limits: ClassVar[str] = "not to be republished"
    currency: str | None = "EUR"

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        return await Provider.history(self, zone, start_s, end_s, now_s)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        params = {"documentType": "A44", "in_Domain": AREAS[zone], "out_Domain": AREAS[zone]}
        body = await self._ask(params, now_s - 12 * HOUR_S, end_s)
        return self.series(zone, lambda: _prices(_tree(body)), now_s, now_s)


def _tree(body: bytes) -> ElementTree.Element:
    root = from_xml(body, "ENTSO-E")
    if root.tag.startswith("Acknowledgement"):
        raise NoData("ENTSO-E has no data for these hours")
    if not root.tag.endswith("MarketDocument"):
        raise BadAnswer("ENTSO-E sent another document than asked for")
    return root


def _text(element: ElementTree.Element, path: str) -> str:
    return text_of(element, path, "ENTSO-E")


def _points(series: ElementTree.Element, value: str) -> Iterator[tuple[float, float, float]]:
    """start_s, dur_s, value; under curve type A03 a missing position repeats the one before, also at the end."""
    holds = (series.findtext("curveType") or "A01").strip() == "A03"
    for period in series.findall("Period"):
        start_s, end_s = utc(_text(period, "timeInterval/start")), utc(_text(period, "timeInterval/end"))
        match = _DURATION.fullmatch(_text(period, "resolution"))
        if not match or not any(match.groups()):
            raise BadAnswer("ENTSO-E sent a resolution that is not understood")
        step_s = 3600.0 * int(match[1] or 0) + 60.0 * int(match[2] or 0)
        if not STEP_S[0] <= step_s <= STEP_S[1] or not 0 <= end_s - start_s <= PERIOD_MAX_S:
            raise BadAnswer("ENTSO-E sent a period or a resolution that cannot be right")
        given = {int(_text(point, "position")): float(_text(point, value)) for point in period.findall("Point")}
        last: float | None = None
        for position in range(1, round((end_s - start_s) / step_s) + 1):
            last = given.get(position, last if holds else None)
            if last is not None:
                yield start_s + (position - 1) * step_s, step_s, last


def _prices(root: ElementTree.Element) -> Iterator[clean.Raw]:
    found = root.findall("TimeSeries")
    for series in found:
        currency = (series.findtext("currency_Unit.name") or "EUR").strip()
        if currency != "EUR":
            raise BadAnswer(f"ENTSO-E prices are in {currency}, not EUR")
        # sequence 1 is the coupled auction; others are local ones of the same hours
        sequence = series.findtext("classificationSequence_AttributeInstanceComponent.position")
        if sequence is not None and sequence.strip() != "1":
            continue
        for start_s, length, price in _points(series, "price.amount"):
            yield start_s, length, price / 1000, "forecast"


def _intensity(root: ElementTree.Element, area: str) -> Iterator[clean.Raw]:
    mixes: dict[tuple[float, float], dict[str, float]] = {}
    for series in root.findall("TimeSeries"):
        told = series.findtext("inBiddingZone_Domain.mRID")
        if told is None:
            continue  # an out zone means consumption: pumps
        if told.strip() != area:
            raise BadAnswer("ENTSO-E answered for another zone")
        fuel = FUELS.get(_text(series, "MktPSRType/psrType"))
        if fuel is None:
            continue
        for start_s, length, power in _points(series, "quantity"):
            mix = mixes.setdefault((start_s, length), {})
            mix[fuel] = mix.get(fuel, 0.0) + power
    # an hour for which most types have not reported yet would look like a clean one
    most = max((len(mix) for mix in mixes.values()), default=0)
    for (start_s, length), mix in mixes.items():
        if 2 * len(mix) >= most:
            yield start_s, length, intensity_g_per_kwh(mix), "estimated"
