"""Whether a job lives: the one test that every verb asks. Standard library only, for the keeper and the status line.

Three proofs of life, any of which suffices: keeper or training holds its lock; keeper or supervisor answers; one of its
processes, by pid and start time, is there. Its death is proven as well: none of them where all would be visible, or
another boot of the same machine, or both locks free. Otherwise it is not known, and nothing of the job may be removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import socket
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from carbontui.system import proc

LOCK = "keeper.lock"
"""Held by the keeper as long as it lives."""
TRAINING_LOCK = "training.lock"
"""Held by the training, which inherits it: seen from every container that sees the job's folder."""
Known = Literal["alive", "dead", "unknown"]
Unseen = Literal["", "host", "namespace", "damaged"]
"""What hides a job's processes: another machine, another pid namespace, a record that cannot be read; '' nothing."""


class HostIdentity(NamedTuple):
    """Where processes run, as job.json has it."""

    host: str
    boot: str
    machine: str = ""
    """/etc/machine-id; '' where there is none."""
    pidns: int = 0
    """Inode of the pid namespace; 0 where /proc shows another one."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> HostIdentity:
        """As job.json has it. Raises KeyError or ValueError for a damaged one."""
        machine, pidns = record.get("machine"), record.get("pidns")
        return cls(str(record["host"]), str(record["boot"]), str(machine or ""), int(pidns or 0))

    def unseen(self, here: HostIdentity) -> Unseen:
        """What hides processes of this place from `here`. The same boot is the same kernel, whatever its hostname."""
        if self.boot == here.boot:
            return "namespace" if self.pidns and self.pidns != here.pidns else ""
        # machines cloned from one image share the id: the name must agree, too
        other = self.machine and here.machine and self.machine != here.machine
        return "host" if other or self.host != here.host else ""


@cache
def here() -> HostIdentity:
    """Where this process runs; a hostname that changes meanwhile makes no difference."""
    return HostIdentity(socket.gethostname(), proc.boot_id(), proc.machine_id(), proc.pid_namespace())


class Life(NamedTuple):
    """`unseen`: what hides processes of a job that lives, or of which it is not known."""

    state: Known
    unseen: Unseen = ""


def judge(
    directory: Path,
    place: HostIdentity | None,
    processes: Iterable[tuple[int, int] | None],
    sockets: Iterable[Path | str | None],
    *,
    ended: bool,
) -> Life:
    """Of the job in `directory`: where it runs (None: its record is damaged), its processes (pid, start time), the
    sockets of supervisor and keeper; `ended`: the keeper has written its exit status."""
    now = here()
    unseen = "damaged" if place is None else place.unseen(now)
    if unseen == "host":
        return Life("unknown", unseen)
    locked, trains = is_locked(directory / LOCK), False if ended else is_locked(directory / TRAINING_LOCK)
    visible = place is not None and not unseen and place.boot == now.boot
    there = visible and any(proc.same_process(*process) for process in processes if process)
    if locked or trains or there or any(map(answers, sockets)):
        return Life("alive", unseen)
    return Life("unknown", unseen) if unseen and not (locked is trains is False) else Life("dead")


POLL_S = 1.0
"""How long others may look at a lock, one after another."""
PAUSE_S = 0.005


def locked(path: str | Path, within_s: float = POLL_S) -> int | None:
    """A descriptor that holds the lock as long as a process has it open; None if another one holds the lock for so
    long. Whoever only looks has it for a moment.

    Raises OSError if locking is not possible.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    due = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() >= due:
                os.close(fd)
                return None
        except OSError:
            os.close(fd)
            raise
        time.sleep(PAUSE_S)


OWNER = "keeper."
"""And a number: links to nowhere that name each keeper of the job by boot, pid, start time and pid namespace."""


def _lives(link: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        boot, pid, started, pidns = os.readlink(link).split()  # noqa: PTH115
        return (boot, int(pidns)) == (here().boot, here().pidns) and proc.same_process(int(pid), int(started))
    return False


def owned(directory: str | Path) -> bool:
    """Whether a keeper that is named there lives: known also where locks have no effect."""
    return any(_lives(f"{directory}/{name}") for name in os.listdir(directory) if name.startswith(OWNER))  # noqa: PTH208


def own(directory: str) -> bool:
    """Name this process as the job's keeper, behind those that have ended: no name is made twice, so of several at once
    one succeeds. False where another one lives. Raises OSError where links cannot be made."""
    us = f"{here().boot} {os.getpid()} {proc.start_time(os.getpid())} {here().pidns}"
    for number in itertools.count(1):
        link = f"{directory}/{OWNER}{number}"
        try:
            os.symlink(us, link)  # noqa: PTH211
            return True
        except FileExistsError:
            if _lives(link):
                break
    return False


def is_locked(path: Path) -> bool | None:
    """Whether another process holds this lock; None: there is no such file, or the file system has no locks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def answers(path: Path | str | None) -> bool:
    """Whether a process listens at this socket; one that hangs does."""
    if not path or not os.fspath(path):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:  # so many wait that none is accepted
            return True
        except (OSError, ValueError):
            return False
    return True
