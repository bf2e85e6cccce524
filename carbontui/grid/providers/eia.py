"""US EIA v2: free key; hourly generation by fuel of a balancing authority -> lifecycle intensity, hours late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers.base import DAY_S, HOUR_S, Provider, number, rows_of, stamp, utc
from carbontui.grid.types import Answer, Mix, Signal

FUELS = {
    "COL": "coal", "NG": "gas", "OIL": "oil", "NUC": "nuclear", "WAT": "hydro", "WND": "wind", "SUN": "solar",
    "GEO": "geothermal", "OTH": "other", "UNK": "other", "SNB": "solar", "WNB": "wind",
}  # fmt: skip
"""SNB and WNB are solar and wind with a battery; storage alone (BAT, PS, OES, UES) is not generation."""


class Eia(Provider):
    """`period` is the end of the hour, UTC: the row starts an hour earlier. Values may be text, null or negative."""

    name: ClassVar[str] = "eia"
    title: ClassVar[str] = "US EIA-930 generation"
    base: ClassVar[str] = "https://api.eia.gov"
    signal: ClassVar[Signal] = "average_lifecycle"
    licence: ClassVar[str] = "US EIA, public domain"
    keys: ClassVar[tuple[str, ...]] = ("EIA_API_KEY",)
    window_s: ClassVar[float] = 1800.0
    foresees: ClassVar[bool] = False
    late_s: ClassVar[float] = 36 * HOUR_S
    reach_s: ClassVar[float] = 14 * DAY_S  # about ten fuels an hour, 5000 rows an answer
    limits: ClassVar[str] = "hours to a day late, no forecast, imports not counted"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone.startswith("US-") and zone.count("-") == 2 and not zone.startswith(("US-AK", "US-HI"))

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        form = "%Y-%m-%dT%H"
        params = {
            "frequency": "hourly",
            "data[0]": "value",
            "facets[respondent][]": respondent(zone),
            "start": stamp(start_s + HOUR_S, form),
            "end": stamp(end_s + HOUR_S, form),
            "sort[0][column]": "period",
            "sort[0][direction]": "asc",
            "length": "5000",
            "api_key": self.key("EIA_API_KEY"),
        }
        data = await self.json("v2/electricity/rto/fuel-type-data/data/", params)
        return self.series_of_mix(zone, lambda: self._read(data, zone), now_s)

    def _read(self, data: Any, zone: str) -> Iterator[Mix]:
        mixes: dict[float, dict[str, float]] = {}
        broken: set[float] = set()
        for record in rows_of(data, "response", "data"):
            if record["respondent"] != respondent(zone):
                raise BadAnswer(f"{self.title} answered for {record['respondent']}, not {respondent(zone)}")
            if record.get("value-units", "megawatthours") != "megawatthours":
                raise BadAnswer(f"{self.title}: unit {record['value-units']!r} where megawatthours is documented")
            fuel = FUELS.get(record["fueltype"])
            start_s = utc(record["period"] + ":00") - HOUR_S
            value = number(record["value"])
            if fuel is None:
                continue
            if value is None:
                broken.add(start_s)  # without one of its fuels the mix would be wrong
                continue
            mix = mixes.setdefault(start_s, {})
            mix[fuel] = mix.get(fuel, 0.0) + value
        most = max((len(mix) for mix in mixes.values()), default=0)
        for start_s, mix in mixes.items():
            if start_s not in broken and 2 * len(mix) >= most:
                yield Mix(start_s, HOUR_S, mix)


def respondent(zone: str) -> str:
    return zone.rpartition("-")[2]
