"""What anyone in the supervisor is handed who has something to put on record."""

from __future__ import annotations

import contextlib
import os
import time

from carbontui.job.clock import Clock
from carbontui.job.journal import Journal


def say(text: str) -> None:
    """A line of carbontui.log, which is our stderr; a full disk must not hurt."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        os.write(2, f"{stamp} supervisor: {text}\n".encode(errors="replace"))


class Recorder:
    """Events into the journal, lines into carbontui.log."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    def event(self, kind: str, **facts: object) -> None:
        wall = time.time()
        self._journal.event(self._clock.at_wall(wall), wall, kind, **facts)

    def say(self, text: str) -> None:
        say(text)
