"""All that the supervisor does on its disk, in one thread: the loop, and with it the heartbeat, never waits for it."""

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from carbontui import protocol, units
from carbontui.job.files import history
from carbontui.job.files.journal import Journal
from carbontui.job.terms.clock import Clock
from carbontui.protocol import Statement
from carbontui.text import log
from carbontui.text.statements import event_line, kept, recorded

T = TypeVar("T")

SLOW_S = 3.0
"""One piece of work that takes this long is a slow disk's."""
SAID_S = 60.0
"""How long after that the disk is called slow."""
LINES_MOST = 10_000
LAST_S = 1.0


class Disk:
    """Work is done one after another, in order. `mono_s` is the clock."""

    def __init__(self, mono_s: Callable[[], float] = time.monotonic) -> None:
        self._mono_s = mono_s
        self._work: queue.SimpleQueue[Callable[[], Callable[[], object] | None] | None] = queue.SimpleQueue()
        self._begun: float | None = None
        self._slow_at = -SAID_S
        self._slow_s = 0.0
        # a daemon: a disk that never answers must not keep the process
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Have it done: its result, or what it raised. It is done also if nobody awaits that."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting

        def give(result: T | None, error: Exception | None) -> None:
            if not future.done() and error is not None:
                future.set_exception(error)
            elif not future.done():
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> Callable[[], object]:
            try:
                return partial(loop.call_soon_threadsafe, give, work(), None)
            except Exception as error:
                return partial(loop.call_soon_threadsafe, give, None, error)

        self._work.put(run)
        return future

    def post(self, work: Callable[[], None]) -> None:
        """Have it done, which must not raise; nobody awaits it."""
        self._work.put(work)

    def write(self, line: bytes) -> None:
        """Write a line to carbontui.log, which is our stderr; a full disk is ignored."""
        if self._work.qsize() < LINES_MOST:
            self._work.put(lambda: to_stderr(line))

    @property
    def slow_s(self) -> float | None:
        """Seconds that work of the last minute took, or takes by now; None if the disk is not slow."""
        now, begun = self._mono_s(), self._begun
        if begun is not None and now - begun >= SLOW_S:
            return now - begun
        return self._slow_s if now - self._slow_at < SAID_S else None

    def close(self) -> None:
        """Write the last lines, if the disk takes them soon."""
        self._work.put(None)
        self._thread.join(LAST_S)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            self._begun = begun = self._mono_s()
            tell = work()
            self._begun, now = None, self._mono_s()
            if now - begun >= SLOW_S:
                self._slow_at, self._slow_s = now, now - begun
            if tell is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    tell()


def to_stderr(line: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(2, line)


RECENT = 4
SEARCHED = 40
"""Events among which a successor looks for them."""


_write: Callable[[bytes], None] = to_stderr


def write_by(write: Callable[[bytes], None]) -> None:
    """From now on lines are written by this."""
    global _write
    _write = write


def say(text: str) -> None:
    """Write a line to carbontui.log, which is our stderr; a full disk is ignored."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    _write(f"{stamp} supervisor: {units.printable(text)}\n".encode(errors="replace"))


@dataclass(eq=False)
class Recorder:
    """Events into the journal, lines into carbontui.log."""

    journal: Journal
    clock: Clock
    recent: tuple[protocol.Event, ...] = ()
    """The latest user commands, oldest first."""

    @property
    def path(self) -> Path:
        """The journal, to be read."""
        return self.journal.path

    def resume(self) -> None:
        """Take over the latest user commands that a predecessor has recorded, if they can be read."""
        with contextlib.suppress(history.HistoryError):
            told = history.events(self.journal.path, 0.0, SEARCHED, plans=False)
            self.recent = tuple(one for one in told if one.kind in log.PERSONAL)[-RECENT:]

    def event(self, kind: str, at_s: float | None = None, /, **facts: object) -> None:
        """Record an event, its statements as words; `at_s` on the job's clock if not now."""
        wall = time.time()
        at = self.clock.at_wall(wall) if at_s is None else at_s
        drawn = recorded(facts, at)
        self.journal.event(at, wall, kind, **drawn)
        if kind in log.PERSONAL and (one := event_line(at, kind, drawn)):
            self.recent = (*self.recent, one)[-RECENT:]

    def say(self, said: Statement | str) -> None:
        say(said if isinstance(said, str) else self.words(said))

    def words(self, said: Statement) -> str:
        """The statement as of now, on the job's clock."""
        return kept(said, self.clock.at_wall(time.time()))
