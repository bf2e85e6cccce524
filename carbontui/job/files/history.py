"""Watts, levels and intensity of any span of a job's past, from its journal.

A week of ten boards is 600,000 rows. So a span is answered from energy_10min, with the rows themselves only where a
column edge falls inside ten minutes; the result is still exact.
"""

import bisect
import contextlib
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from carbontui import protocol, units
from carbontui.job.files import journal
from carbontui.job.files.journal import ROLLUP_S
from carbontui.protocol import LevelKind, is_level_kind
from carbontui.system import untrusted
from carbontui.text import statements

UNUSABLE = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
"""Exceptions raised by rows that no supervisor has written."""
TOUCHED_S = 1e-6
"""Less of a column than this is rounding error of sums, not a reading."""
LEVEL_OF_STATE: dict[str, LevelKind | None] = {
    "paused": "pause",
    "unloaded": "unload",
    "waiting": "off",
    "starting": None,
}
"""States without steps map to these levels, named after their kind, regardless of the plan's level for the slot."""


class HistoryError(RuntimeError):
    """The journal cannot be read; the text says why, and that the job continues."""


@dataclass(frozen=True, slots=True)
class Past:
    """Columns of equal time: mean watts of all devices (None where none was read), and the level at each midpoint."""

    watts: tuple[float | None, ...]
    levels: tuple[str | None, ...]
    kinds: tuple[LevelKind | None, ...]


def read(path: Path, start_s: float, span_s: float, columns: int) -> Past:
    """`columns` equal columns from `start_s` on. Raises HistoryError."""
    with _opened(path) as db:
        edges = [start_s + span_s * index / columns for index in range(columns + 1)]
        return Past(tuple(_watts(db, edges)), *_levels(db, edges))


def whole(path: Path, status: protocol.Status, columns: int) -> protocol.HistoryAnswer | None:
    """A finished job from its first joule to its last status; None if nothing was booked.

    Raises HistoryError."""
    end_s, signal = units.from_iso(status.ended_at), status.intensity.signal if status.intensity else ""
    with _opened(path) as db:
        first_s = db.execute(f"select min(t0) from energy where {journal.ENERGY_SOUND}").fetchone()[0]
        query = f"select start, dur, value from grid where signal = ? and {journal.GRID_SOUND} order by start"
        grid = [tuple(row) for row in db.execute(query, (signal,))]
    if first_s is None or first_s >= end_s:
        return None
    found = read(path, first_s, end_s - first_s, columns)
    step_s = (end_s - first_s) / columns
    starts = [start for start, _, _ in grid]

    def value(at_s: float) -> float | None:
        index = bisect.bisect_right(starts, at_s) - 1
        return grid[index][2] if index >= 0 and at_s < starts[index] + grid[index][1] else None

    intensity = tuple(value(first_s + (index + 0.5) * step_s) for index in range(columns))
    watts = protocol.Watts(units.iso(first_s), step_s, found.watts)
    return protocol.HistoryAnswer(0, watts, found.levels, intensity, found.kinds)


def events(path: Path, since_s: float, most: int, plans: bool) -> tuple[protocol.Event, ...]:
    """The journal's events of interest to users, oldest first. Raises HistoryError."""
    with _opened(path) as db:
        rows = db.execute("select at, kind, data from event where at >= ? order by rowid desc", (since_s,))
        wanted = ((at, kind, untrusted.decode(data, dict)) for at, kind, data in rows if plans or kind != "plan")
        found = [*itertools.islice(filter(None, itertools.starmap(statements.event_line, wanted)), most)]
    return tuple(reversed(found))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The journal, for as long as it is read. Raises HistoryError, also for what its rows raise."""
    try:
        with journal.read(path) as db:
            yield db
    except (sqlite3.Error, OSError, *UNUSABLE) as error:
        raise HistoryError(f"the past cannot be shown, {path.name}: {journal.why_not(error)}") from error


def _watts(db: sqlite3.Connection, edges: Sequence[float]) -> list[float | None]:
    """Each column is the energy up to its end minus the energy up to its start."""
    bins = list(db.execute("select start, joules, seconds from energy_10min order by start"))
    starts = [start for start, _, _ in bins]
    joules = list(itertools.accumulate((each[1] for each in bins), initial=0.0))
    seconds = list(itertools.accumulate((each[2] for each in bins), initial=0.0))

    def until(edge: float) -> tuple[float, float]:
        whole = bisect.bisect_right(starts, edge - ROLLUP_S)
        if whole == len(starts) or starts[whole] >= edge:
            return joules[whole], seconds[whole]
        cut_j, cut_s = _cut(db, starts[whole], edge)
        return joules[whole] + cut_j, seconds[whole] + cut_s

    found: list[float | None] = []
    for (a, (from_j, from_s)), (b, (to_j, to_s)) in itertools.pairwise((edge, until(edge)) for edge in edges):
        found.append((to_j - from_j) / (b - a) if to_s - from_s > TOUCHED_S else None)
    return found


def _cut(db: sqlite3.Connection, start: float, edge: float) -> tuple[float, float]:
    """Joules of all devices, and device-seconds read, of the ten minutes from `start`, up to `edge`."""
    joules, seconds = db.execute(
        "select sum(joules * (min(t1, ?1) - t0) / (t1 - t0)), sum(min(t1, ?1) - t0)"
        " from energy where t0 >= ?2 and t0 < ?1 and t1 > t0",
        (edge, start),
    ).fetchone()
    return joules or 0.0, seconds or 0.0


def _levels(
    db: sqlite3.Connection, edges: Sequence[float]
) -> tuple[tuple[str | None, ...], tuple[LevelKind | None, ...]]:
    """The level observed in the middle of each column, and its kind, from the journal's changes of state."""
    rows = db.execute(
        "select at, data from event where kind='state' and at <= ?2 and at >="
        " coalesce((select max(at) from event where kind='state' and at <= ?1), 0) order by at",
        (edges[0], edges[-1]),
    )
    at: list[float] = []
    levels: list[tuple[str | None, LevelKind | None]] = [(None, None)]
    for moment, data in rows:
        facts = untrusted.decode(data, dict)
        at.append(moment)
        if (state := facts["state"]) in LEVEL_OF_STATE:
            levels.append((LEVEL_OF_STATE[state], LEVEL_OF_STATE[state]))
        else:
            levels.append((facts["level"], kind if is_level_kind(kind := facts["level_kind"]) else "full"))
    seen = [levels[bisect.bisect_right(at, (a + b) / 2)] for a, b in itertools.pairwise(edges)]
    return tuple(name for name, _ in seen), tuple(kind for _, kind in seen)
