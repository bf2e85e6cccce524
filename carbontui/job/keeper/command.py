"""Starts the user's command as it would run without carbontui."""

import contextlib
import errno
import fcntl
import os
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carbontui.job.keeper import job_files, signals
from carbontui.system import isolation, life, proc

FIRST_COUNT = f"{isolation.ROOT}/carbontui/power/backends/first_count.py"


UNDO_S = 2.0


class CannotStart(Exception):
    """The command could not be started; `code` is the exit code a shell would give."""

    def __init__(self, code: int) -> None:
        self.code = code


def count_first(job_dir: str) -> None:
    """Have the boards' energy counters at the start of the training read into first-count.json, without waiting for it:
    the agent starts a second later."""
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-I", "-S", FIRST_COUNT, f"{job_dir}/first-count.json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=signals.unblock,
        )


def start(
    spec: Mapping[str, Any],
    argv: Sequence[str],
    environment: Mapping[str, str],
    launch_env: dict[str, Any],
    log: Callable[[str], None],
    *,
    again: bool,
) -> subprocess.Popen[bytes]:
    """Start it in its own session, output to run.log, stderr to run.err where it is apart, with the descriptors that
    `run` was handed. Raises CannotStart, with the reason among its errors.
    """

    def as_the_user_has_it() -> None:
        """Between fork and exec: undo the keeper's own process settings."""
        signals.unblock()
        isolation.give(launch_env)

    lock: int | None = None

    def started(words: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            cwd=spec["cwd"],
            env=environment,
            stdin=stdin,
            stdout=output,
            stderr=errors,
            pass_fds=(*spec["input"]["others"], *(() if lock is None else (lock,))),
            start_new_session=True,
            preexec_fn=as_the_user_has_it,
        )

    output = _open_log(spec["log"], log)
    errors = _open_log(spec["err"], log) if spec["err"] else os.dup(output)
    stdin = open_input(spec, log, again=again)
    with contextlib.suppress(OSError):
        lock = life.locked(f"{spec['job_dir']}/{life.TRAINING_LOCK}")
    try:
        try:
            return started(argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # a script without its first line: a shell's own affair
            script = shutil.which(argv[0], path=environment.get("PATH")) or argv[0]
            return started(["/bin/sh", script, *argv[1:]])
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        # the folder may have been removed since the first start, or be one that only its shell was let into
        what = argv[0] if os.access(spec["cwd"], os.X_OK) else f"the folder {spec['cwd']}"
        with contextlib.suppress(OSError):
            os.write(errors, f"carbontui: {what}: {error.strerror}\n".encode(errors="replace"))
        raise CannotStart(127 if missing else 126) from None
    finally:
        for fd in (output, errors, stdin, *(() if lock is None else (lock,))):
            os.close(fd)
        close_pipes(spec)


def close_pipes(spec: Mapping[str, Any]) -> None:
    """The command has them: who writes into them is to see when it ends."""
    given, once = spec["input"], spec["input"]["closes"]
    for fd in once:
        os.close(fd)
    given |= {"closes": (), "others": [fd for fd in given["others"] if fd not in once]}
    given["stdin"] = None if given["stdin"] in once else given["stdin"]


class BegunChild:
    """The command that `run` began before this process became its keeper."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None


def undo(pid: int, directory: str) -> str:
    """End a command that nobody keeps, and remove what there is of its job."""
    for number, within_s in ((signal.SIGTERM, UNDO_S), (signal.SIGKILL, 0.0)):
        proc.signal_group(pid, number)
        proc.awaited(lambda: not proc.group_alive(pid), within_s)
    shutil.rmtree(directory, ignore_errors=True)
    return "`run` has ended at its start: so has its command"


def open_input(spec: Mapping[str, Any], log: Callable[[str], None], *, again: bool) -> int:
    """A descriptor of the command's standard input: the one that `run` was handed; a file, for a later start, from
    where it began; a terminal at end of file where `run` was on one, else /dev/null."""
    given, path = spec["input"]["stdin"], spec["input"]["path"]
    try:
        if given is not None and not (again and path):
            return os.dup(given)
        if path:
            stdin = os.open(path if given is None else f"/proc/self/fd/{given}", os.O_RDONLY)
            os.lseek(stdin, spec["input"]["begin"], os.SEEK_SET)
            say(spec, f"standard input ({path}) is read again from its start")
            return stdin
    except OSError as error:
        why = f"standard input ({path or 'a pipe'}) cannot be read again: {error.strerror}"
        log(why)
        say(spec, why)
    size = spec["input"].get("terminal")
    return _terminal(spec["input"], *size) if size else os.open(os.devnull, os.O_RDONLY)


def _terminal(given: dict[str, Any], rows: int, columns: int) -> int:
    """A terminal of this size, not the controlling one, at which every read is at end of file. Its other side stays
    open as long as we live: without it the size cannot be asked."""
    if (last := given.pop("other_side", None)) is not None:
        os.close(last)
    given["other_side"], stdin = os.openpty()
    fcntl.ioctl(stdin, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    modes = termios.tcgetattr(stdin)
    modes[3] &= ~(termios.ICANON | termios.ECHO)
    modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0
    termios.tcsetattr(stdin, termios.TCSANOW, modes)
    return stdin


def say(spec: Mapping[str, Any], text: str) -> None:
    """Append a line of ours to the command's errors; ignored if it cannot be written."""
    with contextlib.suppress(OSError):
        output = os.open(spec["err"] or spec["log"], os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(output).st_size
            begun = size > 0 and os.pread(output, 1, size - 1) != b"\n"
            os.write(output, b"\n" * begun + f"carbontui: {text}\n".encode())
        finally:
            os.close(output)


def _open_log(path: str, log: Callable[[str], None]) -> int:
    """A descriptor of run.log; /dev/null if it cannot be opened (folder gone, no inode left): training matters more."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        log(f"run.log cannot be opened, the output of this start is lost: {error}")
        return os.open(os.devnull, os.O_WRONLY)


UNKNOWN = 1000
"""In place of an exit code: no process ends with it."""
_GET_INFO, _EXIT = 0xC040FF0B, 1 << 3
"""PIDFD_GET_INFO of a struct pidfd_info of 64 bytes, and its PIDFD_INFO_EXIT (linux/pidfd.h, Linux 6.15)."""


class Adopted:
    """The process with this pid and start time; the loop of `selector` wakes when it ends."""

    def __init__(self, pid: int, start: int, directory: str, selector: selectors.BaseSelector) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._start = start
        self._marker = f"{directory}/ended-{pid}.json"
        self._selector = selector
        self._pidfd: int | None = None
        with contextlib.suppress(OSError, AttributeError):  # without it, its end is noticed at the next tick
            self._pidfd = os.pidfd_open(pid)
            selector.register(self._pidfd, selectors.EVENT_READ, lambda: None)

    def ended(self) -> bool:
        """Whether it has ended, told once; `returncode` is its exit code then, negative: a signal, or UNKNOWN. So has a
        part of a script whose process lives on."""
        if self.returncode is not None:
            return False
        if proc.same_process(self.pid, self._start) and job_files.read_json(self._marker).get("lives") is not True:
            return False
        code = self._of_zombie()
        if code is None and self._pidfd is not None:
            code = _of_collected(self._pidfd)
        self.returncode = self._of_marker() if code is None else code
        if self._pidfd is not None:
            self._selector.unregister(self._pidfd)
            os.close(self._pidfd)
        return True

    def _of_zombie(self) -> int | None:
        """While no parent has collected it: from /proc, which shows it for processes of this user."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            one = proc.observe(self.pid)
            if one is not None and one.over and one.start == self._start:
                ours = os.stat(f"/proc/{self.pid}").st_uid == os.geteuid()  # noqa: PTH116
                status = int(proc.read(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()[49])
                return os.waitstatus_to_exitcode(status) if ours else None
        return None

    def _of_marker(self) -> int:
        """What its client left when it ended."""
        left = job_files.read_json(self._marker)
        with contextlib.suppress(OSError):
            os.unlink(self._marker)  # noqa: PTH108
        code = left.get("code")
        return code if left.get("start_time") == self._start and type(code) is int else UNKNOWN


def _of_collected(pidfd: int) -> int | None:
    """After a parent has collected it: from the kernel, where that is new enough."""
    info = bytearray(64)
    struct.pack_into("=Q", info, 0, _EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    (mask,), (status,) = struct.unpack_from("=Q", info, 0), struct.unpack_from("=i", info, 60)
    return os.waitstatus_to_exitcode(status) if mask & _EXIT else None


def out_of_memory(group: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> tuple[int, int]:
    """How many processes of our cgroup were killed out of memory so far, and its limit in bytes (0: none)."""
    kills, limits = 0, [NO_LIMIT_B]
    for row in _text(group).splitlines():
        number, controllers, path = row.split(":", 2)
        if {"memory"} <= {*controllers.split(",")}:
            root, counts, limit = f"{mount}/memory", "memory.oom_control", "memory.limit_in_bytes"
        elif number == "0":
            root, counts, limit = mount, "memory.events", "memory.max"
        else:
            continue
        folder = root + path.rstrip("/")
        if not os.path.isdir(folder):  # noqa: PTH112 - of the host, seen from a container
            folder = root
        words = _text(f"{folder}/{counts}").split()
        kills += sum(int(count) for name, count in zip(words[::2], words[1::2], strict=False) if name == "oom_kill")
        while len(folder) >= len(root):
            text = _text(f"{folder}/{limit}").strip()
            limits += [int(text)] if text.isdecimal() else []
            folder = folder.rpartition("/")[0]
    return kills, min(limits) % NO_LIMIT_B


KILLED = ((None, 9), (137, None))
"""Exit code and signal of a command that was killed, or whose shell says so."""
NO_LIMIT_B = 1 << 60
"""A limit from here on is none."""


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:  # noqa: PTH123
        return file.read()
    return ""


def exit_status(code: int) -> tuple[int | None, int | None]:
    """Exit code and signal of a return code."""
    return (None if code < 0 or code == UNKNOWN else code), (-code if code < 0 else None)
