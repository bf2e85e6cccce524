"""US EIA v2: free key; hourly generation by fuel of a balancing authority -> lifecycle intensity, hours late."""

from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from carbontui.grid.http import BadAnswer
from carbontui.grid.providers.base import from_json, number, rows_of, stamp, utc
from carbontui.grid.providers.frame import MixProvider, Power
from carbontui.grid.types import DAY_S, HOUR_S, Signal


class Eia(MixProvider):
    """`period` is the end of the hour, UTC: the row starts an hour earlier. Values may be text, null or negative.

    Licence: US EIA, public domain.
    """

    name: ClassVar[str] = "eia"
    title: ClassVar[str] = "US EIA-930 generation"
    base: ClassVar[str] = "https://api.eia.gov"
    signal: ClassVar[Signal] = "average_lifecycle"
    keys: ClassVar[tuple[str, ...]] = ("EIA_API_KEY",)
    window_s: ClassVar[float] = 1800.0
    # seen: 8 h at the least (electricitymaps-contrib #2538), 30 h expected (#2783)
    lateness_s: ClassVar[float] = 30 * HOUR_S
    late_s: ClassVar[float] = 36 * HOUR_S
    reach_s: ClassVar[float] = 14 * DAY_S  # about ten fuels an hour, 5000 rows an answer
    overlap_s: ClassVar[float] = DAY_S
    limits: ClassVar[str] = "hours to a day late, no forecast, imports not counted"
    step_s = HOUR_S
    # SNB and WNB are solar and wind with a battery; storage alone (BAT, PS, OES, UES) is not generation
    fuels = {
        "COL": "coal", "NG": "gas", "OIL": "oil", "NUC": "nuclear", "WAT": "hydro", "WND": "wind", "SUN": "solar",
        "GEO": "geothermal", "OTH": "other", "UNK": "other", "SNB": "solar", "WNB": "wind",
    }  # fmt: skip

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone.startswith("US-") and zone.count("-") == 2 and not zone.startswith(("US-AK", "US-HI"))

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
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
            "api_key": self.settings.keys["EIA_API_KEY"],
        }
        yield (await self.get("v2/electricity/rto/fuel-type-data/data/", params)).body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        for record in rows_of(from_json(body, self.title), "response", "data"):
            if record["respondent"] != respondent(zone):
                raise BadAnswer(f"{self.title} answered for {record['respondent']}, not {respondent(zone)}")
            if record.get("value-units", "megawatthours") != "megawatthours":
                raise BadAnswer(f"{self.title}: unit {record['value-units']!r} where megawatthours is documented")
            if record["fueltype"] in self.fuels:
                yield Power(utc(record["period"] + ":00") - HOUR_S, record["fueltype"], number(record["value"]))


def respondent(zone: str) -> str:
    return zone.rpartition("-")[2]
