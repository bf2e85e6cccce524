"""ENTSO-E's market documents: the request, the area codes, and points as intervals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from carbontui.grid.faults import BadAnswer, NoData
from carbontui.grid.providers.base import DAY_S, HOUR_S, Provider, stamp, utc
from carbontui.grid.providers.decode import from_xml, text_of

BASE = "https://web-api.tp.entsoe.eu"
LICENCE = "ENTSO-E Transparency Platform"
KEYS = ("ENTSOE_TOKEN",)
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


async def ask(provider: Provider, params: dict[str, str], start_s: float, end_s: float) -> bytes:
    """The document of a stretch of whole hours. Raises GridError."""
    form = "%Y%m%d%H00"
    span = {"periodStart": stamp(start_s, form), "periodEnd": stamp(end_s + HOUR_S, form)}
    token = {"securityToken": provider.key(KEYS[0])}
    return (await provider.get("api", {**params, **span, **token})).body


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
