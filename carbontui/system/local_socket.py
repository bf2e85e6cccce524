"""Listening on a Unix socket that only this user can reach. The standard library alone: the keeper loads it too."""

import contextlib
import os
import socket
import struct


def listen(path: str | os.PathLike[str]) -> tuple[socket.socket, int]:
    """A non-blocking listener at `path` (0600), and the inode of its file. It is bound under a temporary name and
    renamed: a stale one is replaced atomically. Raises OSError.
    """
    temporary = f"{os.fspath(path)}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(temporary)
        listener.listen(64)
        os.rename(temporary, path)  # noqa: PTH104
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    listener.setblocking(False)
    return listener, os.stat(path).st_ino  # noqa: PTH116


def remove(path: str | os.PathLike[str], inode: int | None) -> None:
    """Remove the file of a listener unless another has replaced it."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == inode:  # noqa: PTH116
            os.unlink(path)  # noqa: PTH108


def peer_uid(connection: socket.socket) -> int:
    """The uid at the other end (SO_PEERCRED)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def may_speak(connection: socket.socket) -> bool:
    """Whether the other end is this user or root."""
    return peer_uid(connection) in (os.getuid(), 0)


def connect(path: str | os.PathLike[str], timeout_s: float = 2.0) -> socket.socket:
    """A connection to a service here. Raises OSError if none runs, or if it belongs to neither root nor us."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    link.settimeout(timeout_s)
    try:
        link.connect(os.fspath(path))
        if not may_speak(link):
            raise PermissionError(f"{path} is answered by uid {peer_uid(link)}, not by root")
    except OSError:
        link.close()
        raise
    return link
