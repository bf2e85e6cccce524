"""Writes a checkpoint before a signal ends the training, if the script has no handler of its own.

A scheduler's time limit, a preemption and scancel send TERM, and KILL some seconds later. A registered checkpoint
function runs at the next boundary, as for an unload, including its marker, and then the process dies of the signal as
it would have without us. A handler of the script, set before ours or after it, is left alone.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any, Optional

from carbontui.client.pausing import holding  # noqa: F401  # not loaded while a signal is handled
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.wire import DesiredLine

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
BOUNDARY_S = 20.0
"""Without a boundary for this long it dies unsaved: Slurm kills after 30 s by default."""
SAVING_S = 600.0
"""How long the exit request is in force once the signal has arrived: a checkpoint may take minutes."""


class LastSave:
    """One per process. Signals arrive in the main thread; if that is busy in C, the link's thread keeps the time."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._due: Optional[float] = None
        self._number = 0
        self._fd = -1
        gate.die = die

    def arm(self, wake_fd: int) -> None:
        """Handle the signals without a handler. `wake_fd` gets a byte for each, whatever the main thread does."""
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
        """Nothing can be saved any more: restore the signal handlers."""
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
            # every rank accepts it; rank 0's makes all of them save at the same step
            gate.authority.accept(DesiredLine("unload", gate.seen_gen + 1, SAVING_S), gate.clock())
            gate.counter.arm(0)
            gate.cond.notify_all()
        gate.on_change()

    def _begin(self, number: int) -> None:
        if self._due is None:
            self._number, self._due = number, time.monotonic() + BOUNDARY_S

    def received(self, data: bytes) -> None:
        """In the link's thread: handle bytes from `wake_fd`."""
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
    """Die of this signal with its default action; from any thread."""
    import ctypes

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).signal(ctypes.c_int(number), ctypes.c_void_p(0))
    os.kill(os.getpid(), number)
    time.sleep(1.0)  # it is on its way
    os._exit(128 + number)


def arm(gate: Gate) -> None:
    """Handle the interrupt that ends a try, unless the script does so itself."""
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not default or threading.current_thread() is not threading.main_thread():
        return
    named = os.environ.get("CARBONTUI_MARKER", "") + ".end"

    def caught(number: int, frame: Any) -> None:
        if os.path.exists(named) and os.getpid() == os.getpgrp():
            gate.end()
            return
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, caught)
