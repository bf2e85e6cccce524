"""The supervisor's end of the worker: started on demand, asked one thing at a time, let go when idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

IDLE_S = 60.0
LINE_MAX = 16 * 1024 * 1024


class WorkFailed(RuntimeError):
    """The worker said no, died, or took too long; the text says which."""


class Workbench:
    """`await ask(kind, ...)` gives the worker's answer or raises WorkFailed."""

    def __init__(self, cwd: Path, log: Callable[[str], None], *, idle_s: float = IDLE_S) -> None:
        self._cwd = cwd
        self._log = log
        self._idle_s = idle_s
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._turn = asyncio.Lock()
        self._id = 0
        self._used_s = 0.0

    async def ask(self, kind: str, timeout_s: float = 30.0, **payload: Any) -> dict[str, Any]:
        """Ask and wait for the turn; a worker that dies is replaced for the next question."""
        async with self._turn:
            self._used_s = time.monotonic()
            try:
                return await asyncio.wait_for(self._ask(kind, payload), timeout_s)
            except asyncio.TimeoutError:
                self.drop()
                raise WorkFailed(f"{kind}: no answer within {timeout_s:.0f} s") from None
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                self.drop()
                raise WorkFailed(f"{kind}: the worker died ({error})") from None
            except asyncio.CancelledError:
                self.drop()  # its answer to the abandoned question must not meet the next one
                raise

    async def _ask(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        if self._writer is None:
            await self._start()
        assert self._writer is not None and self._reader is not None
        self._id += 1
        self._writer.write(msgspec.json.encode({"id": self._id, "kind": kind, **payload}) + b"\n")
        await self._writer.drain()
        line = await self._reader.readuntil(b"\n")
        answer = msgspec.json.decode(line)
        if not answer["ok"]:
            raise WorkFailed(f"{kind}: {answer['error']}")
        return dict(answer["answer"])

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "carbontui.job.worker", "--fd", str(theirs.fileno())]
        # numpy's thread pools would compete with the training for cores
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                command,
                cwd=self._cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=LINE_MAX)

    def drop_if_idle(self) -> None:
        if self._process and not self._turn.locked() and time.monotonic() - self._used_s > self._idle_s:
            self.drop()

    def drop(self) -> None:
        """Let the worker go."""
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process = self._reader = self._writer = None
