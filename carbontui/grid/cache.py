"""The grid cache shared by all jobs of the machine: one small file per question, one request per window.

A file holds the cleaned answer, never a key or a URL. Files are replaced atomically and requests are made under a lock,
so that twenty jobs make one request; where locks do not work (some network homes) each job makes its own.
"""

import asyncio
import contextlib
import fcntl
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from carbontui import paths
from carbontui.grid import issues
from carbontui.grid.http import GridError, Unreachable, in_thread
from carbontui.grid.types import Answer, Series
from carbontui.system import untrusted

T = TypeVar("T")

DISK_S = 3.0
LOCK_S = 10.0
CLOCK_S = 60.0
AFTER_FAULT_S = 60.0
"""No job of the machine queries a provider for this long after a fault; doubled at each further fault, up to its
window."""
JITTER = 0.1
"""Windows are up to this share longer, so that machines started together do not keep querying together."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A provider's last good answer to one question, and the outcome of the last attempt."""

    series: Series | None = None
    asked_at_s: float = 0.0
    next_s: float = 0.0
    """When the next request is allowed."""
    fault: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A provider's data set that allows one request per `spacing_s`, whatever the question or zone."""

    name: str
    spacing_s: float


class Cache:
    """Entries under one directory (None: kept in memory only)."""

    def __init__(
        self, directory: Path | None, now: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._directory = directory
        self._now = now
        self._chance = chance
        self._memory: dict[str, Entry] = {}
        self._kept: dict[str, Any] = {}

    async def ask(
        self, key: str, window_s: float, fetch: Callable[[Entry], Awaitable[Answer]], turn: Turn | None = None
    ) -> Entry:
        """The entry of `key`, refreshed through `fetch` when its window is over and its data set allows a request.

        `fetch` gets the old entry. A fault keeps the old answer and is recorded in `fault`, also where another job's
        request holds the lock for longer than LOCK_S. Never raises.
        """
        entry = await self.peek(key)
        if self._closed(entry):
            return entry
        try:
            async with self._locked(key):
                entry = await self.peek(key)
                if self._closed(entry):
                    return entry
                due_s = await self._take_turn(turn) if turn else 0.0
                if due_s > self._now():
                    waits = f"next request in {due_s - self._now():.0f} s: the provider limits requests per data set"
                    return replace(entry, next_s=due_s, notes=entry.notes if entry.series else (waits,))
                entry = await self._fetched(entry, window_s, fetch)
                await self._store(key, entry)
        except Unreachable as error:
            return replace(entry, fault=str(error))
        return entry

    async def _fetched(self, entry: Entry, window_s: float, fetch: Callable[[Entry], Awaitable[Answer]]) -> Entry:
        wait_s: float | None = None
        try:
            series, notes = await fetch(entry)
            now_s = self._now()
            open_s = now_s + window_s * (1 + JITTER * self._chance())
            return Entry(replace(series, fetched_at_s=now_s), now_s, open_s, "", notes)
        except GridError as error:
            wait_s, fault = error.retry_after_s, str(error)
        except Exception as error:  # one provider's fault, or our bug in parsing it, must not affect the others
            fault = f"the answer could not be read ({type(error).__name__})"
        wait_s = wait_s or _back_off(entry, window_s)
        return replace(entry, asked_at_s=self._now(), next_s=self._now() + wait_s, fault=fault)

    async def _take_turn(self, turn: Turn) -> float:
        """Take the data set's turn: 0 when taken, else the time at which the next request is allowed."""
        key = f"turn-{turn.name}"
        async with self._locked(key):
            last_s, now_s = (await self.peek(key)).asked_at_s, self._now()
            if last_s - CLOCK_S <= now_s < last_s + turn.spacing_s:
                return last_s + turn.spacing_s
            await self._store(key, Entry(asked_at_s=now_s))
        return 0.0

    def _closed(self, entry: Entry) -> bool:
        """Whether the window of the last request is still running. A request stamped in the future came from a clock
        that has since been corrected, and does not count."""
        return entry.asked_at_s - CLOCK_S <= self._now() < entry.next_s

    async def peek(self, key: str) -> Entry:
        """The entry as it is now, without a request."""
        held, found = self._memory.get(key, Entry()), await self._load(key, Entry)
        # on a disk that takes no writes, this process's memory is newer
        return found if found and found.asked_at_s >= held.asked_at_s else held

    async def keep(self, key: str, kind: type[T], change: Callable[[T | None], T]) -> T:
        """Update the value kept under `key` (None at first) through `change` and return it; includes what other jobs
        wrote. A stored value that is not a `kind`, or for which `change` raises ValueError, is ignored."""
        kept = change(self._kept.get(key))
        with contextlib.suppress(Unreachable):
            async with self._locked(key):
                found = await self._load(key, kind)
                with contextlib.suppress(ValueError):
                    kept = kept if found is None else change(found)
                if kept != found:
                    await self._save(key, kept)
        self._kept[key] = kept
        return kept

    async def add_issue(self, key: str, issue: issues.Issue) -> issues.Issues:
        """The recent issues of `key` with this one, including those other jobs of the machine saw; never raises."""
        own = [*self._kept.get(key, []), issue]
        return await self.keep(key, issues.Issues, lambda kept: issues.merged([*(kept or []), *own], self._now()))

    async def _store(self, key: str, entry: Entry) -> None:
        self._memory[key] = entry
        await self._save(key, entry)

    async def _load(self, key: str, kind: type[T]) -> T | None:
        """None for no file, another version's, a damaged one, a failed disk."""
        if self._directory is not None:
            with contextlib.suppress(OSError, asyncio.TimeoutError, ValueError):
                return await in_thread(_read, self._path(key), kind, deadline_s=DISK_S)
        return None

    async def _save(self, key: str, value: object) -> None:
        if self._directory is not None:
            with contextlib.suppress(OSError, asyncio.TimeoutError, ValueError):
                await in_thread(_write, self._path(key), value, deadline_s=DISK_S)

    def _path(self, key: str) -> Path:
        assert self._directory is not None
        return self._directory / (re.sub(r"[^A-Za-z0-9.-]+", "_", key) + ".json")

    @contextlib.asynccontextmanager
    async def _locked(self, key: str) -> AsyncIterator[None]:
        """Hold the key's lock file; go on without one where locks do not work. Raises Unreachable after LOCK_S."""
        descriptor = -1
        if self._directory is not None:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                descriptor = await in_thread(_open_lock, self._path(key).with_suffix(".lock"), deadline_s=DISK_S)
        try:
            if descriptor >= 0:
                await self._take(descriptor)
            yield
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    async def _take(self, descriptor: int) -> None:
        waited_s = 0.0
        while waited_s < LOCK_S:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                await asyncio.sleep(0.05)
                waited_s += 0.05
            except OSError:
                return
        raise Unreachable("another job's request to the provider is taking too long")


def _back_off(entry: Entry, window_s: float) -> float:
    """Seconds until the next request after a fault: twice the last wait, between a minute and the window."""
    before_s = entry.next_s - entry.asked_at_s if entry.fault else 0.0
    return max(AFTER_FAULT_S, min(2 * before_s, window_s))


def _open_lock(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _read(path: Path, kind: type[T]) -> T:
    return untrusted.decode(path.read_bytes(), kind)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths.write_whole(path, msgspec.json.encode(value))
