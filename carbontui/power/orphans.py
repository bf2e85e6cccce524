"""Agents that outlived their supervisor: one leaves by itself within milliseconds unless it is stopped or hangs."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from carbontui import proc

MODULE = "carbontui.power.agent"
GRACE_S = 5.0
"""How long one may take to give limits back and leave."""


def owner() -> str:
    """This process, as an agent of it is told: pid and start time."""
    return f"{os.getpid()}:{proc.start_time(os.getpid())}"


def orphans(job: str) -> list[int]:
    """Pids of this job's agents whose supervisor is gone. An agent of an older version names none: it is left alone."""
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
    """Kill this job's orphans; their pids. Limits that they held are in their leases."""
    found = orphans(job)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return found


def _after(told: list[str], option: str) -> str:
    return told[told.index(option) + 1] if option in told[:-1] else ""
