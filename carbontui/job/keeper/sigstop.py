"""SIGSTOP for a program that does not use carbontui: only with `run --sigstop`.

Like a pause it lasts only while its lease is renewed. The kernel does not undo a SIGSTOP when its sender dies, so a
small shell waits at the other end of a pipe and continues the group as soon as this process is gone. Standard library
only: this runs in the keeper.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable

from carbontui.job.keeper import signals
from carbontui.system import proc

GUARD = 'read -r _; kill -s CONT -- "-$0"'


class Freezer:
    """Stops one process group. `why` says why it is not stopped although requested."""

    def __init__(self, log: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._log = log
        self._changed = changed
        self._group: int | None = None
        self._until = 0.0
        self._guard: subprocess.Popen[bytes] | None = None
        self.why = ""

    @property
    def frozen(self) -> bool:
        return self._group is not None

    def hold(self, group: int, lease_s: float, now: float) -> None:
        """Stop `group` (of which the child is the leader), or renew; `now` is monotonic seconds."""
        self._until = now + lease_s
        if self._group == group:
            proc.signal_group(group, signal.SIGSTOP)  # another program may have continued it
            return
        why = _refusal(group) or self._post_guard(group)
        if not why and not proc.signal_group(group, signal.SIGSTOP):
            why = "its process group is gone"
        if why:
            self._dismiss_guard()
        else:
            self._group = group
            self._log(f"group {group} stopped (SIGSTOP)")
        if self._group is not None or why != self.why:
            self.why = why
            self._changed()

    def let_go(self, reason: str) -> None:
        """Continue the group, if it is stopped."""
        self.why = ""
        if self._group is None:
            return
        group, self._group = self._group, None
        proc.signal_group(group, signal.SIGCONT)
        self._dismiss_guard()
        self._log(f"group {group} continued ({reason})")
        self._changed()

    def tick(self, now: float) -> None:
        """Continue the group once the lease has expired."""
        if self._group is not None and now >= self._until:
            self.let_go("no supervisor renewed its lease")

    def prolong(self, slept_s: float) -> None:
        """The keeper slept for so long: a renewal could not be heard."""
        self._until += slept_s

    def due(self) -> float | None:
        """When `tick` is due; None: never."""
        return self._until if self._group is not None else None

    def _post_guard(self, group: int) -> str:
        try:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, str(group)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=signals.unblock,
            )
        except OSError as error:
            return f"no shell could be started to undo it ({error})"
        return ""

    def _dismiss_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            with contextlib.suppress(OSError):
                guard.stdin.close()
            guard.returncode = 0  # its exit is collected with that of every other child


def _refusal(group: int) -> str:
    """Why not to stop `group`: a process that left it would run on and wait for stopped peers that never answer."""
    for pid in proc.descendants(group):
        with contextlib.suppress(OSError):
            if os.getpgid(pid) != group:
                return f"its process {pid} left the process group and would go on"
    return ""
