"""The agent of one node of a job: `python -m carbontui.nodes.node`, started through srun or ssh by the supervisor.

It opens the node's job.sock for the ranks there and carries their lines to the supervisor, and it runs the node's power
agent. Its standard input and output are the wire. It decides nothing: when the wire is lost it exits, limits are
restored, and the ranks, whose leases expire, continue training.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from carbontui import __version__, paths
from carbontui.nodes.messages import BEAT_S, LINE_MAX, UNRESPONSIVE_S, Line, Open, Relay, Shut, ToNode, Up
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.backends.declared import DeclaredBoards
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.messages import AgentLine, Bye, DesiredPower, Done, Gone, Poke, Report, ToSupervisor, encode
from carbontui.system import isolation, local_socket, untrusted

RANK_LINE_MAX = 64 * 1024
BEHIND_B = 1024 * 1024
"""With more than this unsent, readings are skipped: later ones contain the same information."""
REBIND_S = 2.0
ENDING = 1 << 40
"""Added to the generation of a wish that restores limits because the end was announced."""


class NodeBoards(AgentHandle):
    """The boards here; `pass_on` gets whatever their agent says."""

    pass_on: Callable[[ToSupervisor], None]

    def take(self, message: ToSupervisor) -> None:
        super().take(message)
        self.pass_on(message)


class NodeAgent:
    """Between the wire (`reader`, `writer`) and this node."""

    def __init__(self, path: Path, boards: NodeBoards, wire: tuple[asyncio.StreamReader, asyncio.StreamWriter]):
        self._path = path
        self._boards = boards
        self._reader, self._writer = wire
        self._relays: dict[int, Relay] = {}
        self._numbers = 0
        self._inode: int | None = None
        self._server: asyncio.Server | None = None
        self._received_s = time.monotonic()
        self._ending = False
        """The scheduler has announced the end: limits are restored now, since later may be too late."""
        self._wish = DesiredPower()

    async def run(self) -> None:
        """Run until the wire ends or has been silent for too long."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end_announced)
        self._boards.pass_on = self._pass_on
        await self._boards.start()
        chores = [asyncio.ensure_future(part()) for part in (self._beat, self._keep_open)]
        listening = asyncio.ensure_future(self._listen())
        try:
            while not listening.done() and time.monotonic() - self._received_s < UNRESPONSIVE_S:
                await asyncio.wait([listening], timeout=BEAT_S)
        finally:
            for task in (listening, *chores):
                task.cancel()
            await self._leave()

    async def _leave(self) -> None:
        outcomes = await self._boards.close()
        self._send(Gone(outcomes))
        local_socket.remove(self._path, self._inode)
        for relay in list(self._relays.values()):
            relay.end()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.drain(), 0.5)

    def _end_announced(self) -> None:
        self._ending = True
        self._apply_order(self._wish)

    # --- what comes ---

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            self._received_s = time.monotonic()
            try:
                message: ToNode = untrusted.decode(line, ToNode)  # type: ignore[arg-type]
            except ValueError as error:
                self._send(AgentLine(f"not a valid message: {error}"))
                continue
            if isinstance(message, Bye):
                return
            if isinstance(message, DesiredPower):
                self._apply_order(message)
            elif isinstance(message, Poke):
                await self._boards.refresh()
            elif (relay := self._relays.get(message.c)) is not None:
                relay.receive(message.text) if isinstance(message, Line) else relay.end()

    def _apply_order(self, wish: DesiredPower) -> None:
        self._wish = wish
        if self._ending:
            wish = structs.replace(wish, limit_w=None, gen=wish.gen + ENDING)
        self._boards.change(**structs.asdict(wish))

    # --- what goes ---

    def _send(self, message: Struct) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def _say(self, message: Line | Shut) -> None:
        """Send a line of a connection, waiting while the wire is full."""
        if isinstance(message, Shut):
            self._relays.pop(message.c, None)
        self._send(message)
        await self._writer.drain()

    async def _beat(self) -> None:
        while True:
            self._send(Up(__version__, socket.gethostname(), os.getpid()))
            await asyncio.sleep(BEAT_S)

    def _pass_on(self, message: ToSupervisor) -> None:
        """What the boards' agent has said goes to the supervisor."""
        if isinstance(message, Done):
            self._send(structs.replace(message, gen=message.gen % ENDING))
        elif isinstance(message, Report) and self._writer.transport.get_write_buffer_size() < BEHIND_B:
            self._send(Report(message.readings, tuple(self._boards.drain())))

    # --- the node's job.sock ---

    async def _keep_open(self) -> None:
        """Bind, and rebind if the socket has vanished or the agent before has removed it."""
        while True:
            try:
                if self._inode is None or self._path.stat().st_ino != self._inode:
                    raise FileNotFoundError
            except OSError:
                await self._bind()
            await asyncio.sleep(REBIND_S)

    async def _bind(self) -> None:
        try:
            paths.private_dir(self._path.parent)
            listener, self._inode = local_socket.listen(self._path)
        except OSError as error:
            self._send(AgentLine(f"{self._path} cannot be bound, no rank here can connect: {error}"))
            return
        old = self._server
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=RANK_LINE_MAX)
        if old is not None:
            old.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not local_socket.may_speak(writer.get_extra_info("socket")):
            writer.close()
            return
        self._numbers += 1
        relay = self._relays[self._numbers] = Relay(self._numbers, self._say)
        self._send(Open(relay.c))
        await relay.carry(reader, writer)
        self._relays.pop(relay.c, None)


async def _wire() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sys.stdout
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def _main(options: argparse.Namespace) -> None:
    reader, writer = await _wire()

    def log(text: str) -> None:
        if not writer.is_closing():
            writer.write(encode(AgentLine(text)))

    given = {name: getattr(options, name) for name in ("simulated", "declared", "job", "monitor")}
    boards = NodeBoards(**given, log=log, cwd=Path("/"))
    await NodeAgent(Path(options.socket), boards, (reader, writer)).run()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(prog="carbontui.nodes.node")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--simulated", type=partial(msgspec.json.decode, type=SimulatedSpec), help="as JSON")
    parser.add_argument("--declared", type=partial(msgspec.json.decode, type=DeclaredBoards), help="as JSON")
    parser.add_argument("--monitor", action="store_true", help="never write a limit")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    isolation.first_to_go()
    asyncio.run(_main(options))


if __name__ == "__main__":
    main()
