"""The keeper's own socket: without a supervisor a job can still be stopped, and `run` can pass its signals on.

One order per connection, in the supervisor's form; the reply is the child's state. Only this user and root are heard.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Callable

from carbontui.job.keeper.messages import ChildFacts, Order, RelayedSignal, Stop, decode_order, encode

LINE_MAX = 4096
LOOK_S = 5.0
"""A socket removed by a /tmp cleaner is bound again within this."""


class StopSocket:
    """A socket bound at `path`. `obey` carries out an order; `facts` returns the child's state."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        log: Callable[[str], None],
        *,
        obey: Callable[[Order], None],
        facts: Callable[[], ChildFacts],
    ) -> None:
        self._path = path
        self._selector = selector
        self._log = log
        self._obey = obey
        self._facts = facts
        self._listener: socket.socket | None = None
        self._inode = 0
        self._due = 0.0
        self._fault = ""

    def tick(self, now: float) -> None:
        """Bind it, or rebind it if it has vanished; `now` is monotonic seconds."""
        if now < self._due:
            return
        self._due = now + LOOK_S
        with contextlib.suppress(OSError):
            if self._listener is not None and os.stat(self._path).st_ino == self._inode:  # noqa: PTH116
                return
        self.close()
        try:
            self._open()
            self._fault = ""
        except OSError as error:
            self._due = now  # the supervisor creates its folder: retry at the next tick
            if self._fault != str(error):
                self._fault = str(error)
                self._log(f"{self._path} cannot be bound: {error}")

    def _open(self) -> None:
        temporary = f"{self._path}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(temporary)
            os.chmod(temporary, 0o600)  # noqa: PTH101
            listener.listen(8)
            listener.setblocking(False)
            os.rename(temporary, self._path)  # noqa: PTH104
            self._inode = os.stat(self._path).st_ino  # noqa: PTH116
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            visitor, _ = self._listener.accept()
            raw = visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", raw)[1] not in (os.getuid(), 0):
                visitor.close()
                return
            visitor.setblocking(False)
            self._selector.register(visitor, selectors.EVENT_READ, lambda: self._hear(visitor))

    def _hear(self, visitor: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = visitor.recv(LINE_MAX)
        order = decode_order(data)
        if isinstance(order, Stop | RelayedSignal):
            self._obey(order)
        with contextlib.suppress(OSError):
            if data:
                visitor.send(encode(self._facts()))
        self._selector.unregister(visitor)
        visitor.close()

    def close(self) -> None:
        """Close and remove the socket."""
        if self._listener is None:
            return
        self._selector.unregister(self._listener)
        self._listener.close()
        self._listener = None
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:  # noqa: PTH116
                os.unlink(self._path)  # noqa: PTH108
