"""Recorded grid data from CSV: intensity, and a price where the file has one; for replays, demos, backtests and the
user's own data."""

import csv
import gzip
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable
from importlib import resources
from itertools import pairwise
from pathlib import Path

from carbontui.grid.types import Row, Series, Signal
from carbontui.units import from_iso

EXAMPLE_NAME = "example-grid-de-2020-april.csv"
FILE_MOST = 2**26
"""Characters read of a file: a device never ends, and a compressed file may expand to any size."""
LONGEST_STEP_S = 3 * 3600.0  # a row holds for the file's own step, never across a longer gap
HIGHEST_G_PER_KWH = 5000.0
PRICE_COLUMN = re.compile(r"price_([a-z]{3})_per_(kwh|mwh)")


def example_path() -> Path:
    """Two weeks of Germany, April 2020, that ship with carbontui."""
    return Path(str(resources.files("carbontui.data").joinpath(EXAMPLE_NAME)))


def load(
    path: str | Path, *, zone: str = "recorded", signal: Signal | None = None, source: str | None = None
) -> Series:
    """Read `time_utc,carbon_g_per_kwh` (or `time_utc,value`), gCO2/kWh; plain or .gz; stamps begin their interval.
    Such a file does not name its signal: without `signal` it is `given`.

    Rows may come in any order; gaps stay gaps. Raises ValueError naming file, line and value.
    """
    path = Path(path)
    header, lines = _cells(path)
    rows = _rows(path, header, lines, 1, _intensity)
    if 0.05 <= (most := max(row.value for row in rows)) <= 1.5:
        raise ValueError(f"{path}: values up to {most:g}: are they kg/kWh? g/kWh are read: write 1000 times that")
    if signal is None:
        signal = "average_direct" if path == example_path() else "given"
    return Series(zone, signal, rows, source or f"recorded: {path.name}")


def load_price(path: str | Path) -> Series | None:
    """The column `price_eur_per_kwh` (or `_per_mwh`, any ISO code) as a series in currency/kWh; None without. It may
    be the only one: `time_utc,price_usd_per_mwh`.

    Negative prices are valid; an empty cell is a gap. Raises ValueError naming file, line and value.
    """
    path = Path(path)
    header, lines = _cells(path, prices=True)
    priced_by = next(((n, named) for n, name in enumerate(header) if (named := PRICE_COLUMN.fullmatch(name))), None)
    if priced_by is None:
        return None
    column, named = priced_by
    currency, kwh = named[1].upper(), 1000.0 if named[2] == "mwh" else 1.0
    priced = [(line, cells) for line, cells in lines if len(cells) > column and cells[column].strip()]
    rows = _rows(path, header, priced, column, lambda text, where: number(text, where) / kwh)
    return Series("recorded", "price", rows, f"recorded: {path.name}", currency=currency)


def unread_columns(path: str | Path) -> tuple[str, ...]:
    """Columns of the file that are not used. Raises ValueError as `load` does."""
    header, _ = _cells(Path(path))
    return tuple(name for name in header[2:] if name and not PRICE_COLUMN.fullmatch(name))


def _rows(
    path: Path, header: list[str], lines: list[tuple[int, list[str]]], column: int, read: Callable[[str, str], float]
) -> tuple[Row, ...]:
    """One column's rows, sorted by time; each holds for the file's own step at most."""
    found: dict[float, float] = {}
    for line, cells in lines:
        where = f"{path}, line {line}"
        if len(cells) > len(header) and any(cell.strip() for cell in cells[len(header) :]):
            # a decimal comma would otherwise silently lose its decimals
            text = ",".join(cells)
            raise ValueError(
                f"{where}: {text!r} has more cells than the header ({len(header)}); write 300.5, not 300,5"
            )
        if len(cells) <= column:
            raise ValueError(f"{where}: {','.join(cells)!r} has no second column")
        try:
            start_s = from_iso(cells[0])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        value = read(cells[column], where)
        if start_s in found:
            raise ValueError(f"{where}: time {cells[0]!r} appears twice")
        found[start_s] = value
    if len(found) < 2:
        raise ValueError(f"{path}: needs at least two rows of data, has {len(found)}")
    starts = sorted(found)
    step_s = Counter(b - a for a, b in pairwise(starts)).most_common(1)[0][0]
    if step_s > LONGEST_STEP_S:
        raise ValueError(f"{path}: rows are {step_s / 3600:g} h apart; at most 3 h can be used")
    durations = [min(step_s, b - a) for a, b in zip(starts, [*starts[1:], starts[-1] + step_s], strict=True)]
    return tuple(Row(start, dur, found[start]) for start, dur in zip(starts, durations, strict=True))


def lines_of(path: Path) -> list[list[str]]:
    """The cells of each line of a CSV file, plain or .gz. Raises ValueError naming the file."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            text = file.read(FILE_MOST + 1)
        lines = list(csv.reader(io.StringIO(text if len(text) <= FILE_MOST else "", newline="")))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{path}: cannot be read ({reason})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: is not a CSV text file ({error})") from error
    if len(text) > FILE_MOST:
        raise ValueError(f"{path}: has more than {FILE_MOST} characters; ten years of five-minute values have fewer")
    return lines


def _cells(path: Path, *, prices: bool = False) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The column names, and the line number and cells of each data line. `prices`: the second may be a price."""
    lines = lines_of(path)
    header = [cell.strip() for cell in lines[0]] if lines else []
    priced = prices and len(header) > 1 and PRICE_COLUMN.fullmatch(header[1])
    if header[:1] != ["time_utc"] or (header[1:2] not in (["carbon_g_per_kwh"], ["value"]) and not priced):
        raise ValueError(f"{path}, line 1: expected 'time_utc,carbon_g_per_kwh', found {','.join(header)[:60]!r}")
    return header, [(number, cells) for number, cells in enumerate(lines[1:], start=2) if any(cells)]


def number(text: str, where: str) -> float:
    """A finite number. Raises ValueError naming `where`."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{where}: {text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{where}: {text!r} is not a number")
    return value


def _intensity(text: str, where: str) -> float:
    value = number(text, where)
    if not 0 <= value <= HIGHEST_G_PER_KWH:
        raise ValueError(f"{where}: {text!r} is not a carbon intensity in gCO2/kWh (0 to {HIGHEST_G_PER_KWH:g})")
    return value
