"""The wire between a supervisor and the agent of another node: lines over that agent's standard input and output.

Messages between the power agent and its handle (`carbontui.power.messages`) pass unchanged, together with the
connections to the node's job.sock, line by line, numbered by the node. Level-triggered: a lost wire loses nothing
that is not repeated.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import Struct

from carbontui.power.messages import AgentLine, Bye, DesiredPower, Done, Gone, Poke, Report

LINE_MAX = 4 * 1024 * 1024
"""A viewer's line of at most 1 MiB, quoted."""
BEAT_S = 1.0
UNRESPONSIVE_S = 20.0
"""A node that hears nothing for this long exits: the lease of a pause (15 s) has expired, its limits are restored."""


class Up(Struct, tag_field="t", tag="up", frozen=True):
    """node -> supervisor, at its start and every BEAT_S: heartbeat. `host` is the host name its processes use."""

    version: str
    host: str
    pid: int


class Open(Struct, tag_field="t", tag="open", frozen=True):
    """node -> supervisor: a process of this user (checked) has connected to the node's job.sock."""

    c: int


class Line(Struct, tag_field="t", tag="line", frozen=True):
    """Either way: a line of connection `c`, without its newline."""

    c: int
    text: str


class Shut(Struct, tag_field="t", tag="shut", frozen=True):
    """Either way: connection `c` is over."""

    c: int


ToNode = DesiredPower | Poke | Bye | Line | Shut
FromNode = Up | Open | Line | Shut | Report | Done | Gone | AgentLine


QUEUE_MAX_B = 1024 * 1024


@dataclass(eq=False)
class Relay:
    """Connection `c`: lines of its socket are passed to `say`, lines received are written to it; a Shut reports which
    end closed first. Lines received before the socket is open are queued."""

    c: int
    say: Callable[[Line | Shut], Awaitable[None]]

    def __post_init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []
        self._over = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run until the socket closes, or `end`."""
        self._writer = writer
        writer.writelines(self._waiting)
        try:
            while not self._over and (line := await reader.readline()):
                await self.say(Line(self.c, line.rstrip(b"\n").decode("utf-8", "replace")))
        except (OSError, ValueError):  # reset, or a line over the limit
            pass
        finally:
            writer.close()
            if not self._over:
                self._over = True
                with contextlib.suppress(OSError):
                    await self.say(Shut(self.c))

    def receive(self, text: str) -> None:
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
