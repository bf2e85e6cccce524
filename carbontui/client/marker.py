"""The resume marker: how an unloaded training tells its keeper to start the command again.

The process (on every rank) exits with code 0; the marker makes that 'unloaded' instead of 'done'. Beside it lies the
evidence of a training before its first step, to explain why no step is seen: lines of `PID WORD`, appended by every
process that imports a training library. Words: the name of a module the hook waits for, and CAPTURED.
"""

import contextlib
import json
import os
import sys
from datetime import datetime, timezone
from typing import Optional, Set

CAPTURED = "captured"
"""A CUDA graph was recorded."""
SIZE_MAX = 64 * 1024
"""Maximum bytes of the evidence, for jobs that start thousands of processes."""
_noted: Set[str] = set()


def write_atomic(path: str, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Atomically replace the file at `path` by `data`, which is on disk when this returns unless it need not be
    `durable`. Raises OSError, which names it."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode)) as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = path
        remove(part)
        raise
    if durable:
        with contextlib.suppress(OSError):  # some file systems cannot make a rename durable
            sync_dir(os.path.dirname(path) or ".")


def sync_dir(path: str) -> None:
    """Make what was made or renamed in this directory last. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def ours() -> str:
    """The path of the job's marker on the first rank of each host, which is one per keeper; '' elsewhere."""
    first = os.environ.get("LOCAL_RANK", "0") in ("", "0")
    return os.environ.get("CARBONTUI_MARKER", "") if first else ""


def write(step: int, not_before: Optional[str]) -> None:
    """Write our marker: steps of the whole training done, and when to start again (RFC 3339; None: when asked). Raises
    OSError."""
    path = ours()
    if not path:
        return
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    body = {"step": step, "not_before": not_before, "written_at": now}
    write_atomic(path, json.dumps(body).encode() + b"\n")


def leave_exit_code(parent: int, start_time: int) -> None:
    """At the end of the command, if the keeper that started it (`parent`) is gone: nobody else learns its exit code.

    1 after an exception that nobody caught, else 0; no file where the script may have named another.
    """
    beside = os.environ.get("CARBONTUI_MARKER", "")
    if not beside or os.getppid() == parent:
        return
    failed = hasattr(sys, "last_value")
    import re

    with contextlib.suppress(OSError):
        if not failed:
            with open(getattr(sys.modules["__main__"], "__file__", None) or os.devnull, "rb") as script:
                if re.search(rb"\bSystemExit\b|\b(exit|_exit|quit)\(", script.read()):
                    return
        path = os.path.join(os.path.dirname(beside), f"ended-{os.getpid()}.json")
        write_atomic(path, json.dumps({"start_time": start_time, "code": int(failed)}).encode(), durable=False)


def remove(path: str) -> None:
    """Remove a file, if it is there: a marker, if the process does not exit after all."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def note(word: str) -> None:
    """Write evidence down, once per process; nothing is raised."""
    beside = os.environ.get("CARBONTUI_MARKER")
    if not beside or word in _noted:
        return
    _noted.add(word)
    with contextlib.suppress(OSError):
        fd = os.open(beside + ".evidence", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.fstat(fd).st_size < SIZE_MAX:
                os.write(fd, f"{os.getpid()} {word}\n".encode())
        finally:
            os.close(fd)
