"""Facts about this machine and its processes, read from /proc: boot id, start times, sessions, parents."""

from __future__ import annotations

import os
from pathlib import Path


def boot_id() -> str:
    """Changes with every boot; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    # the name in parentheses may hold spaces and parentheses of its own
    return text[text.rfind(")") + 2 :].split()


def start_time(pid: int) -> int:
    """Clock ticks since boot at which the process started: with the pid it names a process for good. 0: none."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def alive(pid: int, started: int) -> bool:
    """Whether that very process still lives; a zombie does not."""
    fields = _stat(pid)
    return len(fields) > 19 and fields[0] != "Z" and int(fields[19]) == started


def exists(pid: int) -> bool:
    return bool(_stat(pid))


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def belongs(pid: int, own: tuple[int, ...]) -> bool:
    """Whether `pid` is one of `own`, in the session of one of them, or descends from one of them."""
    sessions = {fields[3] for one in own if (fields := _stat(one))}
    seen = 0
    while pid > 1 and seen < 64:
        if pid in own:
            return True
        fields = _stat(pid)
        if not fields:
            return False
        if fields[3] in sessions and fields[3] != str(os.getsid(0)):
            return True
        pid, seen = int(fields[1]), seen + 1
    return False
