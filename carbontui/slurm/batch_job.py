"""The `run`s of one batch job: one of them submits its successor, and it is ended when none of them trains any more.

Two locks for each batch job in a file on its host (lockf: the kernel frees them at any death).
"""

from __future__ import annotations

import fcntl
from pathlib import Path

TRAINS, SUBMITS = 0, 1
"""The locks: of those that train, which share it, and of the one that submits."""


class BatchJob:
    """As one `run` has it, which trains from now on: where another is ending the job it waits for that. Raises
    OSError."""

    def __init__(self, path: Path, job: int) -> None:
        self._file, self._first = path.open("ab+"), 2 * job
        fcntl.lockf(self._file, fcntl.LOCK_SH, 1, self._first + TRAINS)

    def has(self, lock: int) -> bool:
        """Take a lock alone; False where others have it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._first + lock)
        except OSError:
            return False
        return True

    def leave(self, lock: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._first + lock)
