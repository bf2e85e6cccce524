"""CAISO (California): no key; CO2 every 5 min from the Outlook files, a forecast from CAISO's of load, sun and wind,
day-ahead prices.

Outlook's tables have a column per source and a row per five minutes of one day. OASIS sends tables in ZIP archives;
its forecasts of load, sun and wind become an intensity: emissions of the California grid follow its net load (load
minus sun and wind) closely, so a line is fitted to the last day's five-minute values and extrapolated over the
operator's own forecasts. No other source is needed.
"""

import asyncio
import csv
import io
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid import clean
from carbontui.grid.http import BadAnswer, HttpReply, NoData, NotFound
from carbontui.grid.providers.base import PriceProvider, Provider, number, stamp, unzipped, utc, whole_lines
from carbontui.grid.providers.frame import LocalClock
from carbontui.grid.types import DAY_S, HOUR_S, Answer, Kind, Mix, Signal

ZONE = "US-CAL-CISO"
HERE = ZoneInfo("America/Los_Angeles")
STEP_S = 300.0
FUELS = {
    "solar": "solar", "wind": "wind", "geothermal": "geothermal", "biomass": "biomass", "biogas": "biomass",
    "small hydro": "hydro", "large hydro": "hydro", "coal": "coal", "nuclear": "nuclear", "natural gas": "gas",
}  # fmt: skip
"""For the reported mix only; batteries and imports are not fuels."""

Table = dict[float, dict[str, float]]
"""Epoch seconds -> column -> value, without empty cells."""


def dated(reply: HttpReply, day: datetime, now_s: float) -> Table:
    """The rows with values (future rows are empty). The files carry no date: Last-Modified and the clock show whether
    one is left over from an earlier day. Raises BadAnswer."""
    if reply.modified_s is not None and reply.modified_s < day.timestamp():
        day = datetime.fromtimestamp(reply.modified_s, tz=day.tzinfo)
    rows = dict(_rows(reply.body, day))
    if rows and max(rows) > now_s + clean.AHEAD_S:
        # for some minutes after midnight the file is still the previous day's
        rows = dict(_rows(reply.body, day - timedelta(days=1)))
    return rows


def mixed(table: Table) -> Iterator[Mix]:
    """Generation by fuel."""
    for start_s, sources in table.items():
        mix: dict[str, float] = {}
        for source, megawatts in sources.items():
            if fuel := FUELS.get(source.lower()):
                mix[fuel] = mix.get(fuel, 0.0) + megawatts
        yield Mix(start_s, STEP_S, mix)


def _rows(body: bytes, day: datetime) -> Iterator[tuple[float, dict[str, float]]]:
    text = whole_lines(body)
    if text.lstrip().startswith("<") or not text.startswith("Time,"):
        raise BadAnswer("CAISO Outlook sent no table")
    # in autumn 01:xx occurs twice: only the order in the file tells
    clock, last_s = LocalClock(HERE), 0.0
    head, *rows = csv.reader(io.StringIO(text))
    for cells in rows:
        values = {name.strip(): number(cell.strip()) for name, cell in zip(head[1:], cells[1:], strict=False)}
        known = {name: value for name, value in values.items() if value is not None}
        if not known:
            continue
        hour, minute = cells[0].strip().split(":")
        moment = datetime(day.year, day.month, day.day, int(hour), int(minute))
        start_s = clock(moment)
        if math.isnan(start_s):
            continue
        if start_s <= last_s:
            start_s = clock(moment + timedelta(days=1))  # a closing 00:00 belongs to the next day
        last_s = start_s
        yield start_s, known


BASE = "https://oasis.caiso.com/oasisapi"
UNZIPPED_MAX = 64 * 1024 * 1024
LOAD = {"queryname": "SLD_FCST", "market_run_id": "7DA", "version": "1", "resultformat": "6"}
RENEWABLES = {"queryname": "SLD_REN_FCST", "market_run_id": "DAM", "version": "1", "resultformat": "6"}
PRICES = {
    "queryname": "PRC_LMP", "market_run_id": "DAM", "version": "1", "resultformat": "6", "node": "TH_NP15_GEN-APND",
}  # fmt: skip
WHOLE_AREA = "CA ISO-TAC"
HUBS = frozenset({"NP15", "SP15", "ZP26"})
LEAST_SAMPLES = 36
SLOPE_T_PER_MWH = (0.05, 1.0)
"""Plausible emissions of one more megawatt-hour of net load: between a sixth of a gas plant and an old coal plant."""
LEAST_G = 5.0

NetLoad = tuple[float, float]
"""Net load in MW and emissions in t/h at one time."""
UNSTEADY = frozenset({"Solar", "Wind"})
Sources = Mapping[float, Mapping[str, float]]
"""Epoch seconds -> source -> t/h or MW."""


def span(start_s: float, end_s: float) -> dict[str, str]:
    form = "%Y%m%dT%H:%M-0000"
    return {"startdatetime": stamp(start_s, form), "enddatetime": stamp(end_s, form)}


def net_loads(co2: Sources, supply: Sources) -> Iterator[NetLoad]:
    """Net load and emissions at the times for which both are known."""
    for at_s in co2.keys() & supply.keys():
        net = sum(megawatts for source, megawatts in supply[at_s].items() if source not in UNSTEADY)
        yield net, sum(co2[at_s].values())


def table(body: bytes) -> Iterator[dict[str, str]]:
    """Rows of the table in an answer. Raises BadAnswer if it is not an archive, NoData for the XML "no data" error."""
    text = next(unzipped(body, "CAISO OASIS", UNZIPPED_MAX), b"").decode("utf-8-sig", "replace")
    if not text or text.lstrip().startswith("<"):
        raise NoData("CAISO OASIS has no data for these hours (an XML error)")
    return csv.DictReader(io.StringIO(text))


