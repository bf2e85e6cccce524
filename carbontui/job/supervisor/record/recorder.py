"""Journal and log access for the parts of the supervisor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from carbontui import protocol, units
from carbontui.job.files import history
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.record.disk import to_stderr
from carbontui.job.terms.clock import Clock
from carbontui.protocol import Statement
from carbontui.text import events
from carbontui.text.statements import in_words, words

RECENT = 4
LOOKED_AT = 40
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
            told = history.events(self.journal.path, 0.0, LOOKED_AT, plans=False)
            self.recent = tuple(one for one in told if one.kind in events.PERSONAL)[-RECENT:]

    def event(self, kind: str, at_s: float | None = None, /, **facts: object) -> None:
        """Record an event, its statements as words; `at_s` on the job's clock if not now."""
        wall = time.time()
        at = self.clock.at_wall(wall) if at_s is None else at_s
        drawn = in_words(facts, at)
        self.journal.event(at, wall, kind, **drawn)
        if kind in events.PERSONAL and (one := events.told(at, kind, drawn)):
            self.recent = (*self.recent, one)[-RECENT:]

    def say(self, said: Statement | str) -> None:
        say(said if isinstance(said, str) else self.words(said))

    def words(self, said: Statement) -> str:
        """The statement as of now, on the job's clock."""
        return words(said, self.clock.at_wall(time.time()))
