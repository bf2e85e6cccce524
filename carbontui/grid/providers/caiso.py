"""CAISO (California): no key; CO2 of today every 5 min from the Outlook files, day-ahead price from OASIS."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer, NoData
from carbontui.grid.http import Reply
from carbontui.grid.providers.base import HOUR_S, SHAPE_FAULTS, Provider, number, stamp, utc
from carbontui.grid.providers.decode import whole_lines
from carbontui.grid.types import Series, Signal

ZONE = "US-CAL-CISO"
UNZIPPED_MAX = 64 * 1024 * 1024


class Caiso(Provider):
    """Tonnes per hour by source over megawatts by source; stamps are bare Pacific HH:MM of one day."""

    name: ClassVar[str] = "caiso"
    title: ClassVar[str] = "CAISO Outlook"
    base: ClassVar[str] = "https://www.caiso.com/outlook"
    signal: ClassVar[Signal] = "average_direct"
    licence: ClassVar[str] = "CAISO"
    window_s: ClassVar[float] = 300.0
    foresees: ClassVar[bool] = False
    reach_s: ClassVar[float] = 18 * HOUR_S
    limits: ClassVar[str] = "today only, no forecast"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone == ZONE

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        there = datetime.fromtimestamp(end_s, tz=ZoneInfo("America/Los_Angeles"))
        today = datetime.fromtimestamp(now_s, tz=there.tzinfo).date()
        folder = "current" if there.date() == today else f"history/{there:%Y%m%d}"
        fresh = {"_": f"{now_s:.0f}"}  # else a copy of hours ago may come from a cache on the way
        co2, supply = [await self.get(f"{folder}/{name}.csv", fresh) for name in ("co2", "fuelsource")]
        return self.series(zone, lambda: _intensity(_dated(co2, there, now_s), _dated(supply, there, now_s)), now_s)


def _dated(reply: Reply, day: datetime, now_s: float) -> dict[float, float]:
    """Sums by epoch seconds. The files bear no date: one left over from another day would pass for this one's."""
    if reply.modified_s is not None and reply.modified_s < day.timestamp():
        day = datetime.fromtimestamp(reply.modified_s, tz=day.tzinfo)
    sums = dict(_sums(reply.body, day))
    if sums and max(sums) > now_s + clean.AHEAD_S:
        # for some minutes after midnight the file is still that of the day before
        sums = dict(_sums(reply.body, day - timedelta(days=1)))
    return sums


def _intensity(co2: dict[float, float], supply: dict[float, float]) -> Iterator[clean.Raw]:
    for start_s, tonnes_per_h in co2.items():
        megawatts = supply.get(start_s)
        if megawatts and megawatts > 0:
            yield start_s, 300.0, 1000 * tonnes_per_h / megawatts, "actual"


def _sums(body: bytes, day: datetime) -> Iterator[tuple[float, float]]:
    """Epoch seconds and sum over the columns; rows without values (the future) are left out."""
    text = whole_lines(body)
    if text.lstrip().startswith("<") or not text.startswith("Time,"):
        raise BadAnswer("CAISO Outlook sent no table")
    last_s = 0.0
    for cells in list(csv.reader(io.StringIO(text)))[1:]:
        values = [number(cell.strip()) for cell in cells[1:]]
        if not cells or not any(value is not None for value in values):
            continue
        hour, minute = cells[0].strip().split(":")
        moment = day.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0, fold=0)
        # in autumn 01:xx comes twice, and a closing 00:00 is the next day's; the order in the file is the only hint
        start_s = moment.timestamp()
        if start_s <= last_s:
            start_s = moment.replace(fold=1).timestamp()
        if start_s <= last_s:
            start_s = (moment + timedelta(days=1)).timestamp()
        last_s = start_s
        yield start_s, sum(value for value in values if value is not None)


class CaisoPrice(Provider):
    """OASIS day-ahead locational price of the northern hub, USD per MWh; a ZIP that may hold an XML error instead."""

    name: ClassVar[str] = "caiso-price"
    title: ClassVar[str] = "CAISO OASIS day-ahead price"
    base: ClassVar[str] = "https://oasis.caiso.com/oasisapi"
    signal: ClassVar[Signal] = "price"
    licence: ClassVar[str] = "CAISO"
    window_s: ClassVar[float] = 1800.0
    currency: str | None = "USD"

    @classmethod
    def covers(cls, zone: str) -> bool:
        return zone == ZONE

    async def forecast(self, zone: str, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        begin = datetime.fromtimestamp(now_s, tz=ZoneInfo("America/Los_Angeles")) - timedelta(hours=12)
        params = {
            "queryname": "PRC_LMP",
            "market_run_id": "DAM",
            "version": "1",
            "resultformat": "6",
            "node": "TH_NP15_GEN-APND",
            "startdatetime": stamp(begin.timestamp(), "%Y%m%dT%H:%M-0000"),
            "enddatetime": stamp(end_s, "%Y%m%dT%H:%M-0000"),
        }
        body = (await self.get("SingleZip", params)).body
        return self.series(zone, lambda: _prices(_unzipped(body)), now_s, now_s)


def _unzipped(body: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            first = archive.infolist()[0]
            if first.file_size > UNZIPPED_MAX:
                raise BadAnswer("CAISO OASIS sent an archive that is too large")
            text = archive.read(first).decode("utf-8-sig", "replace")
    except (zipfile.BadZipFile, IndexError, EOFError, OSError):
        raise BadAnswer("CAISO OASIS sent no ZIP archive") from None
    if text.lstrip().startswith("<"):
        raise NoData("CAISO OASIS has no data for these hours (an XML error)")
    return text


def _prices(text: str) -> Iterator[clean.Raw]:
    for row in csv.DictReader(io.StringIO(text)):
        try:
            if row["LMP_TYPE"] != "LMP":
                continue
            start_s = utc(row["INTERVALSTARTTIME_GMT"].replace("-00:00", "+00:00"))
            end_s = utc(row["INTERVALENDTIME_GMT"].replace("-00:00", "+00:00"))
            price = number(row["MW"])
        except SHAPE_FAULTS:
            raise BadAnswer("CAISO OASIS sent another table than documented") from None
        yield start_s, end_s - start_s, None if price is None else price / 1000, "forecast"
