"""WattTime v3 (US and more): free account; marginal rates in lb/MWh every 5 min; free for northern California only."""

from collections.abc import Iterator
from typing import Any, ClassVar

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer, Denied
from carbontui.grid.providers.base import Provider, number, rows_of, stamp, utc
from carbontui.grid.types import HOUR_S, Kind, Signal

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

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._token: tuple[float, str] | None = None

    zones = REGIONS

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        if kind == "actual":
            more = {"start": stamp(start_s), "end": stamp(end_s)}
            return self._read(await self._signed("historical", zone, now_s, more), zone, kind)
        hours = {"horizon_hours": str(max(1, min(72, round((end_s - now_s) / HOUR_S))))}
        return self._read(await self._signed("forecast", zone, now_s, hours), zone, kind)

    async def _signed(self, what: str, zone: str, now_s: float, more: dict[str, str]) -> Any:
        params = {"region": REGIONS[zone], "signal_type": "co2_moer", **more}
        for renewed in (False, True):
            token = await self._login(now_s, renewed)
            try:
                return await self.json(f"v3/{what}", params, headers={"Authorization": f"Bearer {token}"})
            except Denied:
                # the token may have expired early: log in once more, then accept the refusal
                if renewed:
                    raise
        raise AssertionError("the loop above returns or raises")

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
