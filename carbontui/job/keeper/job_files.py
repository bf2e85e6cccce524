"""Files the keeper writes, atomic: job.json, where a job's processes are, and the exit status even on a full disk."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from carbontui.client import marker
from carbontui.job.keeper.messages import ChildFacts
from carbontui.job.terms import records
from carbontui.system import life, proc

EXIT_ROOM_B = 512


def log(text: str) -> None:
    """Write a line to carbontui.log (our stderr), control characters removed; a full disk must not affect the job."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    with contextlib.suppress(OSError):
        os.write(2, f"{stamp} keeper: {text}\n".encode(errors="replace"))


def write_json(path: str, value: Any) -> None:
    """Write atomically and durably. Raises OSError."""
    marker.write_atomic(path, json.dumps(value).encode(), mode=0o600)


def read_json(path: str) -> dict[str, Any]:
    """A JSON object; empty if missing or unreadable."""
    return records.read_json(path) or {}


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


POLL_S = 2.0
"""A damaged one is noticed within this."""
FULL_S = 60.0
"""One that could not be written is tried again after this."""


class JobFile:
    """The file of one job; `spec` is the keeper's."""

    def __init__(self, spec: Mapping[str, Any], log: Callable[[str], None]) -> None:
        self._path = f"{spec['job_dir']}/job.json"
        self._same = {**spec["public"], **life.here()._asdict()}
        self._log = log
        self._value: dict[str, Any] = {}
        self._known: tuple[int, int] | None = None
        """Inode and time of the file as it was last written or read."""
        self._due = 0.0

    def write(self, facts: ChildFacts, supervisor: int | None) -> None:
        """Write the state of the child and the pids, each with its start time."""
        keeper = os.getpid()
        self._value = {
            **self._same,
            "state": facts.state,
            "starts": facts.starts,
            "trying": facts.trying,
            "pids": {
                "keeper": [keeper, proc.start_time(keeper)],
                "supervisor": [supervisor, proc.start_time(supervisor)] if supervisor else None,
                "child": [facts.pid, facts.start_time] if facts.pid else None,
            },
        }
        self._write(time.monotonic())

    def rewrite(self, now: float) -> None:
        """Write it again if it was damaged or removed; `now` is monotonic seconds."""
        if now < self._due or not self._value:
            return
        self._due = now + POLL_S
        identity = self._identity()
        if identity is not None and identity == self._known:
            return
        self._known, there = identity, read_json(self._path)
        if any(type(there.get(name)) is not type(value) for name, value in self._value.items()):
            self._log("job.json was damaged: it is written again")
            self._write(now)

    def _write(self, now: float) -> None:
        try:
            write_json(self._path, self._value)
            self._known = self._identity()
        except OSError as error:
            self._known, self._due = None, now + FULL_S
            self._log(f"job.json could not be written: {error}")

    def _identity(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            info = os.stat(self._path)  # noqa: PTH116
            return info.st_ino, info.st_mtime_ns
        return None
