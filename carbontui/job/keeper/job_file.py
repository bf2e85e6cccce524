"""job.json: where a job's processes are, for all who look. The keeper alone writes it, and again if it is damaged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from carbontui.job.keeper import files
from carbontui.job.keeper.messages import ChildFacts
from carbontui.system import life, proc

LOOK_S = 2.0
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

    def mend(self, now: float) -> None:
        """Write it again if it was damaged or removed; `now` is monotonic seconds."""
        if now < self._due or not self._value:
            return
        self._due = now + LOOK_S
        identity = self._identity()
        if identity is not None and identity == self._known:
            return
        self._known, there = identity, files.read_json(self._path)
        if any(type(there.get(name)) is not type(value) for name, value in self._value.items()):
            self._log("job.json was damaged: it is written again")
            self._write(now)

    def _write(self, now: float) -> None:
        try:
            files.write_json(self._path, self._value)
            self._known = self._identity()
        except OSError as error:
            self._known, self._due = None, now + FULL_S
            self._log(f"job.json could not be written: {error}")

    def _identity(self) -> tuple[int, int] | None:
        try:
            info = os.stat(self._path)  # noqa: PTH116
        except OSError:
            return None
        return info.st_ino, info.st_mtime_ns
