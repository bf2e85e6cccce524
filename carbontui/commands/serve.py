"""`serve --stdio`: the socket's protocol on stdin and stdout, for use over ssh."""

import asyncio
import os
import sys

import click

from carbontui import protocol
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, any_jobs

CHUNK_B = 65536


READONLY = "this connection is read-only (serve --readonly)"


class ReadOnly:
    """Filters a viewer's input piece by piece: queries pass, anything that could change or steer a job is refused."""

    _rest = b""

    def piece(self, data: bytes) -> tuple[bytes, bytes]:
        """(lines for the supervisor, lines back to the viewer)."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        passed, answered = b"", b""
        for line in lines:
            refusal = self._refusal(line)
            if refusal is None:
                passed += line + b"\n"
            else:
                answered += protocol.encode(refusal)
        if len(self._rest) > protocol.LINE_MAX:
            self._rest = b""
            answered += protocol.encode(protocol.Refused(f"a line above {protocol.LINE_MAX} bytes"))
        return passed, answered

    def _refusal(self, line: bytes) -> protocol.Result | protocol.Refused | None:
        try:
            message = protocol.decode_from_peer(line)
        except protocol.BadMessage as error:
            return protocol.Refused(str(error)[:300])
        if isinstance(message, protocol.Cmd):
            return protocol.Result(message.id, False, error=f"{message.verb}: {READONLY}", exit_code=4)
        if isinstance(message, protocol.Hello):
            return None if message.role == "viewer" else protocol.Refused(f"role {message.role}: {READONLY}")
        # a message unknown to this version may be an order to a newer supervisor
        return None if isinstance(message, QUESTIONS) else protocol.Refused(READONLY)


QUESTIONS = (
    protocol.View,
    protocol.Preview,
    protocol.StatusAsk,
    protocol.LogRead,
    protocol.HistoryAsk,
    protocol.JobsAsk,
    protocol.EventsAsk,
    protocol.AbilitiesAsk,
)


async def bridge(path: str, *, readonly: bool) -> None:
    """Copy both ways until either side closes. A thread reads stdin, as asyncio cannot watch a file. Raises OSError."""
    reader, writer = await asyncio.open_unix_connection(path, limit=protocol.VIEWER_LINE_MAX)
    loop, looks = asyncio.get_running_loop(), ReadOnly()

    def say(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    async def up() -> None:
        while data := await loop.run_in_executor(None, os.read, 0, CHUNK_B):
            if readonly:
                data, answered = looks.piece(data)
                if answered:
                    say(answered)
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def down() -> None:
        # whole lines, as refusals are inserted between them
        while data := await (reader.readline() if readonly else reader.read(CHUNK_B)):
            say(data)

    upward = asyncio.ensure_future(up())
    await down()
    upward.cancel()
    # os._exit does not wait for the thread that may still block in read()
    sys.stdout.flush()
    os._exit(0)


@click.command()
@click.option("--stdio", is_flag=True, required=True, help="Speak on stdin and stdout.")
@click.option("--readonly", is_flag=True, help="Answer questions, refuse every order: for a restricted ssh key.")
@click.argument("job", required=False, shell_complete=any_jobs)
def serve(stdio: bool, readonly: bool, job: str | None) -> None:
    """Speak job.sock's protocol on stdin and stdout: ssh host carbontui serve --stdio

    \b
    In authorized_keys, for a key that may look and nothing else:
    restrict,command="carbontui serve --stdio --readonly" ssh-ed25519 ...
    """
    found = talk.find(job)
    if (known := found.life.state) != "alive":
        raise talk.unknown(found) if known == "unknown" else Failure(f"job {found.id} is not running here", 3)
    try:
        asyncio.run(bridge(str(found.socket), readonly=readonly))
    except OSError as error:
        raise Failure(f"no supervisor of job {found.id} answers ({error.strerror})", 3) from None
