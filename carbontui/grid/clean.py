"""Cleans raw rows into a series: pure functions, with one note per kind of repair.

Order: drop nulls, sort, drop duplicates (the last one wins), rows of other years and faulty values (0 g, jumps; a wrong
unit raises), mark stuck sensors, drop future rows not marked as forecast, interpolate and mark short gaps, leave long
ones open.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise

from carbontui.grid.http import BadAnswer, NoData
from carbontui.grid.types import Row, Signal

Raw = tuple[float, float, float | None, str]
"""(start_s, dur_s, value, kind) as a provider's adapter reads them."""

SUSPECT_G = 2000.0
LEAP = 6.0
LEAST_LEAP_G = 100.0
NEAR_S = 3 * 3600.0
SLIP = 8.0
SLIP_FLOOR_G = 80.0
STUCK_S = 6 * 3600.0
GAP_S = 2 * 3600.0
AHEAD_S = 900.0
AWAY_S = 3 * 366 * 86400.0
LONGEST_ROW_S = 8 * 86400.0


def clean(
    raw: Iterable[Raw], *, signal: Signal, now_s: float, usual_g: float | None = None, zeros: bool = False
) -> tuple[tuple[Row, ...], tuple[str, ...], float]:
    """Rows fit for a Series, notes on the repairs, and how far values left out lay in the future of this machine's
    clock (seconds; 0 for none). `usual_g`: the zone's usual level, to detect a wrong unit;
    `zeros`: whether an average may be 0 g (direct emissions of a mix of wind and hydro).

    Raises NoData when nothing is left, BadAnswer when the whole answer is in another unit.
    """
    rows, notes = _ordered(raw)
    rows = _of_our_time(rows, now_s, notes)
    if signal != "price":
        rows = _plausible(rows, signal, notes, usual_g, zeros)
        rows = _stuck(rows, notes)
    ahead_s = 0.0 if signal == "price" else _ahead_s(rows, now_s)
    if ahead_s:
        rows = [row for row in rows if row.kind == "forecast" or row.start_s <= now_s + AHEAD_S]
        notes.append(ahead_note(ahead_s))
    if not rows:
        raise NoData("the answer holds no usable value" + (f" ({notes[-1]})" if notes else ""))
    if signal != "price":
        rows = _bridged(rows, notes)
    return tuple(rows), tuple(notes), ahead_s


def _ordered(raw: Iterable[Raw]) -> tuple[list[Row], list[str]]:
    seen: dict[float, Row] = {}
    doubles = 0
    for start_s, dur_s, value, kind in raw:
        if value is None or not math.isfinite(value) or not math.isfinite(start_s) or dur_s <= 0:
            continue
        doubles += start_s in seen
        seen[start_s] = Row(start_s, dur_s, float(value), kind)  # type: ignore[arg-type]
    rows = [seen[start] for start in sorted(seen)]
    # a row never overlaps the next one: steps may change in the middle of a series
    rows = [
        *(row._replace(dur_s=min(row.dur_s, after.start_s - row.start_s)) for row, after in pairwise(rows)),
        *rows[-1:],
    ]
    return rows, [f"{doubles} duplicate rows: the last of each kept"] if doubles else []


def _of_our_time(rows: list[Row], now_s: float, notes: list[str]) -> list[Row]:
    """Drop rows years away, which no job needs, and rows lasting weeks, which are errors: both make endless series."""
    kept = [row for row in rows if abs(row.start_s - now_s) <= AWAY_S and row.dur_s <= LONGEST_ROW_S]
    if len(kept) < len(rows):
        notes.append(f"{len(rows) - len(kept)} values from other years or lasting weeks left out")
    return kept


def _ahead_s(rows: list[Row], now_s: float) -> float:
    """How far actual values are later than now, where a clock must be wrong. Day-ahead prices are known ahead."""
    most_s = max((row.start_s for row in rows if row.kind != "forecast"), default=now_s) - now_s
    return most_s if most_s > AHEAD_S else 0.0


def ahead_note(ahead_s: float) -> str:
    return f"values from {ahead_s / 60:.0f} min ahead of this machine's clock left out: is the clock right?"


def _plausible(rows: list[Row], signal: Signal, notes: list[str], usual_g: float | None, zeros: bool) -> list[Row]:
    # marginal rates are zero at times (curtailed wind and solar); an average of zero is an error of the source
    zeros = zeros or signal == "marginal"
    sound = [row for row in rows if row.value > 0 or (row.value == 0 and zeros)]
    if len(sound) < len(rows):
        what = "below 0 g" if zeros else "of 0 g or below"
        notes.append(f"{len(rows) - len(sound)} values {what} left out as faulty")
        rows = sound
    if not rows:
        return rows
    middle = statistics.median(row.value for row in rows)
    if signal != "marginal" and usual_g and max(usual_g, middle) > SLIP_FLOOR_G:
        ratio = middle / usual_g
        if ratio > SLIP or (ratio < 1 / SLIP and usual_g > 2 * SLIP_FLOOR_G):
            raise BadAnswer(f"values around {middle:.4g} where about {usual_g:.0f} g/kWh is usual: another unit?")
    leaps = {k for k in range(len(rows)) if _leaps(rows, k, middle, signal)}
    if leaps:
        notes.append(f"{len(leaps)} values that jump more than {LEAP:g}-fold left out")
    return [row._replace(suspect=row.value > SUSPECT_G) for k, row in enumerate(rows) if k not in leaps]


def _leaps(rows: Sequence[Row], k: int, middle: float, signal: Signal) -> bool:
    value = rows[k].value
    if value > 2.5 * middle:
        near = [row.value for row in rows[max(0, k - 72) : k + 73] if abs(row.start_s - rows[k].start_s) <= NEAR_S]
        local = statistics.median(near)
        if value > LEAP * min(local, middle) and value - local > LEAST_LEAP_G:
            return True
    if signal == "marginal" or not 0 < k < len(rows) - 1:
        return False
    # a drop counts only where both neighbours are far above: real clean hours last longer than one row
    low = min(rows[k - 1].value, rows[k + 1].value)
    return value * LEAP < low and low > LEAST_LEAP_G


def _stuck(rows: list[Row], notes: list[str]) -> list[Row]:
    """Mark values unchanged for hours as suspect: the sensor is dead. They are kept."""
    out = list(rows)
    first = marked = 0
    for k in range(1, len(rows) + 1):
        if k < len(rows) and rows[k].value == rows[first].value and rows[k].kind != "forecast":
            continue
        if k - first >= 6 and rows[k - 1].start_s - rows[first].start_s >= STUCK_S:
            out[first:k] = [row._replace(suspect=True) for row in rows[first:k]]
            marked += k - first
        first = k
    if marked:
        notes.append(f"{marked} values unchanged for hours and marked as suspect")
    return out


def _bridged(rows: list[Row], notes: list[str]) -> list[Row]:
    out: list[Row] = []
    made = 0
    for row in rows:
        last = out[-1] if out else None
        if last is not None and last.kind != "forecast" and row.kind != "forecast":
            gap_s = row.start_s - (last.start_s + last.dur_s)
            if 0 < gap_s <= GAP_S:
                count = max(1, round(gap_s / last.dur_s))
                step_s, end_s = gap_s / count, last.start_s + last.dur_s
                for k in range(count):
                    value = last.value + (row.value - last.value) * (k + 1) / (count + 1)
                    out.append(Row(end_s + k * step_s, step_s, value, "estimated", suspect=True))
                made += count
        out.append(row)
    if made:
        notes.append(f"{made} missing values interpolated")
    return out
