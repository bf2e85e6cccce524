"""Signals from outside: none of them is an order to the keeper, and the command gets each exactly once.

A scheduler that ends or warns a job may signal every process of it, the command among them: passed on, its handler
would run twice. Or it signals only the process it started, `carbontui run`: not passed on, it would not run at all.
Slurm does either, by its settings and by how it is asked. So `run` asks the keeper, which knows: a signal that the
keeper itself has had from the same sender went to all, and to the command as well.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from carbontui import proc

PASSED_ON = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
BLOCKED = PASSED_ON | {signal.SIGHUP}
"""A hang-up is of a session that the job outlives."""
TO_ALL = frozenset({"slurmstepd", "systemd"})
"""Names of processes that reach the keeper only by signalling all of a job at once: Slurm's step daemon, and a service
manager that stops a unit."""
PATIENCE_S = 0.5
"""A signal to all reaches the keeper within less than this of `run`."""
MEMORY_S = 30.0
"""On a busy machine `run` may be this late to say what it got."""
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


class Caught(NamedTuple):
    """A signal, and who sent it: pid 0 is the kernel (a key at the terminal); one that is gone has the name '?'."""

    number: int
    pid: int
    sender: str = "?"


def taken() -> list[Caught]:
    """All that have come in."""
    found = []
    while (info := signal.sigtimedwait(BLOCKED, 0)) is not None:
        name = proc.name(info.si_pid) if info.si_pid else "kernel"
        found.append(Caught(info.si_signo, info.si_pid, name))
    return found


class SignalRelay:
    """Gives the command what has not reached it yet, by `deliver`. Times are monotonic seconds."""

    def __init__(self, deliver: Callable[[Caught], None]) -> None:
        self._deliver = deliver
        self._own: list[tuple[Caught, float]] = []
        self._told: list[tuple[Caught, float]] = []

    def caught(self, found: Caught, now: float) -> None:
        """The keeper itself got a signal: the command has it too if it went to all."""
        if found.number not in PASSED_ON:
            return
        self._own.append((found, now))
        if found.sender not in TO_ALL:
            self._deliver(found)

    def told(self, number: int, pid: int, now: float) -> None:
        """`run` got a signal from process `pid`; whether the keeper got it too shows in a moment."""
        if number in PASSED_ON:
            self._told.append((Caught(number, pid, "carbontui run"), now + PATIENCE_S))

    def tick(self, now: float) -> None:
        self._own = [(found, at) for found, at in self._own if now - at < MEMORY_S]
        due = [found for found, at in self._told if now >= at]
        self._told = [(found, at) for found, at in self._told if now < at]
        for found in due:
            same = [one for one in self._own if (one[0].number, one[0].pid) == (found.number, found.pid)]
            if same:
                self._own.remove(same[0])  # sent again, it will be caught again
            else:
                self._deliver(found)

    def due(self) -> float | None:
        """When `tick` has something to do; None: not before another signal."""
        return min((at for _, at in self._told), default=None)
