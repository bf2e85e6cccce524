"""A signal that would end the training: its checkpoint is written first, where the script has no handler of its own.

A scheduler's time limit, a preemption and scancel send TERM, and KILL some seconds later. A checkpoint function that is
known runs at the next boundary, as for an unload, with the marker of one, and then the process dies of the signal as it
would have died without us. A handler of the script's, set before ours or after it, is left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Optional

from carbontui.client.gate import Gate
from carbontui.client.wire import Want

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
BOUNDARY_S = 20.0
"""Without a boundary for so long it dies unsaved: Slurm kills after 30 s by default, and nobody waits for ever."""
SAVING_S = 600.0
"""How long the want to leave is in force once the signal has come: a checkpoint may take minutes."""


class LastSave:
    """One per process. Signals come to the main thread; where that is busy in C, the link's thread keeps the time."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._due: Optional[float] = None
        self._number = 0
        self._fd = -1
        gate.die = die

    def arm(self, wake_fd: int) -> None:
        """Take the signals that nobody handles. `wake_fd` gets a byte for each, whatever the main thread does."""
        if threading.current_thread() is not threading.main_thread():
            return
        mine = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
        for number in mine:
            signal.signal(number, self._caught)
        if mine and self._fd == -1:
            before = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
            if before != -1:  # an event loop's
                signal.set_wakeup_fd(before)
            else:
                self._fd = wake_fd

    def disarm(self) -> None:
        """Nothing can be saved any more: the signals are as they were found."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            if self._ours(number):
                signal.signal(number, signal.SIG_DFL)
        if self._fd != -1:
            held = signal.set_wakeup_fd(-1)
            if held not in (-1, self._fd):
                signal.set_wakeup_fd(held)
            self._fd = -1

    def _ours(self, number: int) -> bool:
        return signal.getsignal(number) == self._caught

    def _caught(self, number: int, frame: object) -> None:
        gate = self._gate
        if gate.dying:
            return
        with gate.cond:
            if not gate.enabled or not gate.can_save():
                die(number)
            gate.dying = number
            self._begin(number)
            # every rank takes it; that of rank 0 makes all of them save at one step
            gate.authority.accept(Want("unload", gate.seen_gen + 1, SAVING_S), gate.clock())
            gate.counter.arm(0)
            gate.cond.notify_all()
        gate.on_change()

    def _begin(self, number: int) -> None:
        if self._due is None:
            self._number, self._due = number, time.monotonic() + BOUNDARY_S

    def heard(self, data: bytes) -> None:
        """In the link's thread: what has come through `wake_fd`."""
        for number in SIGNALS:
            if number in data and self._ours(number):
                self._begin(number)

    def tick(self, now: float) -> Optional[float]:
        """In the link's thread; when to look again (monotonic seconds), or None."""
        if self._due is not None and now >= self._due:
            if self._gate.state not in ("checkpointing", "unloading"):
                die(self._number)
            self._due = now + 1.0
        return self._due


def die(number: int) -> None:
    """Of this signal, as nobody had handled it; from any thread."""
    import ctypes

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).signal(ctypes.c_int(number), ctypes.c_void_p(0))
    os.kill(os.getpid(), number)
    time.sleep(1.0)  # it is on its way
    os._exit(128 + number)
