"""orders.log: what people have asked of a job, a JSON line each, appended and made durable before it is answered.

The supervisor is a cache of it: a successor takes again what the journal does not have yet. Who finds no supervisor
appends the order; who wakes from a sleep looks here for a stop. Standard library only, like the keeper.
"""

import contextlib
import errno
import json
import os
import time
from typing import Any, NamedTuple

from carbontui.client import marker
from carbontui.job.terms import records

NAME = "orders.log"
STARTED = "started"
"""The mark of a keeper that begins: a stop before it was for an earlier life of the job."""
READ_MOST_B = 1 << 20


class LoggedOrder(NamedTuple):
    """One order of a person, given at `at` (epoch seconds of the machine). Its line ends at the offset `end`."""

    verb: str
    args: dict[str, Any]
    by: str
    at: float
    accepted: bool
    """A supervisor has checked it and carries it out; else nobody has seen it yet."""
    end: int = 0


def append(directory: str, given: LoggedOrder) -> tuple[int, int]:
    """Where its line begins and ends in the file, once it is durable. Raises OSError."""
    path = f"{directory}/{NAME}"
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # a disk that was full for a moment
        facts = {name: value for name, value in given._asdict().items() if name != "end"}
        line = b"\n" * torn + json.dumps(facts).encode() + b"\n"
        if os.write(fd, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        end = os.lseek(fd, 0, os.SEEK_CUR)
        os.fsync(fd)
    finally:
        os.close(fd)
    if size == 0:
        marker.sync_dir(directory)
    return end - len(line), end


def begin(directory: str) -> None:
    """A keeper begins: what was to be stopped before is over."""
    with contextlib.suppress(OSError):
        if size(directory):
            append(directory, LoggedOrder(STARTED, {}, "keeper", time.time(), accepted=True))


def size(directory: str) -> int:
    """Where the file ends; 0 if there is none."""
    with contextlib.suppress(OSError):
        return os.stat(f"{directory}/{NAME}").st_size  # noqa: PTH116
    return 0


def since(directory: str, offset: int) -> tuple[list[LoggedOrder], int]:
    """The orders behind `offset`, oldest first, and where the last whole line ends; all of a file that is shorter. A
    line that is no order is left out.

    Raises OSError if the file cannot be read.
    """
    try:
        fd = os.open(f"{directory}/{NAME}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return [], 0
    try:
        at = offset if offset <= os.fstat(fd).st_size else 0
        data = os.pread(fd, READ_MOST_B, at)
    finally:
        os.close(fd)
    if len(data) == READ_MOST_B and b"\n" not in data:
        return [], at + len(data)  # no order is so long
    found: list[LoggedOrder] = []
    for line in data.split(b"\n")[:-1]:
        at += len(line) + 1
        with contextlib.suppress(ValueError):
            given = records.decode(line, LoggedOrder)._replace(end=at)
            if given.verb == STARTED:
                found = [one for one in found if one.verb != "stop"]
            elif 0 <= given.at <= records.LAST_S:
                found.append(given)
    return found, at
