"""Signals from outside: none of them is an order to the keeper, and the command gets each exactly once.

A scheduler that ends or warns a job signals every process of it, the command among them: passed on, its handler would
run twice. So who sent a signal decides, which only a signal that is blocked and waited for tells.
"""

from __future__ import annotations

import ctypes
import os
import signal

from carbontui import proc

PASSED_ON = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
BLOCKED = PASSED_ON | {signal.SIGHUP}
"""A hang-up is of a session that the job outlives."""
TO_ALL = frozenset({"slurmstepd", "systemd"})
"""Names of processes that signal all of a job at once: Slurm's step daemon, and a service manager that stops a unit."""
_SIGSET_B = 128
_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK


def block() -> int | None:
    """From now on signals wait for `taken`; a descriptor that is readable while one does (None: look now and then)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED)
    mask = bytearray(_SIGSET_B)
    for number in BLOCKED:
        mask[(number - 1) // 8] |= 1 << (number - 1) % 8
    try:
        fd = ctypes.CDLL(None, use_errno=True).signalfd(-1, bytes(mask), _CLOEXEC_NONBLOCK)
    except (OSError, AttributeError):
        return None
    return fd if fd >= 0 else None


def unblock() -> None:
    """Between fork and exec of whatever the keeper starts."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def taken() -> list[tuple[int, str]]:
    """(signal, name of its sender) of all that have come in; a sender that is gone by now has the name '?'."""
    found = []
    while (info := signal.sigtimedwait(BLOCKED, 0)) is not None:
        found.append((info.si_signo, proc.name(info.si_pid) if info.si_pid else "kernel"))
    return found


def to_pass_on(number: int, sender: str) -> bool:
    """Whether the command has yet to get this signal."""
    return number in PASSED_ON and sender not in TO_ALL
