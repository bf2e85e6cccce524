"""Facts about processes, from /proc: which are alive, whether a pid is still the same one. Standard library only."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator


def read(path: str) -> bytes:
    """The first 4 KB of a single-line /proc file, at half the cost of `open`, which matters when scanning all
    processes. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _stat(pid: int | str) -> list[bytes]:
    """Fields of /proc/<pid>/stat after the name: state, parent, process group, session, ...; empty: no such process."""
    try:
        # the name in parentheses may contain spaces, parentheses and bytes of any encoding
        return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat (clock ticks since boot); None if there is no such process.

    A pid alone may have been reused by another process; pid and start time together are unique.
    """
    fields = _stat(pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def parent(pid: int) -> int:
    """The parent's pid; 0 if there is none."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def same_process(pid: int | None, started: int | None) -> bool:
    """Whether `pid` is alive and is the process that started at `started`."""
    return bool(pid) and started is not None and start_time(int(pid or 0)) == started


def age_s(started: int | None) -> float:
    """Seconds since a process's start time; 0 if not known."""
    if started is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))


def boot_id() -> str:
    """The kernel's boot id: tells whether a pid or a lease was written before a reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def exists(pid: int) -> bool:
    """Whether this pid is visible to us, zombies included."""
    return bool(_stat(pid))


def stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger."""
    return _stat(pid)[:1] in ([b"T"], [b"t"])


def name(pid: int) -> str:
    """A process's own name, for display: it may contain anything, so only printable characters are kept."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as comm:  # noqa: PTH123
            text = comm.read().decode(errors="replace").strip()
    except OSError:
        return "?"
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def variable(pid: int, key: str) -> str:
    """An environment variable that a process was started with; "" if unset or if it belongs to another user."""
    return environment(pid).get(key, "")


def environment(pid: int) -> dict[str, str]:
    """The variables that a process was started with; empty if it belongs to another user."""
    pairs = (entry.decode(errors="replace").partition("=") for entry in _listed(pid, "environ"))
    return {name: value for name, mark, value in pairs if mark}


def arguments(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone."""
    return [argument.decode(errors="replace") for argument in _listed(pid, "cmdline")]


def _listed(pid: int, what: str) -> list[bytes]:
    """Entries of a file of /proc/<pid> that end with a zero byte each."""
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:  # noqa: PTH123
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def mapped_files(pid: int) -> set[str]:
    """Files that a process has mapped, including its libraries; empty if it belongs to another user."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123
            lines = maps.read().splitlines()
    except OSError:
        return set()
    return {line[at:].decode(errors="replace") for line in lines if (at := line.find(b"/")) >= 0}


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, children that it has waited for included."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if len(fields) > 14 else 0.0


def open_core_wait(pid: int) -> int | None:
    """A descriptor for `core_wait_s`, opened once for repeated reads: it stays bound to this process even if its pid is
    reused. None if unavailable."""
    try:
        return os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def core_wait_s(schedstat: int) -> float | None:
    """Seconds that the main thread of a process was runnable and waited for a core, since its start: the second field
    of /proc/<pid>/schedstat, in nanoseconds (Linux, Documentation/scheduler/sched-stats). None once it has ended.
    """
    try:
        return int(os.pread(schedstat, 128, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def folder(pid: int) -> str:
    """The working directory of a process; '' if not visible."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    except OSError:
        return ""


def belongs(pid: int, own: tuple[int, ...]) -> bool:
    """Whether `pid` is one of `own`, in the session of one of them, or descends from one of them."""
    sessions = {fields[3] for one in own if (fields := _stat(one))}
    depth = 0
    while pid > 1 and depth < 64:
        if pid in own:
            return True
        fields = _stat(pid)
        if not fields:
            return False
        if fields[3] in sessions and int(fields[3]) != os.getsid(0):
            return True
        pid, depth = int(fields[1]), depth + 1
    return False


def signal_group(pgid: int, number: int) -> bool:
    """Signal a process group; False when it is gone."""
    try:
        os.killpg(pgid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def _stats() -> Iterator[tuple[int, list[bytes]]]:
    """(pid, fields of /proc/pid/stat after the name: state, parent, process group, ...) of every process."""
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and (fields := _stat(entry)):
            yield int(entry), fields


def group_alive(pgid: int) -> bool:
    """Whether any process of a group still runs; zombies do not count."""
    return any(int(fields[2]) == pgid and fields[0] not in (b"Z", b"X") for _, fields in _stats())


def descendants(pid: int) -> list[int]:
    """Every live descendant of `pid`, in any session, from /proc."""
    children: dict[int, list[int]] = {}
    for other, fields in _stats():
        children.setdefault(int(fields[1]), []).append(other)
    found, ahead = [], [pid]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


STOP_ORDER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
STOP_GAP_S = 30.0
STOP_NOW_GAP_S = 1.0
