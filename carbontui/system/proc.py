"""Facts about processes, from /proc: which are alive, whether a pid is still the same one. Standard library only."""

import contextlib
import os
import pwd
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


def read(path: str) -> bytes:
    """The first 4 KB of a single-line /proc file, at half the cost of `open`, which matters when scanning all
    processes. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


class RunningProcess(NamedTuple):
    """One process: `ticks` of CPU time, those of its ended and collected children included; `start` in clock ticks
    since boot. A pid alone may have been reused by another process; pid and start time together are unique."""

    pid: int
    state: bytes
    parent: int
    group: int
    session: int
    ticks: int
    start: int
    name: bytes

    @property
    def over(self) -> bool:
        """Whether it has ended: a zombie."""
        return self.state in (b"Z", b"X")


def observe(pid: int | str, root: str = "/proc") -> RunningProcess | None:
    """A process, from /proc/<pid>/stat; None if there is none."""
    try:
        # the name in parentheses may contain spaces, parentheses and bytes of any encoding
        head, _, tail = read(f"{root}/{pid}/stat").rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    if len(fields) < 20:
        return None
    parent, group, session = map(int, fields[1:4])
    name, ticks = head.partition(b"(")[2], sum(map(int, fields[11:15]))
    return RunningProcess(int(pid), fields[0], parent, group, session, ticks, int(fields[19]), name)


def processes(root: str = "/proc") -> Iterator[RunningProcess]:
    """Every process."""
    for entry in os.listdir(root):  # noqa: PTH208 - twice as fast
        if entry.isdigit() and (one := observe(entry, root)):
            yield one


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process."""
    one = observe(pid)
    return None if one is None or one.over else one.start


def same_process(pid: int | None, started: int | None) -> bool:
    """Whether `pid` is alive and is the process that started at `started`."""
    return bool(pid) and started is not None and start_time(int(pid or 0)) == started


def age_s(started: int | None) -> float:
    """Seconds since a process's start time; 0 if not known."""
    if started is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))


def asleep_s() -> float:
    """Seconds that this machine has slept since its start."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def boot_id() -> str:
    """The kernel's boot id: tells whether a pid or a lease was written before a reboot."""
    return _line("/proc/sys/kernel/random/boot_id")


def machine_id() -> str:
    """The machine's id, the same at every boot; '' where it has none."""
    return _line("/etc/machine-id")


def _line(path: str) -> str:
    with contextlib.suppress(OSError):
        return read(path).decode(errors="replace").strip()
    return ""


def pid_namespace() -> int:
    """The inode of our pid namespace: only within one does a pid mean the same; 0 if /proc shows another one."""
    with contextlib.suppress(OSError):
        ours = os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115
        return os.stat("/proc/self/ns/pid").st_ino if ours else 0  # noqa: PTH116
    return 0


