"""Stopping: INT, then TERM, then KILL to the command's whole process group; and the keeper's own socket, by which
others ask for it without a supervisor."""

import contextlib
import os
import selectors
import signal
import socket
from collections.abc import Callable

from carbontui.job.keeper.messages import ChildFacts, OfPlaces, Order, RelayedSignal, Stop, decode_order, encode
from carbontui.system import local_socket, proc


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


LINE_MAX = 4096
POLL_S = 5.0
"""A socket removed by a /tmp cleaner is bound again within this."""


class StopSocket:
    """A socket bound at `path`. `apply_order` carries out an order; `facts` returns the child's state."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        log: Callable[[str], None],
        *,
        apply_order: Callable[[Order], None],
        facts: Callable[[], ChildFacts],
    ) -> None:
        self._path = path
        self._selector = selector
        self._log = log
        self._apply_order = apply_order
        self._facts = facts
        self._listener: socket.socket | None = None
        self._inode = 0
        self._due = 0.0
        self._fault = ""

    def tick(self, now: float) -> None:
        """Bind it, or rebind it if it has vanished; `now` is monotonic seconds."""
        if now < self._due:
            return
        self._due = now + POLL_S
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
            self._selector.register(visitor, selectors.EVENT_READ, lambda: self._receive(visitor))

    def _receive(self, visitor: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = visitor.recv(LINE_MAX)
        order = decode_order(data)
        if isinstance(order, Stop | RelayedSignal | OfPlaces):
            self._apply_order(order)
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
