"""Runs external commands (ssh, srun, squeue) with bounds on time and output."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

CHUNK_B = 65536


def answer(
    command: Sequence[str],
    *,
    within_s: float | None,
    most_b: int,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Its exit status, stdout and stderr, each of `most_b` at most.

    Raises OSError, subprocess.TimeoutExpired, or OverflowError if it writes more. An abandoned command is killed, and
    its children are not waited for: a wrapper's child may hold its pipes for ever.
    """
    due = None if within_s is None else time.monotonic() + within_s
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            command, env=environment, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    with process, selectors.DefaultSelector() as waiting:
        said = [bytearray(), bytearray()]
        for stream, text in zip((process.stdout, process.stderr), said, strict=True):
            assert stream is not None
            waiting.register(stream, selectors.EVENT_READ, text)
        try:
            while waiting.get_map():
                left_s = None if due is None else due - time.monotonic()
                ready = waiting.select(left_s) if left_s is None or left_s > 0 else []
                if not ready:
                    raise subprocess.TimeoutExpired(command, within_s or 0.0)
                for key, _ in ready:
                    key.data.extend(piece := os.read(key.fd, CHUNK_B))
                    if not piece:
                        waiting.unregister(key.fileobj)
                    if len(key.data) > most_b:
                        raise OverflowError(f"{command[0]} says more than {most_b // 2**20} MiB")
            process.wait(None if due is None else max(0.0, due - time.monotonic()))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, *map(bytes, said))
