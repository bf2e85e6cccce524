"""Where metrics are published: a file in node-exporter's folder, or a Unix socket serving HTTP to its owner only."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from pathlib import Path

from carbontui import paths
from carbontui.system import local_socket

EVERY_S = 10.0
"""How often the file is rewritten; scrapers read every 15 to 60 s."""
STALE_S = 600.0
"""A job's file not written for this long belongs to a finished job: the next job removes it."""
PATIENCE_S = 1.0
"""Timeout for a scraper's request and for sending it the answer."""
REQUEST_MAX_B = 4096
HEAD = "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"


class MetricsPlace:
    """`where` is a folder for `carbontui-NAME.prom`, or a path ending in .sock, in which `{job}` stands for NAME.

    Nothing here raises: `fault` says in one line what is wrong.
    """

    def __init__(self, where: str, name: str) -> None:
        self.fault = ""
        self._name = name
        self._path = Path(where.replace("{job}", name))
        self._socket = where.endswith(".sock")
        self._text = b""
        self._written_s: float | None = None
        self._listener: socket.socket | None = None

    @property
    def file(self) -> Path:
        """The file that is written, or the socket."""
        return self._path if self._socket else self._path / f"carbontui-{self._name}.prom"

    @property
    def classic(self) -> bool:
        """Whether its reader is node-exporter, which takes the classic format alone."""
        return not self._socket

    def before(self) -> str:
        """What an earlier process left in the file, or ''."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return "" if self._socket else self.file.read_text()
        return ""

    def due(self) -> bool:
        """Whether it is time to publish again."""
        return self._written_s is None or time.monotonic() - self._written_s >= (1.0 if self._socket else EVERY_S)

    def tell(self, text: str) -> None:
        """Publish the text to readers from now on."""
        self._written_s = time.monotonic()
        self._text = text.encode()
        try:
            if self._socket:
                self._listen()
            else:
                self._write()
            self.fault = ""
        except OSError as error:
            self.fault = f"metrics cannot be written to {self.file} ({error.strerror or error})"

    def close(self) -> None:
        """Close the socket; the file keeps the last values until another job removes it."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _write(self) -> None:
        paths.write_whole(self.file, self._text, 0o644)
        for other in self._path.glob("carbontui-*.prom"):
            with contextlib.suppress(OSError):
                found = other.lstat()
                if found.st_uid == os.geteuid() and time.time() - found.st_mtime > STALE_S:
                    other.unlink()

    def _listen(self) -> None:
        if self._listener is not None:
            return
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self._path.lstat().st_mode):
                raise FileExistsError(17, "there is something else")
            if _answers(self._path):
                raise FileExistsError(98, "another process answers there")
        self._listener = local_socket.bound(self._path)
        threading.Thread(target=self._serve, args=(self._listener,), name="metrics", daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link, contextlib.suppress(OSError):
                link.settimeout(PATIENCE_S)
                request = b""
                while b"\r\n\r\n" not in request and len(request) < REQUEST_MAX_B and (data := link.recv(1024)):
                    request += data
                body = self._text
                link.sendall(f"{HEAD}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.settimeout(PATIENCE_S)
            link.connect(os.fspath(path))
        except OSError:
            return False
        return True
