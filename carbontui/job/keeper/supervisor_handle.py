"""The keeper's handle of its supervisor, and of the helper of a move: starts it, listens to it, replaces one that died
or hangs.

Standard library only, like the keeper itself. A supervisor is dead on EOF of the socket pair, and hung when silent for
6 s (then it is killed first); a fresh one may take longer to its first heartbeat, since a busy machine loads it slowly.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from carbontui.job.keeper import signals
from carbontui.job.keeper.messages import ChildFacts, Order, encode
from carbontui.system import isolation, proc

LONGEST_S = 3.0
"""Twice the longest that the loop waits; more between two turns is a sleep."""

RENEWED_S = 5.0
"""A living supervisor renews what it has asked for within this."""
TURNS = 300
"""How often each peer is heard before the keeper goes on: more than a socket holds of short messages."""


class OwnSleep:
    """Asked at every turn of the loop; times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._polled = now

    def since_last(self, now: float) -> float:
        """The seconds since the last turn if that was too long ago, else 0."""
        gap_s, self._polled = now - self._polled, now
        return gap_s if gap_s > LONGEST_S else 0.0


SILENT_S = 6.0
FIRST_WORD_S = 30.0
DOUBLED_MOST = 5
"""Each that never said a word leaves its successor twice the time for its first one: a machine may be that slow."""
BACKOFF_MAX_S = 60.0
SHORT_LIFE_S = 30.0
BURIAL_S = 1.0
IN_DOUBT_S = 60.0
"""A supervisor that lived this long did not die of stored settings."""


class SupervisorHandle:
    """Runs at most one of `module`. `take` gets each of its lines, `changed` is called when one has started."""

    def __init__(
        self,
        job_dir: str,
        selector: selectors.BaseSelector,
        log: Callable[[str], None],
        *,
        take: Callable[[bytes], None],
        changed: Callable[[], None],
        module: str = "carbontui.job.supervisor",
    ) -> None:
        self._dir = job_dir
        self._selector = selector
        self._log = log
        self._take = take
        self._changed = changed
        self._module, self._name = module, module.rpartition(".")[2]
        self.process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._inbox = b""
        self._received: float | None = None
        self._born = 0.0
        self._backoff_s = 0.0
        self._deaths = 0
        self._in_doubt = 0
        """How many in a row soon hung: each next one drops one more of the stored settings."""
        self.due: float | None = 0.0
        """Monotonic time of the next start; None while one is alive, or if none is to follow."""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    @property
    def over(self) -> bool:
        """No supervisor is running and none is to follow."""
        return self.process is None and self.due is None

    def tick(self, now: float, *, wanted: bool) -> None:
        """Replace a hung one; start one that is due while one is `wanted`."""
        if self.process is not None:
            silent = now - (self._born if self._received is None else self._received)
            mute = self._received is None
            if silent > (FIRST_WORD_S * 2 ** min(self._in_doubt, DOUBLED_MOST) if mute else SILENT_S):
                # one that was stopped by a signal is not silent by its own fault
                doubtful = (mute or now - self._born < IN_DOUBT_S) and not proc.stopped(self.process.pid)
                self.gone(f"silent for {silent:.0f} s, killed", respawn=wanted, doubtful=doubtful)
        if self.process is None and self.due is not None and now >= self.due and wanted:
            self._start()

    def leave(self) -> None:
        """Have it close its books and exit; said again, it changes nothing."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)

    def reset_deadline(self) -> None:
        """The keeper slept: its silence counts from now on."""
        now = time.monotonic()
        if self._received is None:
            self._born = now
        else:
            self._received = now

    def say(self, message: ChildFacts | Order) -> None:
        """Send it one line; never waits."""
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.send(encode(message))

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module, self._dir, "--fd", str(theirs.fileno())],
                cwd=self._dir,
                env={**os.environ, "CARBONTUI_SILENT_DEATHS": str(self._in_doubt)},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                preexec_fn=_expendable,
            )
        except OSError as error:
            self._log(f"the {self._name} could not be started: {error}")
            ours.close()
            self._back_off(0.0)
            return
        finally:
            theirs.close()
        self._link, self._inbox, self._received = ours, b"", None
        self._born = time.monotonic()
        self.due = None
        self._selector.register(ours, selectors.EVENT_READ, self._receive)
        self._log(f"{self._name} {self.process.pid} started")
        self._changed()

    def _receive(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.gone("closed its end")
            return
        self._received = time.monotonic()
        self._inbox = (self._inbox + data)[-65536:]
        *lines, self._inbox = self._inbox.split(b"\n")
        for line in lines:
            self._take(line)

    def gone(self, why: str, *, respawn: bool = True, doubtful: bool = False) -> None:
        """It exited, closed its socket or hangs: kill it before a successor, which is due after the back-off."""
        if self._link is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._link)
            self._link.close()
            self._link = None
        process, self.process = self.process, None
        if process is None:
            return
        if process.returncode is None and process.poll() is None:
            process.kill()
            # one blocked in the kernel does not die yet, but it never executes another instruction
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(BURIAL_S)
        self._log(f"{self._name} {process.pid} gone ({why})")
        self._in_doubt = self._in_doubt + 1 if doubtful else 0
        if respawn:
            self._back_off(time.monotonic() - self._born)

    def _back_off(self, lived_s: float) -> None:
        short = lived_s < SHORT_LIFE_S and self._deaths > 0
        self._backoff_s = min(BACKOFF_MAX_S, max(0.5, self._backoff_s * 2)) if short else 0.0
        self._deaths += 1
        if os.environ.get("CARBONTUI_NO_RESPAWN") == "1":
            self.due = None
            self._log(f"CARBONTUI_NO_RESPAWN=1: no new {self._name}")
        else:
            self.due = time.monotonic() + self._backoff_s


def _expendable() -> None:
    """Between fork and exec, for while it loads it may be the largest process after the training."""
    signals.unblock()
    isolation.first_to_go()
