"""The Status of a moment, with what only the shell knows of it, and its copy on disk."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from carbontui import protocol
from carbontui.job import store
from carbontui.job.supervisor.core import notices, status
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.power.handle import AgentHandle

DISK_LEAST_B = 1 << 30


class Snapshots:
    """`faults` gives one line for everything of carbontui's own that is not as it should be."""

    def __init__(
        self, directory: Path, log: Path, keeper: KeeperHandle, agent: AgentHandle, faults: Callable[[], Iterable[str]]
    ) -> None:
        self._path = directory / "snapshot.json"
        self._log_dir = log.parent
        self._keeper = keeper
        self._agent = agent
        self._faults = faults

    def describe(self, state: JobState, seen: Inputs) -> protocol.Status:
        pids = protocol.Pids(self._keeper.keeper_pid, os.getpid(), self._agent.pid, self._keeper.pid)
        lines = notices.notices(state, seen, [*self._faults(), _disk_notice(self._log_dir)])
        return status.status(state, seen, host=socket.gethostname(), pids=pids, notices=lines)

    def write(self, told: protocol.Status) -> None:
        with contextlib.suppress(OSError):
            store.write_atomic(self._path, msgspec.json.encode(told))


def _disk_notice(folder: Path) -> str:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    if disk.f_bavail * disk.f_frsize >= DISK_LEAST_B:
        return ""
    # a folder's name may hold bytes that are no text, which no message can
    shown = os.fsencode(folder).decode(errors="replace")
    return f"less than 1 GB is free where run.log lies ({shown})"
