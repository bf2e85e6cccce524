"""`serve --stdio`: the socket's protocol on stdin and stdout, for use over ssh."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from carbontui.verbs import talk
from carbontui.verbs.completion import any_jobs
from carbontui.verbs.failure import Failure

CHUNK_B = 65536


async def bridge(path: str) -> None:
    """Copy both ways until either side closes. A thread reads stdin, as asyncio cannot watch a file. Raises OSError."""
    reader, writer = await asyncio.open_unix_connection(path)
    loop = asyncio.get_running_loop()

    async def up() -> None:
        while data := await loop.run_in_executor(None, os.read, 0, CHUNK_B):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def down() -> None:
        while data := await reader.read(CHUNK_B):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    upward = asyncio.ensure_future(up())
    await down()
    upward.cancel()
    # os._exit does not wait for the thread that may still block in read()
    sys.stdout.flush()
    os._exit(0)


@click.command(short_help="The socket's protocol on stdin and stdout, for ssh.")
@click.option("--stdio", is_flag=True, required=True, help="Speak on stdin and stdout.")
@click.argument("job", required=False, shell_complete=any_jobs)
def serve(stdio: bool, job: str | None) -> None:
    """Speak job.sock's protocol on stdin and stdout: ssh host carbontui serve --stdio"""
    found = talk.find(job)
    if found.foreign or not found.live:
        raise Failure(f"job {found.id} is not running here", 3)
    try:
        asyncio.run(bridge(str(found.socket)))
    except OSError as error:
        raise Failure(f"no supervisor of job {found.id} answers ({error.strerror})", 3) from None
