"""The viewer's end of job.sock: an asyncio `ViewerLink` for the screen, a blocking `ask` for a single request.

Both check that the peer runs as this user before a byte is sent, exchange hello and welcome, and bound every line.

    LinkError
    ├── NoSupervisor     no process listens there (respawning, or the job is over)
    ├── NotOurs          the socket belongs to another user
    ├── VersionMismatch  the supervisor speaks another major version
    ├── RequestRefused   it refused the request
    ├── NoAnswer         it listens, but did not answer in time
    └── Broken           the connection ended, or was not the protocol
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from carbontui import __version__, protocol
from carbontui.system import local_socket

if TYPE_CHECKING:
    import asyncio

HELLO_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 5.0
PENDING_MAX = 64
"""Unread snaps and deltas buffered before reading stops; the supervisor then drops messages on its side."""

Request = protocol.Request
Answer = protocol.Answer
News = protocol.Snap | protocol.Delta
AUTHOR = "CARBONTUI_AUTHOR"
"""In the environment: who gives orders, where that is no person at a terminal."""
T = TypeVar("T")


class LinkError(Exception):
    """Base class; the text is one line for the user."""


class NoSupervisor(LinkError):
    """No process listens there: the supervisor is being restarted, or the job is over."""


class NotOurs(LinkError):
    """The other end runs as another user, or the socket may not be opened."""


class VersionMismatch(LinkError):
    """The supervisor speaks another major version of the protocol; `version` is that of its carbontui."""

    def __init__(self, text: str, version: str) -> None:
        super().__init__(text)
        self.version = version


class RequestRefused(LinkError):
    """The supervisor refused the message; the text is its reason."""


class NoAnswer(LinkError):
    """The supervisor listens, but did not answer in time."""


class Broken(LinkError):
    """The connection ended, or did not carry the protocol."""


def whoami() -> str:
    """user@tty of this process, shown with its overrides; without a terminal user@address (ssh) or user@script; or
    whom AUTHOR names."""
    if named := os.environ.get(AUTHOR):
        return named
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    for descriptor in (0, 2, 1):
        with contextlib.suppress(OSError):
            return f"{user}@{os.ttyname(descriptor).removeprefix('/dev/')}"
    return f"{user}@{os.environ.get('SSH_CONNECTION', 'script').split(' ')[0]}"


def _hello() -> protocol.Hello:
    return protocol.Hello(
        v=protocol.VERSION, version=__version__, role="viewer", pid=os.getpid(), host=socket.gethostname(), by=whoami()
    )


def _check_peer(sock: Any, path: Path) -> None:
    """Raise NotOurs for a socket whose listener runs as another user."""
    if (uid := local_socket.peer_uid(sock)) != os.getuid():
        raise NotOurs(f"{path} is served by uid {uid}, not by you")


def _unreachable(path: Path, error: OSError) -> LinkError:
    if isinstance(error, PermissionError):
        return NotOurs(f"{path} may not be opened: {error.strerror}")
    return NoSupervisor(f"no supervisor answers at {path} ({error.strerror or error})")


def _check_welcome(message: object) -> protocol.Welcome:
    if isinstance(message, protocol.Refused):
        raise RequestRefused(message.error)
    if not isinstance(message, protocol.Welcome):
        raise Broken(f"expected a welcome, got {type(message).__name__.lower()}")
    if message.v != protocol.VERSION:
        raise VersionMismatch(
            f"the supervisor speaks protocol {message.v} (carbontui {message.version}), "
            f"this program {protocol.VERSION} (carbontui {__version__}): use the same version at both ends",
            message.version,
        )
    return message


def _decode(line: bytes) -> protocol.ToViewer | None:
    try:
        return protocol.decode_to_viewer(line)
    except protocol.BadMessage as error:
        raise Broken(f"the supervisor sent a message this version cannot read: {error}") from None


class ViewerLink:
    """One connection to a supervisor. Open it with `await ViewerLink.connect(path)`; close it with `close()`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, welcome: protocol.Welcome) -> None:
        import asyncio

        self.welcome = welcome
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._news: asyncio.Queue[News | LinkError] = asyncio.Queue(PENDING_MAX)
        self._ended: LinkError | None = None
        self._pump = asyncio.create_task(self._read_all(), name="link reader")

    @classmethod
    async def connect(cls, path: Path, timeout_s: float = HELLO_TIMEOUT_S) -> ViewerLink:
        """Connect, check the peer, say hello. Raises LinkError (see the tree above)."""
        try:
            return await _within(timeout_s, cls._open(path))
        except TimeoutError:
            raise NoAnswer(f"the supervisor at {path} did not answer within {timeout_s:g} s") from None

    @classmethod
    async def _open(cls, path: Path) -> ViewerLink:
        import asyncio

        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=protocol.VIEWER_LINE_MAX)
        except OSError as error:
            raise _unreachable(path, error) from None
        try:
            _check_peer(writer.get_extra_info("socket"), path)
            writer.write(protocol.encode(_hello()))
            return cls(reader, writer, _check_welcome(await _read_known(reader)))
        except BaseException:
            writer.close()
            raise

    async def send(self, message: msgspec.Struct) -> None:
        """Send without waiting for an answer. Raises Broken if the connection is closed."""
        if self._ended is not None:
            raise self._ended
        try:
            self._writer.write(protocol.encode(message))
            await self._writer.drain()
        except OSError as error:
            raise Broken(f"the connection to the supervisor ended ({error.strerror or error})") from None

    async def request(self, message: Request, timeout_s: float = ANSWER_TIMEOUT_S) -> Answer:
        """Send with a fresh id (the message's own is replaced) and return the answer.

        Raises RequestRefused, NoAnswer or Broken.
        """
        import asyncio

        number = next(self._ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self.send(msgspec.structs.replace(message, id=number))
            return await _within(timeout_s, future)
        except TimeoutError:
            raise NoAnswer(f"no answer from the supervisor within {timeout_s:g} s") from None
        finally:
            del self._waiting[number]

    async def messages(self) -> AsyncIterator[News]:
        """Snaps and deltas as they come. Ends by raising Broken when the connection does."""
        while True:
            if self._ended is not None and self._news.empty():
                raise self._ended
            message = await self._news.get()
            if isinstance(message, LinkError):
                raise message
            yield message

    async def close(self) -> None:
        """Close the connection; pending requests fail with Broken."""
        import asyncio

        self._pump.cancel()
        self._writer.close()
        await asyncio.wait({self._pump})  # a cancel of its own is heard, too
        self._end(Broken("the connection was closed"))

    async def _read_all(self) -> None:
        try:
            while True:
                message = await _read_known(self._reader)
                if isinstance(message, protocol.Snap | protocol.Delta):
                    await self._news.put(message)
                elif not isinstance(message, protocol.Welcome):
                    future = self._waiting.get(message.id or 0)
                    if future is None or future.done():
                        continue
                    if isinstance(message, protocol.Refused):
                        future.set_exception(RequestRefused(message.error))
                    else:
                        future.set_result(message)
        except LinkError as error:
            self._end(error)

    def _end(self, error: LinkError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        if not self._news.full():
            self._news.put_nowait(error)
        self._writer.close()


async def _within(timeout_s: float, awaited: Awaitable[T]) -> T:
    """Raises TimeoutError. Unlike `asyncio.wait_for` before Python 3.12 it never loses a cancel that comes with
    the result: a screen that was told to end would go on for ever."""
    import asyncio

    future = asyncio.ensure_future(awaited)
    try:
        if not (await asyncio.wait({future}, timeout=timeout_s))[0]:
            raise TimeoutError
    finally:
        future.cancel()
    return future.result()


async def _read_known(reader: asyncio.StreamReader) -> protocol.ToViewer:
    """The next message of a type we know. Raises Broken at the end, on garbage and on a line over the limit."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise Broken(f"the supervisor sent a line over {protocol.VIEWER_LINE_MAX} bytes") from None
        except OSError as error:
            raise Broken(f"the connection to the supervisor ended ({error.strerror or error})") from None
        if not line.endswith(b"\n"):
            raise Broken("the supervisor closed the connection")
        message = _decode(line)
        if message is not None:
            return message


def ask(path: Path, message: Request, timeout_s: float = ANSWER_TIMEOUT_S) -> Answer:
    """One request over its own connection, on a blocking socket: for verbs, which need no asyncio.

    The message decides the type of its answer (`StatusAsk`: `StatusAnswer`). Raises LinkError (see the tree above).
    """
    with _conversation(path, timeout_s) as (sock, messages, _welcome):
        sock.sendall(protocol.encode(msgspec.structs.replace(message, id=1)))
        while True:
            answer = next(messages)
            if isinstance(answer, protocol.Refused) and answer.id in (None, 1):
                raise RequestRefused(answer.error)
            if not isinstance(answer, protocol.Refused | News | protocol.Welcome) and answer.id == 1:
                return answer


def version(path: Path, timeout_s: float = HELLO_TIMEOUT_S) -> str:
    """The version of carbontui that the supervisor runs. Raises LinkError."""
    try:
        with _conversation(path, timeout_s) as (_sock, _messages, welcome):
            return welcome.version
    except VersionMismatch as error:
        return error.version


def snap(path: Path, timeout_s: float = ANSWER_TIMEOUT_S) -> protocol.Snap:
    """One snap: all data of a screen. Raises LinkError."""
    with _conversation(path, timeout_s) as (sock, messages, _welcome):
        sock.sendall(protocol.encode(protocol.View()))
        while True:
            answer = next(messages)
            if isinstance(answer, protocol.Refused):
                raise RequestRefused(answer.error)
            if isinstance(answer, protocol.Snap):
                return answer


@contextlib.contextmanager
def _conversation(
    path: Path, timeout_s: float
) -> Iterator[tuple[socket.socket, Iterator[protocol.ToViewer], protocol.Welcome]]:
    """A connection after hello and welcome; every fault inside is raised as a LinkError."""
    end = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        messages = _messages(sock, end)
        try:
            sock.settimeout(timeout_s)
            sock.connect(str(path))
        except TimeoutError:
            raise NoAnswer(f"the supervisor at {path} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise _unreachable(path, error) from None
        _check_peer(sock, path)
        try:
            sock.sendall(protocol.encode(_hello()))
            yield sock, messages, _check_welcome(next(messages))
        except TimeoutError:
            raise NoAnswer(f"no answer from the supervisor within {timeout_s:g} s") from None
        except OSError as error:
            raise Broken(f"the connection to the supervisor ended ({error.strerror or error})") from None


def _messages(sock: socket.socket, end: float) -> Iterator[protocol.ToViewer]:
    """What comes of the types we know from a blocking socket, bounded in length and in time. Raises TimeoutError,
    OSError or Broken."""
    rest = b""
    while True:
        *lines, rest = rest.split(b"\n")
        yield from filter(None, map(_decode, lines))
        if len(rest) > protocol.VIEWER_LINE_MAX:
            raise Broken(f"the supervisor sent a line over {protocol.VIEWER_LINE_MAX} bytes")
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        chunk = sock.recv(65536)
        if not chunk:
            raise Broken("the supervisor closed the connection")
        rest += chunk
