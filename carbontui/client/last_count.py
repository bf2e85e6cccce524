"""The last count of a training process in a file of the job: what it says while no supervisor listens.

One supervisor may have been killed with the last words unread in its socket, and the next may come when the training
has ended. The file holds the very lines that the socket would have carried, hello and obs; the supervisor removes it
once they are in its journal.
"""

from __future__ import annotations

import contextlib
import os
from typing import Optional


def path() -> Optional[str]:
    """Where this process leaves its count; None outside a job."""
    marker = os.environ.get("CARBONTUI_MARKER")
    return None if not marker else os.path.join(os.path.dirname(marker), f"last-count-{os.getpid()}.jsonl")


def write(path: str, lines: bytes) -> None:
    """Whole or not at all. Raises OSError."""
    part = path + ".part"
    try:
        with open(part, "wb") as file:
            file.write(lines)
        os.replace(part, path)
    except BaseException:
        remove(part)
        raise


def remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