def is_capable(bit: int) -> bool:
    """Whether this process has a capability (linux/capability.h), root or not."""
    for line in read("/proc/self/status").splitlines():
        if line.startswith(b"CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False


JOB_ENDED = b"job ended"


def tell_job_ended() -> None:
    """Name this keeper so that those who count the machine's jobs, of any user, no longer count its own."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_bytes(JOB_ENDED)


def exists(pid: int) -> bool:
    """Whether this pid is visible to us, zombies included."""
    return observe(pid) is not None


def stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger."""
    one = observe(pid)
    return one is not None and one.state in (b"T", b"t")


def name(pid: int) -> str:
    """A process's own name, for display: it may contain anything, so only printable characters are kept."""
    return "".join(letter if letter.isprintable() else "?" for letter in _line(f"/proc/{pid}/comm")) or "?"


def owner(pid: int) -> str:
    """The user it runs as, by number where that has no name here; '?' for one that is gone."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "?"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def variable(pid: int, key: str) -> str:
    """An environment variable that a process was started with; "" if unset or if it belongs to another user."""
    return environment(pid).get(key, "")


def environment(pid: int) -> dict[str, str]:
    """The variables that a process was started with; empty if it belongs to another user."""
    pairs = (entry.decode(errors="replace").partition("=") for entry in _listed(pid, "environ"))
    return {name: value for name, mark, value in pairs if mark}


def arguments(pid: int, root: str = "/proc") -> list[str]:
    """The command line of a process; empty if it is gone."""
    return [argument.decode(errors="replace") for argument in _listed(pid, "cmdline", root)]


def option(words: list[str], name: str) -> str:
    """The word after an option on a command line; "" if absent."""
    return words[words.index(name) + 1] if name in words[:-1] else ""


def _listed(pid: int, what: str, root: str = "/proc") -> list[bytes]:
    """Entries of a file of /proc/<pid> that end with a zero byte each."""
    try:
        with open(f"{root}/{pid}/{what}", "rb") as file:  # noqa: PTH123
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
    one = observe(pid)
    return one.ticks / os.sysconf("SC_CLK_TCK") if one else 0.0


def open_core_wait(pid: int) -> int | None:
    """A descriptor for `core_wait_s`, opened once for repeated reads: it stays bound to this process even if its pid is
    reused. None if unavailable."""
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    return None


def core_wait_s(schedstat: int) -> float | None:
    """Seconds that the main thread of a process was runnable and waited for a core, since its start: the second field
    of /proc/<pid>/schedstat, in nanoseconds (Linux, Documentation/scheduler/sched-stats). None once it has ended.
    """
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(os.pread(schedstat, 128, 0).split()[1]) / 1e9
    return None


def folder(pid: int) -> str:
    """The working directory of a process; '' if not visible."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    return ""


def holder(path: str) -> tuple[int, int] | None:
    """Pid and start time of the oldest process that has this file open; None: none whose files we may see."""
    try:
        wanted = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    for one in sorted(processes(), key=lambda each: each.start):
        try:
            entries = [os.stat(f"/proc/{one.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{one.pid}/fd")]  # noqa: PTH116, PTH208
        except OSError:
            continue
        if any(os.path.samestat(entry, wanted) for entry in entries):
            return one.pid, one.start
    return None


def ancestry(pid: int) -> Iterator[RunningProcess]:
    """A process, its parent, and so on; without init."""
    for _ in range(64):
        one = observe(pid) if pid > 1 else None
        if one is None:
            return
        yield one
        pid = one.parent


def belongs(pid: int, own: tuple[int, ...]) -> bool:
    """Whether `pid` is one of `own`, in the session of one of them, or descends from one of them."""
    sessions = {one.session for each in own if (one := observe(each))} - {os.getsid(0)}
    return pid in own or any(one.pid in own or one.session in sessions for one in ancestry(pid))


def signal_group(pgid: int, number: int) -> bool:
    """Signal a process group, or the process of that pid where it leads none (a job that began inside it); False when
    it is gone."""
    try:
        leads = os.getpgid(pgid) == pgid
    except OSError:
        leads = True
    try:
        (os.killpg if leads else os.kill)(pgid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def group_alive(pgid: int) -> bool:
    """Whether any process of a group still runs; zombies do not count."""
    return any(one.group == pgid and not one.over for one in processes())


def awaited(over: Callable[[], bool], within_s: float) -> bool:
    """Wait until something is over, such as a process; whether it is so within this time."""
    due = time.monotonic() + within_s
    while not (it_is := over()) and time.monotonic() < due:
        time.sleep(0.05)
    return it_is


def descendants(pid: int) -> list[int]:
    """Every live descendant of `pid`, in any session."""
    return below(processes(), [pid])[1:]


def below(listed: Iterable[RunningProcess], tops: Iterable[int]) -> list[int]:
    """These pids, then all their descendants among those listed."""
    children: dict[int, list[int]] = {}
    for one in listed:
        children.setdefault(one.parent, []).append(one.pid)
    found = list(tops)
    known = set(found)
    for pid in found:  # it grows meanwhile
        new = [child for child in children.get(pid, ()) if child not in known]
        known.update(new)
        found += new
    return found


STOP_ORDER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
STOP_GAP_S = 30.0
STOP_NOW_GAP_S = 1.0
