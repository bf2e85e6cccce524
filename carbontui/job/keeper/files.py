"""Files the keeper writes: atomic, and the exit status even on a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from carbontui.system import proc

EXIT_ROOM_B = 512


def log(text: str) -> None:
    """Write a line to carbontui.log (our stderr), control characters removed; a full disk must not affect the job."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    with contextlib.suppress(OSError):
        os.write(2, f"{stamp} keeper: {text}\n".encode(errors="replace"))


def write_json(path: str, value: Any) -> None:
    """Write atomically: a temporary file in the same directory, fsync, rename. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w") as file:  # noqa: PTH123
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)  # noqa: PTH105


def read_json(path: str) -> dict[str, Any]:
    """A JSON object; empty if missing or unreadable."""
    try:
        with open(path) as file:  # noqa: PTH123
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def reserve_exit(directory: str) -> None:
    """Reserve disk space for the exit status while there is some."""
    with contextlib.suppress(OSError), open(f"{directory}/exit.room", "wb") as room:  # noqa: PTH123
        room.write(b" " * EXIT_ROOM_B)
        os.fsync(room.fileno())


def exit_record(code: int | None, number: int | None, *, stopped: bool, unloaded: bool = False) -> dict[str, Any]:
    """exit.json of a command that has ended now: its exit code, or the signal that ended it."""
    return {"code": code, "signal": number, "at": time.time(), "stopped": stopped, "unloaded": unloaded}


def write_exit(directory: str, record: dict[str, Any]) -> None:
    """Write into the reserved file (JSON allows the trailing spaces), then rename it; the machine's other jobs
    know at once, however slow the disk. Raises OSError."""
    proc.tell_job_ended()
    data = json.dumps(record).encode()
    room = os.open(f"{directory}/exit.room", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(room, data.ljust(EXIT_ROOM_B), 0)
        os.fsync(room)
    finally:
        os.close(room)
    os.replace(f"{directory}/exit.room", f"{directory}/exit.json")  # noqa: PTH105
