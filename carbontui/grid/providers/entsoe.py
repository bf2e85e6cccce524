"""ENTSO-E transparency platform (Europe): free token; generation by source -> lifecycle intensity, day-ahead prices."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import ClassVar
from xml.etree import ElementTree

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer, NoData
from carbontui.grid.providers.base import PriceProvider, Provider, from_xml, stamp, text_of, utc
from carbontui.grid.providers.frame import MixProvider, Power
from carbontui.grid.types import DAY_S, HOUR_S, Kind, Signal

BAN_S = 660.0
"""Too many requests are answered with a ban of ten minutes."""
AREAS = {
    "AT": "10YAT-APG------L", "BE": "10YBE----------2", "BG": "10YCA-BULGARIA-R", "CH": "10YCH-SWISSGRIDZ",
    "CZ": "10YCZ-CEPS-----N", "DE": "10Y1001A1001A82H", "DK-DK1": "10YDK-1--------W", "DK-DK2": "10YDK-2--------M",
    "EE": "10Y1001A1001A39I", "ES": "10YES-REE------0", "FI": "10YFI-1--------U", "FR": "10YFR-RTE------C",
    "GR": "10YGR-HTSO-----Y", "HR": "10YHR-HEP------M", "HU": "10YHU-MAVIR----U", "IT-NO": "10Y1001A1001A73I",
    "LT": "10YLT-1001A0008Q", "LV": "10YLV-1001A00074", "NL": "10YNL----------L", "NO-NO1": "10YNO-1--------2",
    "NO-NO2": "10YNO-2--------T", "PL": "10YPL-AREA-----S", "PT": "10YPT-REN------W", "RO": "10YRO-TEL------P",
    "SE-SE3": "10Y1001A1001A46L", "SE-SE4": "10Y1001A1001A47J", "SI": "10YSI-ELES-----O", "SK": "10YSK-SEPS-----K",
}  # fmt: skip
_DURATION = re.compile(r"PT(?:(\d{1,2})H)?(?:(\d{1,4})M)?")
STEP_S = (60.0, DAY_S)
PERIOD_MAX_S = 366 * DAY_S
"""The platform answers with a year at most."""


class _Platform(Provider):
    base: ClassVar[str] = "https://web-api.tp.entsoe.eu"
    keys: ClassVar[tuple[str, ...]] = ("ENTSOE_TOKEN",)
    window_s: ClassVar[float] = 900.0
    busy_s: ClassVar[float] = BAN_S
    reach_s: ClassVar[float] = 14 * DAY_S
    zones: ClassVar[Mapping[str, str]] = AREAS

    async def document(self, params: dict[str, str], start_s: float, end_s: float) -> bytes:
        """The document of a stretch of whole hours. Raises GridError."""
        form = "%Y%m%d%H00"
        span = {"periodStart": stamp(start_s, form), "periodEnd": stamp(end_s + HOUR_S, form)}
        token = {"securityToken": self.settings.keys[self.keys[0]]}
        return (await self.get("api", {**params, **span, **token})).body


def tree(body: bytes) -> ElementTree.Element:
    """The root of a document with time series. Raises NoData for an acknowledgement, BadAnswer for anything else."""
    root = from_xml(body, "ENTSO-E")
    if root.tag.startswith("Acknowledgement"):
        raise NoData("ENTSO-E has no data for these hours")
    if not root.tag.endswith("MarketDocument"):
        raise BadAnswer("ENTSO-E sent a different document than requested")
    return root


def text(element: ElementTree.Element, path: str) -> str:
    return text_of(element, path, "ENTSO-E")


def points(series: ElementTree.Element, value: str) -> Iterator[tuple[float, float, float]]:
    """(start_s, dur_s, value); in curve type A03 a missing position repeats the previous one, also at the end."""
    holds = (series.findtext("curveType") or "A01").strip() == "A03"
    for period in series.findall("Period"):
        start_s, end_s = utc(text(period, "timeInterval/start")), utc(text(period, "timeInterval/end"))
        match = _DURATION.fullmatch(text(period, "resolution"))
        if not match or not any(match.groups()):
            raise BadAnswer("ENTSO-E sent an unknown resolution")
        step_s = 3600.0 * int(match[1] or 0) + 60.0 * int(match[2] or 0)
        if not STEP_S[0] <= step_s <= STEP_S[1] or not 0 <= end_s - start_s <= PERIOD_MAX_S:
            raise BadAnswer("ENTSO-E sent an impossible period or resolution")
        given = {int(text(point, "position")): float(text(point, value)) for point in period.findall("Point")}
        last: float | None = None
        for position in range(1, round((end_s - start_s) / step_s) + 1):
            last = given.get(position, last if holds else None)
            if last is not None:
                yield start_s + (position - 1) * step_s, step_s, last


class Entsoe(_Platform, MixProvider):
    """Generation per type (A75) to intensity; imports are not included: it is that of generation in the zone."""

    name: ClassVar[str] = "entsoe"
    title: ClassVar[str] = "ENTSO-E generation"
    signal: ClassVar[Signal] = "average_lifecycle"
    # an hour by Regulation (EU) 543/2013, Art. 16; seen: GR 3 to 5 h (electricitymaps-contrib #2752, #2783)
    lateness_s: ClassVar[float] = 3 * HOUR_S
    late_s: ClassVar[float] = 12 * HOUR_S
    limits: ClassVar[str] = "hours late, no forecast, imports not counted"
    step_s = HOUR_S
    # pumped storage (B10) and batteries (B25) are not generation
    fuels = {
        "B01": "biomass", "B02": "coal", "B03": "gas", "B04": "gas", "B05": "coal", "B06": "oil", "B07": "oil",
        "B08": "coal", "B09": "geothermal", "B10": None, "B11": "hydro", "B12": "hydro", "B13": "hydro",
        "B14": "nuclear", "B15": "biomass", "B16": "solar", "B17": "other", "B18": "wind", "B19": "wind",
        "B20": "other", "B25": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        params = {"documentType": "A75", "processType": "A16", "in_Domain": AREAS[zone]}
        yield await self.document(params, start_s, end_s)

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        for series in tree(body).findall("TimeSeries"):
            told = series.findtext("inBiddingZone_Domain.mRID")
            if told is None:
                continue  # an out zone marks consumption by pumped storage
            if told.strip() != AREAS[zone]:
                raise BadAnswer("ENTSO-E answered for another zone")
            kind = text(series, "MktPSRType/psrType")
            for start_s, _, power in points(series, "quantity"):
                yield Power(start_s, kind, power)


class EntsoePrice(PriceProvider, _Platform):
    """Day-ahead price (A44), EUR per MWh; free token."""

    name: ClassVar[str] = "entsoe-price"
    title: ClassVar[str] = "ENTSO-E day-ahead price"
    limits: ClassVar[str] = "not to be republished"

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        params = {"documentType": "A44", "in_Domain": AREAS[zone], "out_Domain": AREAS[zone]}
        return _prices(await self.document(params, start_s, end_s))


def _prices(body: bytes) -> Iterator[clean.Raw]:
    for series in tree(body).findall("TimeSeries"):
        currency = (series.findtext("currency_Unit.name") or "EUR").strip()
        if currency != "EUR":
            raise BadAnswer(f"ENTSO-E prices are in {currency}, not EUR")
        # sequence 1 is the coupled auction; others are local auctions for the same hours
        sequence = series.findtext("classificationSequence_AttributeInstanceComponent.position")
        if sequence is not None and sequence.strip() != "1":
            continue
        for start_s, length, price in points(series, "price.amount"):
            yield start_s, length, price / 1000, "forecast"