def hours(body: bytes, area: str, wanted: Collection[str]) -> dict[float, float]:
    """Megawatts by interval start, summed over the rows whose column `area` is one of `wanted`."""
    found: dict[float, float] = {}
    for row in table(body):
        megawatts = number(row["MW"])
        if row[area] in wanted and megawatts is not None:
            start_s = utc(row["INTERVALSTARTTIME_GMT"])
            found[start_s] = found.get(start_s, 0.0) + megawatts
    if not found:
        raise NoData("CAISO OASIS has no forecast for these hours")
    return found


def expected(
    samples: Sequence[NetLoad], load: Mapping[float, float], renewables: Mapping[float, float]
) -> Iterator[clean.Raw]:
    """g/kWh of the hours for which load and renewables are both forecast. Raises NoData where no plausible line fits
    the past."""
    if len(samples) < LEAST_SAMPLES or len({net for net, _ in samples}) < 2:
        raise NoData("too few values of the last day to make a forecast from")
    slope, start = statistics.linear_regression([net for net, _ in samples], [tonnes for _, tonnes in samples])
    if not SLOPE_T_PER_MWH[0] <= slope <= SLOPE_T_PER_MWH[1]:
        raise NoData("emissions of the last day do not follow the net load")
    for start_s in sorted(set(load) & set(renewables)):
        if load[start_s] > 0:
            tonnes = start + slope * (load[start_s] - renewables[start_s])
            yield start_s, 3600.0, max(LEAST_G, 1000 * tonnes / load[start_s]), "forecast"


class Caiso(Provider):
    """Tonnes per hour by source over megawatts by source; stamps are bare Pacific HH:MM of one day."""

    name: ClassVar[str] = "caiso"
    title: ClassVar[str] = "CAISO Outlook"
    base: ClassVar[str] = "https://www.caiso.com/outlook"
    signal: ClassVar[Signal] = "average_direct"
    window_s: ClassVar[float] = 300.0
    forecast_window_s: ClassVar[float | None] = HOUR_S
    reach_s: ClassVar[float] = 18 * HOUR_S
    limits: ClassVar[str] = "forecast to the end of the next day, computed here from CAISO's of load, sun and wind"
    pause_s: ClassVar[float] = 5.5
    """OASIS allows one request in five seconds."""
    zones = frozenset({ZONE})

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        there = datetime.fromtimestamp(end_s, tz=HERE)
        co2, supply = await self._tables(there, now_s)
        mixes: list[Mix] = []

        def read() -> Iterator[clean.Raw]:
            sources = dated(supply, there, now_s)
            mixes.extend(mixed(sources))
            yield from _intensity(dated(co2, there, now_s), sources)

        series, notes = self.series(zone, read(), now_s)
        return replace(series, mix=tuple(mixes)), notes

    async def _tables(self, day: datetime, now_s: float) -> tuple[HttpReply, HttpReply]:
        """CO2 and power by source of a local day."""
        today = day.date() == datetime.fromtimestamp(now_s, tz=HERE).date()
        folder = "current" if today else f"history/{day:%Y%m%d}"
        fresh = {"_": f"{now_s:.0f}"}  # else a proxy cache may serve a copy that is hours old
        return await self.get(f"{folder}/co2.csv", fresh), await self.get(f"{folder}/fuelsource.csv", fresh)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> Answer:
        today = datetime.fromtimestamp(now_s, tz=HERE)
        days = []
        for day in (today - timedelta(days=1), today):
            try:
                days.append((day, *await self._tables(day, now_s)))
            except NotFound:  # the previous day's files appear some time after midnight
                if day is today:
                    raise
        url = f"{self.settings.base_urls.get('caiso-price', BASE).rstrip('/')}/SingleZip"
        hence = span(now_s - HOUR_S, end_s)
        load = (await self.get(url, LOAD | hence)).body
        await asyncio.sleep(self.pause_s)
        renewables = (await self.get(url, RENEWABLES | hence)).body

        def read() -> Iterator[clean.Raw]:
            tables = [(dated(co2, day, now_s), dated(supply, day, now_s)) for day, co2, supply in days]
            samples = [sample for both in tables for sample in net_loads(*both)]
            wanted = hours(load, "TAC_AREA_NAME", {WHOLE_AREA})
            yield from expected(samples, wanted, hours(renewables, "TRADING_HUB", HUBS))

        return self.series(zone, read(), now_s, now_s)


def _intensity(co2: Table, supply: Table) -> Iterator[clean.Raw]:
    for start_s, tonnes_per_h in co2.items():
        megawatts = sum(supply.get(start_s, {}).values())
        if megawatts > 0:
            yield start_s, STEP_S, 1000 * sum(tonnes_per_h.values()) / megawatts, "actual"


class CaisoPrice(PriceProvider):
    """OASIS day-ahead locational price of the northern hub, USD per MWh; a ZIP that may hold an XML error instead."""

    name: ClassVar[str] = "caiso-price"
    title: ClassVar[str] = "CAISO OASIS day-ahead price"
    base: ClassVar[str] = BASE
    reach_s: ClassVar[float] = 28 * DAY_S  # a request may span 31 days
    currency: str | None = "USD"
    zones = frozenset({ZONE})

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterator[clean.Raw]:
        return _prices((await self.get("SingleZip", PRICES | span(start_s, end_s))).body)


def _prices(body: bytes) -> Iterator[clean.Raw]:
    for row in table(body):
        if row["LMP_TYPE"] == "LMP":
            start_s = utc(row["INTERVALSTARTTIME_GMT"])
            yield start_s, utc(row["INTERVALENDTIME_GMT"]) - start_s, number(row["MW"], 1e-3), "forecast"
