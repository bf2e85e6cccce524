"""Where metrics are published: a file in the folder of node-exporter's textfile collector."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from carbontui import paths

EVERY_S = 10.0
"""How often the file is rewritten; scrapers read every 15 to 60 s."""
STALE_S = 600.0
"""A job's file not written for this long belongs to a finished job: the next job removes it."""


class MetricsPlace:
    """`carbontui-NAME.prom` in a folder. Nothing here raises: `fault` says in one line what is wrong."""

    def __init__(self, folder: str, name: str) -> None:
        self.fault = ""
        self.file = Path(folder) / f"carbontui-{name}.prom"
        self._written_s: float | None = None

    def before(self) -> str:
        """What an earlier process left in the file, or ''."""
        with contextlib.suppress(OSError, ValueError):
            return self.file.read_text()
        return ""

    def due(self) -> bool:
        """Whether it is time to publish again."""
        return self._written_s is None or time.monotonic() - self._written_s >= EVERY_S

    def tell(self, text: str) -> None:
        """Write the file, which stays until another job removes it."""
        self._written_s, self.fault = time.monotonic(), ""
        try:
            paths.write_whole(self.file, text.encode(), 0o644)
            for other in self.file.parent.glob("carbontui-*.prom"):
                with contextlib.suppress(OSError):
                    found = other.lstat()
                    if found.st_uid == os.geteuid() and time.time() - found.st_mtime > STALE_S:
                        other.unlink()
        except (OSError, ValueError) as error:  # ValueError: no file can have such a name
            why = getattr(error, "strerror", "no such name")
            self.fault = f"metrics cannot be written to {str(self.file)!a} ({why})"
