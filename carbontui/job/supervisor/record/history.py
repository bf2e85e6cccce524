"""Watts and levels of any span of the past, from the journal: off the event loop, and from sums where the span is long.

A supervisor that is silent for six seconds is replaced; a week of ten boards is 600,000 rows. So a long span is
answered from energy_10min, with the rows themselves only where the edge of a column cuts ten minutes in two: exact all
the same.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from carbontui import protocol
from carbontui.job import journal
from carbontui.job.journal import ROLLUP_S, Journal, Rollup
from carbontui.job.supervisor.core import events

SHORT_S = 6 * 3600.0
"""A span up to this is read row by row: some 2,000 rows a board."""
TOUCHED_S = 1e-6
"""Less of a column than this is the rounding of sums, not a reading."""
LEVEL_OF_STATE: dict[str, str | None] = {"paused": "pause", "unloaded": "unload", "waiting": "off", "starting": None}
"""What stands still is that, whatever the plan calls the slot."""


class HistoryError(RuntimeError):
    """The journal cannot be read; the text says why, and that the job goes on."""


@dataclass(frozen=True, slots=True)
class Past:
    """Columns of equal time: mean watts of all devices (None where nothing was read), and the level at each middle."""

    watts: tuple[float | None, ...]
    levels: tuple[str | None, ...]


class Sum(NamedTuple):
    """Joules of all devices, and device-seconds read."""

    joules: float = 0.0
    seconds: float = 0.0


class History:
    """Answers one question at a time, in a thread of its own; `book` is filled where it has no sums yet."""

    def __init__(self, book: Journal) -> None:
        self._book = book
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")

    async def past(self, start_s: float, span_s: float, columns: int) -> Past:
        """`columns` equal columns from `start_s` (epoch seconds of the job) on. Raises HistoryError."""
        before = self._book.taken_back
        loop = asyncio.get_running_loop()
        found, rollup = await loop.run_in_executor(
            self._thread, read, self._book.path, start_s, span_s, columns, SHORT_S
        )
        if rollup is not None and before == self._book.taken_back:
            self._book.fill(rollup)
        return found

    async def events(self, since_s: float, most: int, *, plans: bool) -> tuple[protocol.Event, ...]:
        """The last `most` events from `since_s` on, the oldest first. Raises HistoryError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, read_events, self._book.path, since_s, most, plans)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def read_events(path: Path, since_s: float, most: int, plans: bool) -> tuple[protocol.Event, ...]:
    """What a person would want to be told of the journal's events, the oldest first. Raises HistoryError."""
    found: list[protocol.Event] = []
    try:
        with journal.read(path) as db:
            rows = db.execute("select at, kind, data from event where at >= ? order by rowid desc", (since_s,))
            for at, kind, data in rows:
                if len(found) == most:
                    break
                if (plans or kind != "plan") and (one := events.told(at, kind, msgspec.json.decode(data))):
                    found.append(one)
    except (sqlite3.Error, OSError, msgspec.DecodeError) as error:
        raise HistoryError(f"the past cannot be shown, {path.name} cannot be read: {error}") from error
    return tuple(reversed(found))


def read(
    path: Path, start_s: float, span_s: float, columns: int, short_s: float = SHORT_S
) -> tuple[Past, Rollup | None]:
    """The past, and the sums of a journal that has none yet if they had to be made. Raises HistoryError."""
    try:
        with journal.read(path) as db:
            edges = [start_s + span_s * index / columns for index in range(columns + 1)]
            rollup = None
            if span_s <= short_s:
                watts = _from_rows(db, edges)
            else:
                rollup = None if _has_sums(db) else _summed(db)
                bins = (
                    rollup.bins if rollup else db.execute("select start, joules, seconds from energy_10min").fetchall()
                )
                watts = _from_sums(db, edges, sorted(map(tuple, bins)))
            return Past(tuple(watts), _levels(db, edges)), rollup
    except (sqlite3.Error, OSError, msgspec.DecodeError) as error:
        raise HistoryError(f"the past cannot be shown, {path.name} cannot be read: {error}") from error


