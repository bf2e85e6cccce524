"""One conversation with another machine: JSON lines over the pipes of a command (ssh), never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carbontui.job.keeper import signals
from carbontui.system import proc

ANSWER_S = 60.0
"""A line that hangs is given up after this."""
MOST_B = 65536


class Call:
    """Runs until the other end closes. `heard` takes each JSON line, `over` in the end what else was said: `fault`."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        selector: selectors.BaseSelector,
        *,
        heard: Callable[[dict[str, Any]], None],
        over: Callable[[str], None],
    ) -> None:
        """Raises OSError."""
        self._selector, self._heard, self._over = selector, heard, over
        self._rest, self.fault = b"", ""
        self._due = time.monotonic() + ANSWER_S
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=signals.unblock,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        for fd in (self._in, self._out):
            os.set_blocking(fd, False)
        selector.register(self._out, selectors.EVENT_READ, self._hear)

    def say(self, message: Mapping[str, Any]) -> None:
        """One line; what cannot be sent at once is not sent."""
        with contextlib.suppress(OSError):
            os.write(self._in, json.dumps(message).encode() + b"\n")

    def tick(self, now: float) -> None:
        """Give up a line that hangs."""
        if now > self._due:
            self.fault = f"no answer within {ANSWER_S:.0f} s"
            self.close()

    def _hear(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._out, MOST_B)
        if not data:
            self.close()
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-MOST_B:]
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if isinstance(message, dict):
                self._heard(message)
            elif line.strip():
                self.fault = line.decode(errors="replace").strip()[:200]

    def close(self) -> None:
        """End it; the keeper reaps the process."""
        self._selector.unregister(self._out)
        proc.signal_group(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]
        self._process.returncode = 0
        self._over(self.fault)
