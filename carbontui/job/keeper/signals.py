"""External signals: none of them is an order to the keeper, and the command gets each exactly once.

A scheduler that ends or warns a job may signal all its processes including the command: if passed on, its handler
would run twice. Or it signals only the process it started, `carbontui run`: if not passed on, it would not run at all.
Slurm does either, depending on settings and options. So `run` reports to the keeper, which can tell: a signal that the
keeper itself received from the same sender went to all processes, including the command.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable
from typing import NamedTuple

from carbontui.system import proc

PASSED_ON = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
BLOCKED = PASSED_ON | {signal.SIGHUP}
"""A hang-up concerns the login session, which the job outlives."""
TO_ALL = frozenset({"slurmstepd", "systemd"})
"""Processes whose signals reach the keeper only when sent to all processes of a job: Slurm's step daemon, and a
service manager that stops a unit."""
PATIENCE_S = 0.5
"""A signal sent to all reaches the keeper and `run` within this of each other."""
MEMORY_S = 30.0
"""On a busy machine `run` may report its signal this late."""
_SIGSET_B = 128
_PR_SET_CHILD_SUBREAPER = 36
_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK


def block() -> int | None:
    """From now on signals are queued for `taken`; returns a descriptor readable while one is (None: poll instead)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED)
    mask = sum(1 << number - 1 for number in BLOCKED).to_bytes(_SIGSET_B, "little")
    try:
        fd = ctypes.CDLL(None, use_errno=True).signalfd(-1, mask, _CLOEXEC_NONBLOCK)
    except (OSError, AttributeError):
        return None
    return fd if fd >= 0 else None


def unblock() -> None:
    """Restore the signal mask between fork and exec of any process the keeper starts."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Caught(NamedTuple):
    """A signal and its sender: pid 0 is the kernel (a key at the terminal); a sender that is gone has the name '?'."""

    number: int
    pid: int
    sender: str = "?"


def taken() -> list[Caught]:
    """All queued signals."""
    found = []
    while (info := signal.sigtimedwait(BLOCKED, 0)) is not None:
        name = proc.name(info.si_pid) if info.si_pid else "kernel"
        found.append(Caught(info.si_signo, info.si_pid, name))
    return found


def take_orphans() -> None:
    """Become the parent of every descendant that loses its own (PR_SET_CHILD_SUBREAPER), as far as permitted."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class SignalRelay:
    """Passes signals to the command that have not reached it yet, through `deliver`. Times are monotonic seconds."""

    def __init__(self, deliver: Callable[[Caught], None]) -> None:
        self._deliver = deliver
        self._own: list[tuple[Caught, float]] = []
        self._pending: list[tuple[Caught, float]] = []

    def caught(self, caught: Caught, now: float) -> None:
        """The keeper itself received a signal: so did the command, if it was sent to all."""
        if caught.number not in PASSED_ON:
            return
        self._own.append((caught, now))
        if caught.sender not in TO_ALL:
            self._deliver(caught)

    def relayed(self, number: int, pid: int, now: float) -> None:
        """`run` received a signal from process `pid`; whether the keeper received it too is known in a moment."""
        if number in PASSED_ON:
            self._pending.append((Caught(number, pid, "carbontui run"), now + PATIENCE_S))

    def tick(self, now: float) -> None:
        self._own = [(found, at) for found, at in self._own if now - at < MEMORY_S]
        due = [found for found, at in self._pending if now >= at]
        self._pending = [(found, at) for found, at in self._pending if now < at]
        for found in due:
            same = [one for one in self._own if (one[0].number, one[0].pid) == (found.number, found.pid)]
            if same:
                self._own.remove(same[0])  # if sent again, it will be caught again
            else:
                self._deliver(found)

    def due(self) -> float | None:
        """When `tick` is due; None: not before another signal."""
        return min((at for _, at in self._pending), default=None)


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

    def extend(self, slept_s: float) -> None:
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
                preexec_fn=unblock,
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