def _has_sums(db: sqlite3.Connection) -> bool:
    return db.execute("select 1 from sqlite_master where name='energy_10min'").fetchone() is not None


def _summed(db: sqlite3.Connection) -> Rollup:
    """The sums of every row there is now."""
    last = db.execute("select max(rowid) from energy").fetchone()[0] or 0
    bins = db.execute(
        f"select cast(t0 / {ROLLUP_S} as integer) * {ROLLUP_S}, sum(joules), sum(t1 - t0)"
        " from energy where rowid <= ? group by 1",
        (last,),
    )
    return Rollup(tuple((int(start), float(joules), float(seconds)) for start, joules, seconds in bins), last)


def _from_rows(db: sqlite3.Connection, edges: Sequence[float]) -> list[float | None]:
    start, end, columns = edges[0], edges[-1], len(edges) - 1
    step = (end - start) / columns
    totals: list[float | None] = [None] * columns
    rows = db.execute(
        "select t0, t1, joules from energy where t0 > ? and t0 < ? and t1 > ?", (start - ROLLUP_S, end, start)
    )
    for t0, t1, joules in rows:
        first, last = int((max(t0, start) - start) // step), int((min(t1, end) - start) // step)
        for index in range(first, min(last, columns - 1) + 1):
            a, b = max(t0, edges[index]), min(t1, edges[index + 1])
            if b > a and t1 > t0:
                totals[index] = (totals[index] or 0.0) + joules * (b - a) / (t1 - t0) / step
    return totals


def _from_sums(
    db: sqlite3.Connection, edges: Sequence[float], bins: Sequence[tuple[float, float, float]]
) -> list[float | None]:
    """Each column is what was drawn up to its end, less what was drawn up to its start."""
    starts = [start for start, _, _ in bins]
    joules = list(itertools.accumulate((each[1] for each in bins), initial=0.0))
    seconds = list(itertools.accumulate((each[2] for each in bins), initial=0.0))

    def until(edge: float) -> Sum:
        whole = bisect.bisect_right(starts, edge - ROLLUP_S)
        if whole == len(starts) or starts[whole] >= edge:
            return Sum(joules[whole], seconds[whole])
        cut = _cut(db, starts[whole], edge)
        return Sum(joules[whole] + cut.joules, seconds[whole] + cut.seconds)

    found: list[float | None] = []
    for (a, before), (b, after) in itertools.pairwise((edge, until(edge)) for edge in edges):
        read_s = after.seconds - before.seconds
        found.append((after.joules - before.joules) / (b - a) if read_s > TOUCHED_S else None)
    return found


def _cut(db: sqlite3.Connection, start: float, edge: float) -> Sum:
    """The rows of ten minutes from `start` as far as `edge`."""
    joules, seconds = db.execute(
        "select sum(joules * (min(t1, ?1) - t0) / (t1 - t0)), sum(min(t1, ?1) - t0)"
        " from energy where t0 >= ?2 and t0 < ?1 and t1 > t0",
        (edge, start),
    ).fetchone()
    return Sum(joules or 0.0, seconds or 0.0)


def _levels(db: sqlite3.Connection, edges: Sequence[float]) -> tuple[str | None, ...]:
    """The level observed in the middle of each column, from the journal's changes of state."""
    rows = db.execute(
        "select at, data from event where kind='state' and at <= ?2 and at >="
        " coalesce((select max(at) from event where kind='state' and at <= ?1), 0) order by at",
        (edges[0], edges[-1]),
    )
    at: list[float] = []
    levels: list[str | None] = [None]
    for moment, data in rows:
        facts = msgspec.json.decode(data)
        at.append(moment)
        levels.append(LEVEL_OF_STATE.get(facts["state"], facts["level"]))
    middles = ((a + b) / 2 for a, b in itertools.pairwise(edges))
    return tuple(levels[bisect.bisect_right(at, middle)] for middle in middles)
