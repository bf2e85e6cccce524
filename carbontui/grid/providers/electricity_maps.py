"""Electricity Maps v3 (the world): needs a key; average lifecycle, flow-traced; forecasts on paid plans only."""

from collections.abc import Iterator
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer, Denied, NoData, NotFound
from carbontui.grid.providers.base import Provider, number, rows_of, stamp, stepped, utc
from carbontui.grid.types import DAY_S, HOUR_S, Answer, Signal


class ElectricityMaps(Provider):
    """The API replaces an unknown zone by the caller's own: we disable that and check the zone of the answer.

    Licence: Electricity Maps, proprietary: not to be republished.
    """

    name: ClassVar[str] = "electricity-maps"
    title: ClassVar[str] = "Electricity Maps"
    base: ClassVar[str] = "https://api.electricitymaps.com/v3"
    signal: ClassVar[Signal] = "average_lifecycle"
    # seen: two to three hours (electricitymaps-contrib #3390)
    lateness_s: ClassVar[float] = 2 * HOUR_S
    keys: ClassVar[tuple[str, ...]] = ("ELECTRICITYMAPS_TOKEN",)
    window_s: ClassVar[float] = 3600.0
    reach_s: ClassVar[float] = 10 * DAY_S  # past-range gives 240 h; the free plan only the last 24
    limits: ClassVar[str] = "a free key gives one zone, the last 24 h and no forecast"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return not zone.removeprefix("GB-").isdigit()  # it does not have NESO's regions

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        if start_s < now_s - 25 * HOUR_S:
            span = {"start": stamp(start_s), "end": stamp(end_s)}
            try:
                data = await self._ask("past-range", zone, span)
                return self.series(zone, self._read(data, zone, "data"), now_s)
            except (Denied, BadAnswer, NotFound):
                # a free plan answers 401, 400 or 404 here, and never has values older than a day
                if end_s < now_s - 25 * HOUR_S:
                    raise
        data = await self._ask("history", zone)
        return self.series(zone, self._read(data, zone, "history"), now_s)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> Answer:
        data = await self._ask("forecast", zone)
        made_s = utc(data["updatedAt"]) if isinstance(data, dict) and isinstance(data.get("updatedAt"), str) else now_s
        return self.series(zone, self._read(data, zone, "forecast"), now_s, made_s)

    async def _ask(self, what: str, zone: str, more: dict[str, str] | None = None) -> Any:
        params = {"zone": zone, "shouldUseFallbackCallerLookup": "false", **(more or {})}
        headers = {"auth-token": self.settings.keys["ELECTRICITYMAPS_TOKEN"]}
        return await self.json(f"carbon-intensity/{what}", params, headers=headers)

    def _read(self, data: Any, zone: str, part: str) -> Iterator[clean.Raw]:
        if isinstance(data, dict) and data.get("status") == "no-data":
            raise NoData(f"{self.title} has no data for {zone}")
        told = data.get("zone") if isinstance(data, dict) else None
        if told is not None and told != zone:
            raise BadAnswer(f"{self.title} answered for zone {told}, not {zone}")
        for start_s, length, record in stepped(rows_of(data, part), "datetime", HOUR_S):
            if record.get("zone", zone) != zone:
                raise BadAnswer(f"{self.title} answered for zone {record['zone']}, not {zone}")
            kind = "forecast" if part == "forecast" else "estimated" if record.get("isEstimated") else "actual"
            yield start_s, length, number(record["carbonIntensity"]), kind
