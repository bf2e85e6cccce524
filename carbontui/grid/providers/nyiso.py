"""NYISO (New York): no key; generation by fuel every 5 min, one file a day, past months as archives."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import ClassVar

from carbontui.grid.faults import BadAnswer
from carbontui.grid.providers.base import DAY_S, utc
from carbontui.grid.providers.decode import whole_lines
from carbontui.grid.providers.frame import MixProvider, Power, amount

OFFSETS = {"EST": "-05:00", "EDT": "-04:00"}
FILES_KEPT_S = 8 * DAY_S
"""Daily files stay for about ten days; older ones are in their month's archive."""


class Nyiso(MixProvider):
    """`Dual Fuel` burns gas on all but a few cold days; stamps end their interval and name their time zone."""

    name: ClassVar[str] = "nyiso"
    title: ClassVar[str] = "NYISO fuel mix"
    base: ClassVar[str] = "http://mis.nyiso.com/public/csv/rtfuelmix"
    licence: ClassVar[str] = "NYISO"
    zones = {"US-NY-NYIS": "NYISO"}
    time_zone = "America/New_York"
    fuels = {
        "Dual Fuel": "gas", "Natural Gas": "gas", "Nuclear": "nuclear", "Other Fossil Fuels": "oil",
        "Other Renewables": "biomass", "Wind": "wind", "Hydro": "hydro", "Solar": "solar", "Energy Storage": None,
    }  # fmt: skip

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        if end_s > now_s - FILES_KEPT_S:
            async for body in self.daily("%Y%m%drtfuelmix.csv", start_s, end_s):
                yield body
            return
        month = self.days(start_s, end_s)[-1].replace(day=1)
        for body in _unpacked((await self.get(f"{month:%Y%m%d}rtfuelmix_csv.zip")).body):
            yield body

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        text = whole_lines(body)
        if not text.startswith("Time Stamp,"):
            raise BadAnswer(f"{self.title} sent no table")
        for row in csv.DictReader(io.StringIO(text)):
            at = datetime.strptime(row["Time Stamp"][:16], "%m/%d/%Y %H:%M")
            end_s = utc(f"{at:%Y-%m-%dT%H:%M:00}{OFFSETS[row['Time Zone']]}")
            # some readings lie off the five-minute marks: each belongs to the interval that contains it
            start_s = (end_s - 1) // self.step_s * self.step_s
            yield Power(start_s, row["Fuel Category"], amount(row["Gen MW"]))


def _unpacked(body: bytes) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            for entry in archive.infolist():
                if entry.file_size > 4 * 2**20:
                    raise BadAnswer("NYISO sent an archive that is too large")
                yield archive.read(entry)
    except (zipfile.BadZipFile, EOFError, OSError):
        raise BadAnswer("NYISO sent no ZIP archive") from None
