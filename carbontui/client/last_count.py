"""The last step count of a training process in a file of the job, for when no supervisor is listening.

One supervisor may have been killed with the last message unread in its socket, and the next may start after the
training has ended. The file contains the lines that the socket would have carried, hello and obs; the supervisor
removes it once they are in its journal.
"""

from __future__ import annotations

import contextlib
import os
from typing import Optional


def path() -> Optional[str]:
    """Where this process writes its count; None outside a job."""
    marker = os.environ.get("CARBONTUI_MARKER")
    return None if not marker else os.path.join(os.path.dirname(marker), f"last-count-{os.getpid()}.jsonl")


def write(path: str, lines: bytes) -> None:
    """Write atomically. Raises OSError."""
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
