"""Agents that outlived their supervisor: they exit by themselves within milliseconds unless stopped or hung."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from carbontui.system import proc

MODULE = "carbontui.power.agent"
GRACE_S = 5.0
"""How long an agent may take to restore limits and exit."""


def owner() -> str:
    """This process's pid and start time, as passed to its agent."""
    return f"{os.getpid()}:{proc.start_time(os.getpid())}"


def orphans(job: str) -> list[int]:
    """Pids of this job's agents whose supervisor is gone. Agents of older versions name none and are left alone."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        told = proc.arguments(int(entry.name))
        if MODULE not in told or _after(told, "--job") != job:
            continue
        pid, _, started = _after(told, "--owner").partition(":")
        if pid.isdigit() and started.isdigit() and not proc.same_process(int(pid), int(started)):
            found.append(int(entry.name))
    return found


def end(job: str) -> list[int]:
    """Kill this job's orphans and return their pids. Their limits are in their leases."""
    found = orphans(job)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return found


def _after(told: list[str], option: str) -> str:
    return told[told.index(option) + 1] if option in told[:-1] else ""
