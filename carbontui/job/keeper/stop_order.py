"""The stop order: INT, then TERM, then KILL, to the whole process group of the command."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from carbontui.system import proc


class StopOrder:
    """Does nothing until `begin`; then `advance` sends one signal after another."""

    def __init__(self, log: Callable[[str], None], quiet: str = "") -> None:
        self._log = log
        self._quiet = quiet
        """This file exists while the order is the end of a try, of which the client leaves no traceback."""
        self.left: list[int] = []
        self.next = 0.0
        """Monotonic time of the next signal, or of giving up."""
        self._gap_s = proc.STOP_GAP_S

    @property
    def under_way(self) -> bool:
        return bool(self.left)

    def begin(self, now: float, *, hurry: bool, quiet: bool = False) -> bool:
        """Start it, or speed it up; False if it was under way already. `now` is monotonic seconds."""
        if quiet:
            with contextlib.suppress(OSError):  # then it is interrupted with its traceback
                os.close(os.open(self._quiet, os.O_WRONLY | os.O_CREAT, 0o600))
        self._gap_s = proc.STOP_NOW_GAP_S if hurry else proc.STOP_GAP_S
        if self.left:
            if hurry:
                self.next = min(self.next, now + self._gap_s)
            return False
        self.left = [int(number) for number in proc.STOP_ORDER]
        self.next = now
        return True

    def advance(self, group: int, now: float) -> None:
        """Send the next signal if it is due."""
        if not self.left or now < self.next:
            return
        number = self.left.pop(0)
        self._log(f"signal {number} to the child's group {group}")
        # torchrun's ranks have sessions of their own: the final KILL includes every descendant of the child
        below = proc.descendants(group) if number == signal.SIGKILL else []
        proc.signal_group(group, number)
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if number != signal.SIGKILL:
            proc.signal_group(group, signal.SIGCONT)  # a stopped process cannot obey
        self.next = now + self._gap_s

    def end(self) -> None:
        """All processes are gone, or none can be reached any more."""
        self.left = []
        if self._quiet:
            with contextlib.suppress(OSError):
                os.unlink(self._quiet)  # noqa: PTH108
