"""capd lowers power limits for users who are not root, on boards that only they use. `python -m carbontui.power.capd`.

The only privileged process of carbontui. It lowers a limit, or locks a clock, within the driver's range and below the
original limit, for a caller identified by the kernel (SO_PEERCRED) whose uid owns every process on the board, or who is
in the group that the administrator named. One caller at a time holds a board. Its changes are restored when the caller
disconnects or falls silent, when another user's process appears on the board, and at its own start. It runs no
command, opens no path that a caller names, and reads nothing from a caller but bounded lines.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from carbontui.power.backends.base import INVALID, UNKNOWN, DeviceError
from carbontui.power.capd import wire
from carbontui.power.capd.core import Caller, Capd
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.metering import metrics
from carbontui.system.metrics_place import MetricsPlace
from carbontui.system.openmetrics import render

CONNECTIONS, CONNECTIONS_OF_ONE = 128, 16
OUT_MAX = 65536
LINE_AT_ONCE = 16384
LISTEN_FD = 3
"""The socket passed by systemd (sd_listen_fds)."""


class Server:
    """The socket of a Capd: bounded lines in, one answer each; never waits for a caller."""

    def __init__(
        self,
        capd: Capd,
        listener: socket.socket,
        clock: Callable[[], float] = time.monotonic,
        place: MetricsPlace | None = None,
    ) -> None:
        self._place = place
        self._capd = capd
        self._listener = listener
        self._clock = clock
        self._callers: dict[int, Caller] = {}
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)

    def serve(self, stopped: Callable[[], bool]) -> None:
        """Serve until `stopped` returns true; then restore everything."""
        try:
            while not stopped():
                self.step(0.25)
        finally:
            for caller in list(self._callers.values()):
                self._drop(caller)
            self._capd.close()
            if self._place is not None:
                self._place.close()

    def step(self, wait_s: float) -> None:
        """Handle pending connections and requests."""
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                self._accept()
            elif key.fd in self._callers:
                self._hear(key.data)
        now = self._clock()
        for caller in list(self._callers.values()):
            if now - caller.heard_s > wire.SILENCE_S:
                self._drop(caller)
        self._capd.tick()
        if self._place is not None and self._place.due():
            seen = metrics.capd(self._capd.held(), self._capd.changes, self._capd.refused, len(self._callers))
            self._place.tell(render(seen))

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        pid, uid, _gid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        same = sum(caller.uid == uid for caller in self._callers.values())
        if len(self._callers) >= CONNECTIONS or same >= CONNECTIONS_OF_ONE:
            link.close()
            return
        link.setblocking(False)
        caller = Caller(uid, pid, self._clock(), link)
        self._callers[link.fileno()] = caller
        self._selector.register(link, selectors.EVENT_READ, caller)

    def _hear(self, caller: Caller) -> None:
        assert caller.link is not None
        try:
            data = caller.link.recv(LINE_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        caller.inbox += data
        *lines, rest = bytes(caller.inbox).split(b"\n")
        caller.inbox = bytearray(rest)
        if not data or any(len(line) > wire.LINE_MAX for line in (*lines, rest)):
            self._drop(caller)
            return
        for line in lines:
            caller.outbox += wire.encode(self._answer(caller, line))
        self._send(caller)

    def _answer(self, caller: Caller, line: bytes) -> wire.CapdAnswer:
        try:
            return self._capd.answer(caller, wire.decode_request(line))
        except ValueError:
            return wire.CapdAnswer(False, INVALID, "not a request")
        except Exception as error:
            # survive any exception: this process must still restore the limits of other callers
            return wire.CapdAnswer(False, UNKNOWN, f"a fault of capd ({type(error).__name__})")

    def _send(self, caller: Caller) -> None:
        assert caller.link is not None
        try:
            sent = caller.link.send(caller.outbox) if caller.outbox else 0
            del caller.outbox[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            caller.outbox = bytearray(OUT_MAX + 1)
        if len(caller.outbox) > OUT_MAX:  # it is gone, or sends requests without reading answers
            self._drop(caller)

    def _drop(self, caller: Caller) -> None:
        if caller.link is None:
            return
        self._callers.pop(caller.link.fileno(), None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(caller.link)
        caller.link.close()
        caller.link = None
        self._capd.gone(caller)


def listen(path: Path) -> socket.socket:
    """The socket passed by systemd, else a new one at `path` that every user may connect to. Raises OSError."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS") == "1":
        return socket.socket(fileno=LISTEN_FD)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path.parent} does not belong to uid {os.geteuid()}: somebody else could answer there")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    path.chmod(0o666)
    listener.listen(CONNECTIONS)
    return listener


def main(argv: list[str] | None = None) -> int:
    """Parse, open the driver, serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="carbontui.power.capd")
    parser.add_argument("--socket", type=Path, default=wire.SOCKET)
    parser.add_argument("--metrics", help="place of the metrics: node-exporter's folder, or a path ending in .sock")
    parser.add_argument("--group", help="its members may also lower limits on boards that others use")
    options = parser.parse_args(argv)
    from carbontui.power.backends.nvml import NvmlBackend

    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stopped.append(number))
    capd = Capd(NvmlBackend(), LeaseStore(), lambda line: print(line, flush=True), group=options.group)
    try:
        listener = listen(options.socket)
        capd.open()
    except (OSError, DeviceError) as error:
        print(f"carbontui capd: {error}", file=sys.stderr)
        return 1
    place = MetricsPlace(options.metrics, "capd") if options.metrics else None
    Server(capd, listener, place=place).serve(lambda: bool(stopped))
    return 0


if __name__ == "__main__":
    sys.exit(main())
