"""Sources that need a key or an account."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer, Denied, NoData, NotFound
from carbontui.grid.providers.base import Provider, from_json, number, rows_of, stamp, stepped, utc
from carbontui.grid.providers.frame import MixProvider, Power
from carbontui.grid.types import DAY_S, HOUR_S, Answer, Kind, Signal


# Electricity Maps v3 (the world): needs a key; average lifecycle, flow-traced; forecasts on paid plans only.
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


# US EIA v2: free key; hourly generation by fuel of a balancing authority -> lifecycle intensity, hours late.
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


# WattTime v3 (US and more): free account; marginal rates in lb/MWh every 5 min; free for northern California only.
G_PER_KWH_PER_LB_PER_MWH = 0.45359237
REGIONS = {"US-CAL-CISO": "CAISO_NORTH"}
TOKEN_S = 25 * 60.0  # documented to last 30 min


class WattTime(Provider):
    """Marginal: never mixed with an average source, so it is used only where marginal was requested.

    Licence: WattTime, not to be republished.
    """

    name: ClassVar[str] = "watttime"
    title: ClassVar[str] = "WattTime"
    base: ClassVar[str] = "https://api.watttime.org"
    signal: ClassVar[Signal] = "marginal"
    recorded: ClassVar[bool] = False
    keys: ClassVar[tuple[str, ...]] = ("WATTTIME_USERNAME", "WATTTIME_PASSWORD")
    window_s: ClassVar[float] = 300.0
    limits: ClassVar[str] = "marginal signal; other regions need a paid plan"

    zones = REGIONS
    _token: tuple[float, str] | None = None

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        if kind == "actual":
            more = {"start": stamp(start_s), "end": stamp(end_s)}
            return self._read(await self._signed("historical", zone, now_s, more), zone, kind)
        hours = {"horizon_hours": str(max(1, min(72, round((end_s - now_s) / HOUR_S))))}
        return self._read(await self._signed("forecast", zone, now_s, hours), zone, kind)

    async def _signed(self, what: str, zone: str, now_s: float, more: dict[str, str]) -> Any:
        params = {"region": REGIONS[zone], "signal_type": "co2_moer", **more}

        async def asked(renew: bool) -> Any:
            token = await self._login(now_s, renew)
            return await self.json(f"v3/{what}", params, headers={"Authorization": f"Bearer {token}"})

        try:
            return await asked(renew=False)
        except Denied:
            return await asked(renew=True)  # the token may have expired early: log in once more, accept a refusal then

    async def _login(self, now_s: float, renew: bool) -> str:
        if self._token and not renew and now_s - self._token[0] < TOKEN_S:
            return self._token[1]
        who = (self.settings.keys["WATTTIME_USERNAME"], self.settings.keys["WATTTIME_PASSWORD"])
        data = await self.json("login", auth=who)
        token = data.get("token") if isinstance(data, dict) else None
        if not isinstance(token, str):
            raise BadAnswer(f"{self.title} sent no token at login")
        self._token = (now_s, token)
        return token

    def _read(self, data: Any, zone: str, kind: str) -> Iterator[clean.Raw]:
        meta = data["meta"] if data else {}
        if meta and meta.get("units") != "lbs_co2_per_mwh":
            raise BadAnswer(f"{self.title}: unit {meta.get('units')!r} where lbs_co2_per_mwh is documented")
        if meta and meta.get("region", REGIONS[zone]) != REGIONS[zone]:
            raise BadAnswer(f"{self.title} answered for region {meta['region']}, not {REGIONS[zone]}")
        length = float(meta.get("data_point_period_seconds") or 300)
        for record in rows_of(data, "data"):
            imputed = kind == "actual" and bool(record.get("imputed_data_used"))
            value = number(record["value"], G_PER_KWH_PER_LB_PER_MWH)
            yield utc(record["point_time"]), length, value, "estimated" if imputed else kind
