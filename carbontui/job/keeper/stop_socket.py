"""The keeper's own socket: without a supervisor a job can still be stopped, and `run` can pass its signals on;
so can `move` say what becomes of its places.

One order per connection, in the supervisor's form; the reply is the child's state. Only this user and root are heard.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable

from carbontui.job.keeper.messages import ChildFacts, OfPlaces, Order, RelayedSignal, Stop, decode_order, encode
from carbontui.system import local_socket

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
            self._listener, self._inode = local_socket.listen(self._path)
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
            self._fault = ""
        except OSError as error:
            self._due = now  # the supervisor creates its folder: retry at the next tick
            if self._fault != str(error):
                self._fault = str(error)
                self._log(f"{self._path} cannot be bound: {error}")

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            visitor, _ = self._listener.accept()
            if not local_socket.may_speak(visitor):
                visitor.close()
                return
            visitor.setblocking(False)
            self._selector.register(visitor, selectors.EVENT_READ, lambda: self._hear(visitor))

    def _hear(self, visitor: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = visitor.recv(LINE_MAX)
        order = decode_order(data)
        if isinstance(order, Stop | RelayedSignal | OfPlaces):
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
        local_socket.remove(self._path, self._inode)
