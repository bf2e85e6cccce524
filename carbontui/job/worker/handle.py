"""The supervisor's handle of the worker: started on demand, one request at a time, ended when idle."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from carbontui.grid.issues import ForecastAnswer
from carbontui.job.worker.messages import Answer, Ask, ForecastAsk, PlanAnswer, PlanAsk, PreviewAsk, ReadAsk
from carbontui.protocol import CodeRead, Sighting
from carbontui.system import isolation

IDLE_S = 60.0
ANSWER_S = 30.0
PREVIEW_S = 10.0
READ_S = 8.0
LINE_MAX = 16 * 1024 * 1024
T = TypeVar("T")


class WorkFailed(RuntimeError):
    """The worker refused, died, or took too long; the text says which."""


@dataclass(eq=False)
class WorkerHandle:
    """Requests are queued; one without an answer raises WorkFailed."""

    cwd: Path
    log: Callable[[str], None]
    idle_s: float = IDLE_S
    _process: subprocess.Popen[bytes] | None = None
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _id: int = 0
    _used_s: float = 0.0

    async def plan(self, ask: PlanAsk, timeout_s: float = ANSWER_S) -> PlanAnswer:
        """The plan to follow from now on, with baselines, explanation and frontier. Raises WorkFailed."""
        return await self._ask(ask, PlanAnswer, timeout_s)

    async def preview(self, ask: PreviewAsk, timeout_s: float = PREVIEW_S) -> PlanAnswer:
        """The plan that another budget or price would give. Raises WorkFailed."""
        return await self._ask(ask, PlanAnswer, timeout_s)

    async def forecast(self, ask: ForecastAsk, timeout_s: float = ANSWER_S) -> ForecastAnswer:
        """Mean and band of the coming slots, for `Feed.adopt`. Raises WorkFailed."""
        return await self._ask(ask, ForecastAnswer, timeout_s)

    async def read(self, sighting: Sighting) -> CodeRead:
        """What the code says of a place where the training is."""
        try:
            answer = await self._ask(ReadAsk(place=sighting.place), CodeRead, READ_S)
        except WorkFailed:
            return CodeRead(sighting.id)
        return msgspec.structs.replace(answer, id=sighting.id)

    async def warm(self) -> None:
        """Start it before the first request: its imports take longer than the answer."""
        async with self._turn:
            self._used_s = time.monotonic()
            if self._writer is None:
                with contextlib.suppress(OSError):
                    await self._start()

    async def _ask(self, ask: Ask, answer: type[T], timeout_s: float) -> T:
        """Send a request and wait; a worker that dies is replaced for the next one."""
        kind = str(ask.__struct_config__.tag)
        async with self._turn:
            self._used_s = time.monotonic()
            try:
                told = await asyncio.wait_for(self._exchange(ask), timeout_s)
                if told.ok:
                    return msgspec.json.decode(told.answer, type=answer)
            except asyncio.TimeoutError:
                self.drop()
                raise WorkFailed(f"{kind}: no answer within {timeout_s:.0f} s") from None
            except (OSError, asyncio.IncompleteReadError) as error:
                self.drop()
                raise WorkFailed(f"{kind}: the worker died ({error})") from None
            except ValueError as error:  # a line too long or unreadable: the rest of the stream cannot be trusted
                self.drop()
                raise WorkFailed(f"{kind}: the worker's answer cannot be used ({error})") from None
            except asyncio.CancelledError:
                self.drop()  # its answer to the abandoned request must not be taken for the next one's
                raise
            raise WorkFailed(f"{kind}: {told.error}")

    async def _exchange(self, ask: Ask) -> Answer:
        if self._writer is None:
            await self._start()
        assert self._writer is not None and self._reader is not None
        self._id += 1
        self._writer.write(msgspec.json.encode(msgspec.structs.replace(ask, id=self._id)) + b"\n")
        await self._writer.drain()
        return msgspec.json.decode(await self._reader.readuntil(b"\n"), type=Answer)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "carbontui.job.worker", "--fd", str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                command,
                cwd=self.cwd,
                env=isolation.environment(os.environ) | isolation.ONE_THREAD,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=LINE_MAX)

    def drop_if_idle(self) -> None:
        if self._process and not self._turn.locked() and time.monotonic() - self._used_s > self.idle_s:
            self.drop()

    def drop(self) -> None:
        """End the worker."""
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process = self._reader = self._writer = None
