"""One connection to the job's store for all ranks of a node: one of them opens it and serves the others.

Ranks wait for keys at their node's socket, blocking; the hub asks the store once for what several wait for. While all
of them wait for the next proposal the hub waits in the store itself, so that an undisturbed training costs no request.
The socket has an abstract name, which ends with its process; whoever binds it first serves. Without one (another
system, a hub that does not answer) a rank opens a connection of its own.
"""

import contextlib
import json
import os
import selectors
import socket
import struct
import sys
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

from carbontui.client.pausing.store import Lost, Store, prefix

PATIENCE_S = 3.0
"""A rank that is not the first of its node waits this long for the one that is, before it serves itself."""
LISTENS_S = 0.5
"""Whoever has taken the node's name listens by then."""
NAP_S = 0.002
"""First sleep between two looks for keys that are about to appear."""
LINE_MOST_B = 1 << 20
LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


def first_here(rank: int) -> bool:
    """Whether this rank is the first of its node; without a launcher that says so, rank 0 alone is."""
    told = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), None)
    return rank == 0 if told is None else told == "0"


def name_of_socket() -> Optional[str]:
    """Abstract, of this job on this machine; machines that share a network differ in their host names. None where no
    address tells one job's store from another's, or the system has no such names."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not (address and port.isdigit() and sys.platform.startswith("linux")):
        return None
    job = os.environ.get("CARBONTUI_JOB", "")
    return f"\0carbontui-ranks/{os.getuid()}/{socket.gethostname()}/{job}/{address}:{port}/{prefix()}"


def ours(connection: socket.socket) -> bool:
    uid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    return bool(uid == os.getuid())


class NodeStore:
    """The store as a rank sees it through its node's socket; the methods of Store."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.buffer = connection, b""

    def take(self, key: str) -> str:
        """Wait indefinitely for a value. Raises Lost."""
        return self._ask("wait", key, None)  # type: ignore[no-any-return]

    def wait_for(self, key: str, timeout_s: float) -> Optional[str]:
        """The value, once there is one; None after this long. Raises Lost."""
        return self._ask("wait", key, timeout_s)  # type: ignore[no-any-return]

    def get(self, key: str) -> Optional[str]:
        return self._ask("get", key)  # type: ignore[no-any-return]

    def set(self, key: str, value: str) -> None:
        self._ask("set", key, value)

    def has(self, *keys: str) -> bool:
        return bool(self._ask("has", *keys))

    def first(self, key: str, value: str) -> str:
        return self._ask("first", key, value)  # type: ignore[no-any-return]

    def forget(self, *keys: str) -> None:
        self._ask("forget", *keys)

    def wake(self, *_: Any) -> None:
        """End a wait; from another thread."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _ask(self, *words: Any) -> Any:
        try:
            self.connection.sendall(json.dumps(words).encode() + b"\n")
            while b"\n" not in self.buffer:
                more = self.connection.recv(65536)
                if not more:
                    raise Lost("the node's first rank has ended")
                self.buffer += more
        except OSError as error:
            raise Lost(str(error)) from None
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)


class Hub:
    """The thread that serves a node's ranks. One thread alone uses the connection."""

    def __init__(self, store: Store, listener: socket.socket, nap_most_s: float) -> None:
        self.store, self.listener, self.nap_most_s = store, listener, nap_most_s
        self.buffers: Dict[socket.socket, bytes] = {}
        self.waits: Dict[socket.socket, Tuple[str, Optional[float]]] = {}
        """What each rank waits for, and until when (monotonic; None: without an end)."""
        self.selector = selectors.DefaultSelector()
        self.stopping = False
        self.awaited = ""
        """The key that this thread waits for in C++."""
        self.thread = threading.Thread(target=self._run, name="carbontui-node", daemon=True)

    def stop(self, opener: Callable[..., Any]) -> None:
        """Call before the interpreter exits: a thread that returns from C++ after that aborts the process."""
        self.stopping = True
        if self.thread.is_alive():
            self.store.wake(opener, self.awaited, self.thread.is_alive)
            self.thread.join(5.0)

    def _run(self) -> None:
        self.selector.register(self.listener, selectors.EVENT_READ)
        nap_s = NAP_S
        try:
            while not self.stopping:
                idle = bool(self.waits) and len(self.waits) == len(self.buffers) and not self._answered()
                if idle and all(due is None for _, due in self.waits.values()):
                    self.awaited = next(iter(self.waits.values()))[0]
                    if not self.stopping:
                        self.store.take(self.awaited)
                    self.awaited, nap_s = "", NAP_S
                if self._received(nap_s if self.waits else None) or self._answered():
                    nap_s = NAP_S
                else:
                    nap_s = min(self.nap_most_s, nap_s * 1.5)
        except (Lost, OSError):
            pass
        finally:
            self.listener.close()
            for connection in self.buffers:
                connection.close()

    def _received(self, timeout_s: Optional[float]) -> bool:
        """Serve what ranks ask for, waiting for it this long; whether any did."""
        # a hub without ranks looks from time to time whether it is to end
        ready = self.selector.select(0.5 if timeout_s is None else timeout_s)
        for key, _ in ready:
            connection = key.fileobj
            if connection is self.listener:
                self._accept()
            else:
                self._read(connection)  # type: ignore[arg-type]
        return bool(ready)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        if not ours(connection):
            connection.close()
            return
        self.buffers[connection] = b""
        self.selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> None:
        try:
            more = connection.recv(65536)
        except OSError:
            more = b""
        if not more or len(self.buffers[connection]) > LINE_MOST_B:
            self._drop(connection)
            return
        *lines, self.buffers[connection] = (self.buffers[connection] + more).split(b"\n")
        for line in lines:
            self._serve(connection, *json.loads(line))

    def _serve(self, connection: socket.socket, what: str, *words: Any) -> None:
        if what == "wait":
            key, timeout_s = words
            self.waits[connection] = (key, None if timeout_s is None else time.monotonic() + timeout_s)
        else:
            self._say(connection, getattr(self.store, what)(*words))

    def _answered(self) -> bool:
        """Answer the ranks whose keys are there, or whose time is over; whether there were any."""
        keys = dict.fromkeys(key for key, _ in list(self.waits.values()))
        known = {key: self.store.get(key) for key in keys}
        now, some = time.monotonic(), False
        for connection, (key, due) in list(self.waits.items()):
            if known[key] is not None or (due is not None and now >= due):
                del self.waits[connection]
                self._say(connection, known[key])
                some = True
        return some

    def _say(self, connection: socket.socket, answer: Any) -> None:
        try:
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        self.buffers.pop(connection, None)
        self.waits.pop(connection, None)
        connection.close()


