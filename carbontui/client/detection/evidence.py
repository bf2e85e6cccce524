"""Evidence of a training before its first step, in a file next to the marker: used to explain why no step is seen.

Lines of `PID WORD`, appended by every process of the job that imports a training library. Words: the name of a module
the hook waits for, and CAPTURED.
"""

from __future__ import annotations

import os
from typing import Set

CAPTURED = "captured"
"""A CUDA graph was recorded."""
SIZE_MAX = 64 * 1024
"""Maximum bytes of the file, for jobs that start thousands of processes."""
_noted: Set[str] = set()


def note(word: str) -> None:
    """Write it down, once per process; nothing is raised."""
    marker = os.environ.get("CARBONTUI_MARKER")
    if not marker or word in _noted:
        return
    _noted.add(word)
    try:
        fd = os.open(marker + ".evidence", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.fstat(fd).st_size < SIZE_MAX:
                os.write(fd, f"{os.getpid()} {word}\n".encode())
        finally:
            os.close(fd)
    except OSError:
        return
