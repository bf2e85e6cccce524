"""ENTSO-E transparency platform (Europe): free token; day-ahead prices of bidding zones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from xml.etree import ElementTree

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers import entsoe_document as document
from carbontui.grid.providers.base import DAY_S
from carbontui.grid.providers.price import PriceProvider
from carbontui.grid.types import Series


class EntsoePrice(PriceProvider):
    """Day-ahead price (A44), EUR per MWh; free token."""

    name: ClassVar[str] = "entsoe-price"
    title: ClassVar[str] = "ENTSO-E day-ahead price"
    base: ClassVar[str] = document.BASE
    licence: ClassVar[str] = document.LICENCE
    keys: ClassVar[tuple[str, ...]] = document.KEYS
    window_s: ClassVar[float] = 900.0
    busy_s: ClassVar[float] = document.BAN_S
    reach_s: ClassVar[float] = 14 * DAY_S
    limits: ClassVar[str] = "not to be republished"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone in document.AREAS

    async def between(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        params = {"documentType": "A44", "in_Domain": document.AREAS[zone], "out_Domain": document.AREAS[zone]}
        body = await document.ask(self, params, start_s, end_s)
        return self.series(zone, lambda: _prices(document.tree(body)), now_s, now_s)


def _prices(root: ElementTree.Element) -> Iterator[clean.Raw]:
    found = root.findall("TimeSeries")
    for series in found:
        currency = (series.findtext("currency_Unit.name") or "EUR").strip()
        if currency != "EUR":
            raise BadAnswer(f"ENTSO-E prices are in {currency}, not EUR")
        # sequence 1 is the coupled auction; others are local auctions for the same hours
        sequence = series.findtext("classificationSequence_AttributeInstanceComponent.position")
        if sequence is not None and sequence.strip() != "1":
            continue
        for start_s, length, price in document.points(series, "price.amount"):
            yield start_s, length, price / 1000, "forecast"
