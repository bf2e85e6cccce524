"""CAISO Outlook's tables: a column per source, a row per five minutes of one day, stamped with bare Pacific HH:MM."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import datetime, timedelta

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer
from carbontui.grid.http import HttpReply
from carbontui.grid.providers.base import number
from carbontui.grid.providers.decode import whole_lines
from carbontui.grid.types import Mix

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
    last_s = 0.0
    head, *rows = csv.reader(io.StringIO(text))
    for cells in rows:
        values = {name.strip(): number(cell.strip()) for name, cell in zip(head[1:], cells[1:], strict=False)}
        known = {name: value for name, value in values.items() if value is not None}
        if not known:
            continue
        hour, minute = cells[0].strip().split(":")
        moment = day.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0, fold=0)
        # in autumn 01:xx occurs twice, and a closing 00:00 belongs to the next day; only the order in the file tells
        start_s = moment.timestamp()
        if start_s <= last_s:
            start_s = moment.replace(fold=1).timestamp()
        if start_s <= last_s:
            start_s = (moment + timedelta(days=1)).timestamp()
        last_s = start_s
        yield start_s, known
