"""CAISO OASIS (California): no key; day-ahead price of the northern hub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers import oasis
from carbontui.grid.providers.base import DAY_S, SHAPE_FAULTS, number, stamp, utc
from carbontui.grid.providers.price import PriceProvider
from carbontui.grid.types import Series


class CaisoPrice(PriceProvider):
    """OASIS day-ahead locational price of the northern hub, USD per MWh; a ZIP that may hold an XML error instead."""

    name: ClassVar[str] = "caiso-price"
    title: ClassVar[str] = "CAISO OASIS day-ahead price"
    base: ClassVar[str] = oasis.BASE
    licence: ClassVar[str] = "CAISO"
    window_s: ClassVar[float] = 1800.0
    reach_s: ClassVar[float] = 28 * DAY_S  # a request may span 31 days
    currency: str | None = "USD"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone == "US-CAL-CISO"

    async def between(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        params = {
            "queryname": "PRC_LMP",
            "market_run_id": "DAM",
            "version": "1",
            "resultformat": "6",
            "node": "TH_NP15_GEN-APND",
            "startdatetime": stamp(start_s, "%Y%m%dT%H:%M-0000"),
            "enddatetime": stamp(end_s, "%Y%m%dT%H:%M-0000"),
        }
        body = (await self.get("SingleZip", params)).body
        return self.series(zone, lambda: _prices(body), now_s, now_s)


def _prices(body: bytes) -> Iterator[clean.Raw]:
    for row in oasis.table(body):
        try:
            if row["LMP_TYPE"] != "LMP":
                continue
            start_s = utc(row["INTERVALSTARTTIME_GMT"].replace("-00:00", "+00:00"))
            end_s = utc(row["INTERVALENDTIME_GMT"].replace("-00:00", "+00:00"))
            price = number(row["MW"])
        except SHAPE_FAULTS:
            raise BadAnswer("CAISO OASIS sent a table in an undocumented format") from None
        yield start_s, end_s - start_s, None if price is None else price / 1000, "forecast"
