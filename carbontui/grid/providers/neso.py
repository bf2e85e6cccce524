"""Great Britain, no key: NESO's Carbon Intensity API, forecast to 48 h, national and regional, direct CO2; and a retail
price, Octopus Agile."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer, GridError, NoData
from carbontui.grid.providers.base import SHAPE_FAULTS, PriceProvider, Provider, number, rows_of, stamp, utc
from carbontui.grid.types import DAY_S, HOUR_S, Answer, Kind, Signal


class Neso(Provider):
    """`GB`, or `GB-1` to `GB-17` for the regions (forecast only: NESO publishes no regional actual).

    Licence: CC BY 4.0, NESO Carbon Intensity API.
    """

    name: ClassVar[str] = "neso"
    title: ClassVar[str] = "NESO Carbon Intensity API"
    base: ClassVar[str] = "https://api.carbonintensity.org.uk"
    signal: ClassVar[Signal] = "average_direct"
    # `actual` is null for half an hour after the period (its API definition, #11)
    lateness_s: ClassVar[float] = HOUR_S / 2
    reach_s: ClassVar[float] = 13.5 * DAY_S  # 14 days per request at most
    limits: ClassVar[str] = "regions have a forecast but no measured value"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone == "GB" or _region(zone) is not None

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        return await self._ask(zone, f"{stamp(start_s)}/{stamp(end_s)}", "past", now_s)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> Answer:
        # the national forecast ends after 48 h, the regional ones reach further
        ahead = "fw48h" if zone == "GB" else stamp(end_s)
        return await self._ask(zone, f"{stamp(now_s)}/{ahead}", "ahead", now_s)

    async def _ask(self, zone: str, span: str, part: str, now_s: float) -> Answer:
        region = _region(zone)
        made_s = now_s if part == "ahead" else None
        if region is not None:
            data = await self.json(f"regional/intensity/{span}/regionid/{region}")
            if not _blank(data, region):
                return self.series(zone, self._read(data, region, part, now_s), now_s, made_s)
        nation = await self.json(f"intensity/{span}")
        series, notes = self.series(zone, self._read(nation, None, part, now_s), now_s, made_s)
        if region is None:
            return series, notes
        why = f"{self.title} has no values for {zone}: showing Great Britain as a whole"
        return replace(series, source=f"{self.title}, Great Britain as a whole"), (why, *notes)

    def _read(self, data: Any, region: int | None, part: str, now_s: float) -> Iterator[clean.Raw]:
        for record in _records(data, region):
            start_s = utc(record["from"])
            values = record["intensity"]
            actual, forecast = number(values.get("actual")), number(values.get("forecast"))
            length = utc(record["to"]) - start_s
            if part == "ahead":
                yield start_s, length, forecast, "forecast"
            elif actual is not None:
                yield start_s, length, actual, "actual"
            elif region is not None and start_s + length <= now_s:
                # regions have no measured values: their last published forecast is used
                yield start_s, length, forecast, "estimated"


def _region(zone: str) -> int | None:
    country, _, part = zone.partition("-")
    return int(part) if country == "GB" and part.isdigit() and 1 <= int(part) <= 17 else None


def _blank(data: Any, region: int) -> bool:
    """Whether the answer for a region is empty, or all zeros with an empty mix, as for region 1 since spring 2026."""
    try:
        records = _records(data, region)
        return not any(record["intensity"].get("forecast") or record.get("generationmix") for record in records)
    except NoData:
        return True
    except (GridError, *SHAPE_FAULTS):
        return False  # the parser reports what is wrong


def _records(data: Any, region: int | None) -> list[Any]:
    """National: a list. Regional: an object with a list, or a list of one such object."""
    if isinstance(data, dict) and "error" in data:
        raise NoData("NESO Carbon Intensity API reports an error")
    inner = data.get("data") if isinstance(data, dict) else None
    if isinstance(inner, list) and inner and isinstance(inner[0], dict) and "regionid" in inner[0]:
        inner = inner[0]
    if isinstance(inner, dict):
        told = inner.get("regionid")
        if region is None or (told is not None and int(told) != region):
            raise BadAnswer(f"NESO Carbon Intensity API answered for region {told}, not {region or 'GB'}")
        return rows_of(inner, "data")
    return rows_of(data, "data")


AGILE_PRODUCT = "AGILE-24-10-01"
PAGES_MAX = 4
# NESO's region numbers to the letters of the network areas; GB as a whole takes London's
AREA_LETTERS = {
    "GB": "C", "GB-1": "P", "GB-2": "N", "GB-3": "G", "GB-4": "F", "GB-5": "M", "GB-6": "D", "GB-7": "K", "GB-8": "E",
    "GB-9": "B", "GB-10": "A", "GB-11": "L", "GB-12": "H", "GB-13": "C", "GB-14": "J",
}  # fmt: skip


class OctopusAgile(PriceProvider):
    """Pence per kWh with VAT, newest first, in pages; a missing price is never read as 0."""

    name: ClassVar[str] = "octopus-agile"
    title: ClassVar[str] = "Octopus Agile"
    base: ClassVar[str] = "https://api.octopus.energy"
    window_s: ClassVar[float] = 900.0
    limits: ClassVar[str] = "GB as a whole is priced as London"
    currency: str | None = "GBP"
    zones = AREA_LETTERS

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        tariff = f"E-1R-{AGILE_PRODUCT}-{AREA_LETTERS[zone]}"
        url = f"{self.url}/v1/products/{AGILE_PRODUCT}/electricity-tariffs/{tariff}/standard-unit-rates/"
        span = {"period_from": stamp(start_s), "period_to": stamp(end_s), "page_size": "100"}
        records: list[Any] = []
        for page in range(1, PAGES_MAX + 1):
            data = await self.json(url, {**span, "page": str(page)})
            records += rows_of(data, "results")
            if not data.get("next"):
                break
        return self._read(records, end_s)

    def _read(self, records: list[Any], until_s: float) -> Iterator[clean.Raw]:
        for record in records:
            start_s = utc(record["valid_from"])
            # a fixed tariff has no end: it holds up to the end of the query
            end_s = utc(record["valid_to"]) if record.get("valid_to") else until_s
            yield start_s, end_s - start_s, number(record["value_inc_vat"], 1e-2), "forecast"