def joined(rank: int, opener: Callable[[], Store], nap_most_s: float = 0.05) -> Tuple[Any, Optional[Hub]]:
    """The store for this rank, and the hub of its node where this process has become it. Rank 0, which asks most, has a
    connection of its own. Raises Lost where there is no store (yet)."""
    name = name_of_socket()
    if name is None:
        return opener(), None
    hub, due = None, time.monotonic() + (0.0 if first_here(rank) else PATIENCE_S)
    while True:
        late = time.monotonic() >= due
        connection = None if rank == 0 else knocked(name)
        if connection is None and late and hub is None:
            hub = serve(name, opener, nap_most_s)
            connection = None if rank == 0 or hub is None else knocked(name)
        if connection is not None:
            return NodeStore(connection), hub
        if late and (rank == 0 or hub is not None or time.monotonic() >= due + LISTENS_S):
            return opener(), hub
        time.sleep(0.05)


def knocked(name: str) -> Optional[socket.socket]:
    """A connection to this node's hub; None while nobody of ours answers."""
    connection = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        connection.connect(name)
        if ours(connection):
            return connection
    connection.close()
    return None


def serve(name: str, opener: Callable[[], Store], nap_most_s: float) -> Optional[Hub]:
    """Serve this node; None where somebody does. Raises Lost."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(name)
        listener.listen(4096)
        hub = Hub(opener(), listener, nap_most_s)
    except OSError:
        listener.close()
        return None
    except Lost:
        listener.close()
        raise
    hub.thread.start()
    return hub
