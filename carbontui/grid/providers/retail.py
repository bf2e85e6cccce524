"""A retail price without a key: Octopus Agile (Great Britain)."""

from collections.abc import Iterator
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.providers.base import PriceProvider, number, rows_of, stamp, utc
from carbontui.grid.types import Kind

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
