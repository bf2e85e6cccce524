"""One connection of a node's job.sock, carried over the wire: the same at both of its ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from carbontui.cluster.messages import Line, Shut

QUEUE_MAX_B = 1024 * 1024


class Relay:
    """Connection `c`: lines of its socket are passed to `say`, lines received are written to it; a Shut reports which
    end closed first. Lines received before the socket is open are queued."""

    def __init__(self, c: int, say: Callable[[Line | Shut], Awaitable[None]]) -> None:
        self.c = c
        self._say = say
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []
        self._over = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run until the socket closes, or `end`."""
        self._writer = writer
        writer.writelines(self._waiting)
        try:
            while not self._over and (line := await reader.readline()):
                await self._say(Line(self.c, line.rstrip(b"\n").decode("utf-8", "replace")))
        except (OSError, ValueError):  # reset, or a line over the limit
            pass
        finally:
            writer.close()
            if not self._over:
                self._over = True
                with contextlib.suppress(OSError):
                    await self._say(Shut(self.c))

    def hear(self, text: str) -> None:
        """Write a line to the socket; a peer that lets a megabyte pile up is disconnected."""
        line = text.encode("utf-8", "replace") + b"\n"
        if self._writer is None:
            self._waiting.append(line)
        elif not self._writer.is_closing():
            self._writer.write(line)
            if self._writer.transport.get_write_buffer_size() > QUEUE_MAX_B:
                self._writer.transport.abort()

    def end(self) -> None:
        """The other side is gone."""
        self._over = True
        if self._writer is not None:
            self._writer.close()
