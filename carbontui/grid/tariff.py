"""A time-of-use tariff from CSV: `days,from_utc,to_utc,price_eur_per_kwh`, one line per time of day.

`days` is `all`, `weekday`, `weekend` or a day like `mon`; a time is 07:00. A line that ends at or before it begins goes
on to the next day's morning under the same day's line. The last line that fits a quarter of an hour counts, so a
general line comes first. Prices may be negative.
"""

import math
import re
from datetime import datetime, timezone
from pathlib import Path

from carbontui.grid import recorded
from carbontui.grid.types import DAY_S, Row, Series

STEP_S = 900.0
HEADER = ("days", "from_utc", "to_utc")
WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAYS = {"all": range(7), "weekday": range(5), "weekend": range(5, 7)} | {
    name: range(number, number + 1) for number, name in enumerate(WEEK)
}


def is_one(path: str | Path) -> bool:
    """Whether the file is a tariff. Raises ValueError where it cannot be read."""
    lines = recorded.lines_of(Path(path))
    return bool(lines) and lines[0][:1] == ["days"]


def load(path: str | Path, start_s: float, end_s: float) -> Series:
    """The tariff's prices from `start_s` to `end_s` (epoch seconds) by quarter hours, currency per kWh. Raises
    ValueError naming file, line and value, or the time that no line covers."""
    path = Path(path)
    header, *lines = [[cell.strip() for cell in line] for line in recorded.lines_of(path)] or [[]]
    named = recorded.PRICE_COLUMN.fullmatch(header[3]) if len(header) == 4 else None
    if tuple(header[:3]) != HEADER or named is None:
        raise ValueError(
            f"{path}, line 1: expected 'days,from_utc,to_utc,price_eur_per_kwh', found {','.join(header)!r}"
        )
    unit = 1000.0 if named[2] == "mwh" else 1.0
    prices: dict[tuple[int, int], float] = {}
    for number, cells in enumerate(lines, start=2):
        if not any(cells):
            continue
        where = f"{path}, line {number}"
        if len(cells) != 4 or cells[0].lower() not in DAYS:
            raise ValueError(f"{where}: {','.join(cells)!r} is no line like weekday,07:00,21:00,0.31")
        price = recorded.number(cells[3], where) / unit
        begin, end = (_quarter(cell, where) for cell in cells[1:3])
        count = (end - begin) % 96 or 96
        for day in DAYS[cells[0].lower()]:
            for quarter in range(begin, begin + count):
                prices[(day + quarter // 96) % 7, quarter % 96] = price
    rows = []
    at = math.floor(start_s / STEP_S) * STEP_S
    while at < end_s:
        moment = datetime.fromtimestamp(at, tz=timezone.utc)
        key = moment.weekday(), int(at % DAY_S // STEP_S)
        if key not in prices:
            raise ValueError(f"{path}: no line covers {WEEK[key[0]]} {moment:%H:%M}")
        rows.append(Row(at, STEP_S, prices[key]))
        at += STEP_S
    return Series("tariff", "price", tuple(rows), f"tariff: {path.name}", currency=named[1].upper())


def prices(path: str, start_s: float, end_s: float) -> tuple[Series, bool]:
    """The prices of a file, and whether it is a tariff, known for all time. Raises ValueError."""
    if is_one(path):
        return load(path, start_s, end_s), True
    series = recorded.load_price(path)
    if series is None:
        raise ValueError(f"--price: {path} has no column like price_usd_per_mwh")
    return series, False


def _quarter(text: str, where: str) -> int:
    found = re.fullmatch(r"(\d{1,2}):(00|15|30|45)", text)
    if found is None or int(found[1]) > 24 or (int(found[1]) == 24 and found[2] != "00"):
        raise ValueError(f"{where}: {text!r} is not a quarter of an hour like 07:00")
    return int(found[1]) * 4 + int(found[2]) // 15
