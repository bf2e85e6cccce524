"""History of a live job, read from its journal off the event loop, since a supervisor silent for six seconds is
replaced."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from carbontui import protocol
from carbontui.job import journal
from carbontui.job.history import UNUSABLE, HistoryError, Past, read
from carbontui.system import untrusted
from carbontui.text import events


class HistoryThread:
    """Answers one query of the journal at `path` at a time, in its own thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")

    async def past(self, start_s: float, span_s: float, columns: int) -> Past:
        """`columns` equal columns from `start_s` (epoch seconds of the job) on. Raises HistoryError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, read, self._path, start_s, span_s, columns)

    async def events(self, since_s: float, most: int, *, plans: bool) -> tuple[protocol.Event, ...]:
        """The last `most` events from `since_s` on, the oldest first. Raises HistoryError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, read_events, self._path, since_s, most, plans)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def read_events(path: Path, since_s: float, most: int, plans: bool) -> tuple[protocol.Event, ...]:
    """The journal's events of interest to users, oldest first. Raises HistoryError."""
    found: list[protocol.Event] = []
    try:
        with journal.read(path) as db:
            rows = db.execute("select at, kind, data from event where at >= ? order by rowid desc", (since_s,))
            for at, kind, data in rows:
                if len(found) == most:
                    break
                if (plans or kind != "plan") and (one := events.told(at, kind, untrusted.decode(data, dict))):
                    found.append(one)
    except (sqlite3.Error, OSError, *UNUSABLE) as error:
        raise HistoryError(f"the past cannot be shown, {path.name}: {journal.why_not(error)}") from error
    return tuple(reversed(found))
