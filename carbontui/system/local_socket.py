"""Listening on a Unix socket that only this user can reach."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

from carbontui import paths


def listen(path: Path) -> tuple[socket.socket, int]:
    """A non-blocking listener at `path` (0600, in a 0700 directory that is ours), and the inode of its file.

    Raises OSError or PermissionError.
    """
    paths.private_dir(path.parent)
    listener = bound(path)
    listener.setblocking(False)
    return listener, path.stat().st_ino


def bound(path: Path) -> socket.socket:
    """A listener at `path` (0600), bound under a temporary name and renamed: a stale one is replaced atomically.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(temporary))
        listener.listen(64)
        temporary.rename(path)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def remove(path: Path, inode: int | None) -> None:
    """Remove the file of a listener unless another has replaced it."""
    with contextlib.suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()


def peer_uid(connection: socket.socket) -> int:
    """The uid at the other end (SO_PEERCRED)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def may_speak(connection: socket.socket) -> bool:
    """Whether the other end is this user or root."""
    return peer_uid(connection) in (os.getuid(), 0)
