"""A training that an earlier keeper started: no child of ours, so it is watched by its pid."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import struct

from carbontui.job.keeper import files
from carbontui.system import proc

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
        """Whether it has ended, told once; `returncode` is its exit code then, negative: a signal, or UNKNOWN."""
        if self.returncode is not None or proc.same_process(self.pid, self._start):
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
            one = proc.look(self.pid)
            if one is not None and one.over and one.start == self._start:
                ours = os.stat(f"/proc/{self.pid}").st_uid == os.geteuid()  # noqa: PTH116
                status = int(proc.read(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()[49])
                return os.waitstatus_to_exitcode(status) if ours else None
        return None

    def _of_marker(self) -> int:
        """What its client left when it ended."""
        left = files.read_json(self._marker)
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


def exit_status(code: int) -> tuple[int | None, int | None]:
    """Exit code and signal of a return code."""
    return (None if code < 0 or code == UNKNOWN else code), (-code if code < 0 else None)
