"""Runs external commands (ssh, srun, squeue, systemctl) with bounds on time and output."""

import math
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from carbontui.system import proc

CHUNK_B = 65536
POLL_S = 0.1
"""Between two questions whether to give up."""
CONTROL_S = 30.0


def answer(
    command: Sequence[str],
    *,
    within_s: float | None,
    most_b: int,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    given_up: Callable[[], bool] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Its exit status, stdout and stderr, each of `most_b` at most.

    Raises OSError, subprocess.TimeoutExpired, or OverflowError if it writes more. An abandoned command is killed, and
    its children are not waited for: a wrapper's child may hold its pipes for ever. Once `given_up` it is killed with
    all that it has started, and InterruptedError raised.
    """
    due = None if within_s is None else time.monotonic() + within_s
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=given_up is not None,
        )
    with process, selectors.DefaultSelector() as waiting:
        said = [bytearray(), bytearray()]
        for stream, text in zip((process.stdout, process.stderr), said, strict=True):
            assert stream is not None
            waiting.register(stream, selectors.EVENT_READ, text)
        try:
            while waiting.get_map():
                left_s = math.inf if due is None else due - time.monotonic()
                if left_s <= 0:
                    raise subprocess.TimeoutExpired(command, within_s or 0.0)
                if given_up is not None and given_up():
                    proc.signal_group(process.pid, signal.SIGKILL)
                    raise InterruptedError(f"{command[0]}: given up")
                look_s = left_s if given_up is None else min(left_s, POLL_S)
                ready = waiting.select(None if math.isinf(look_s) else look_s)
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


class SystemdError(RuntimeError):
    """systemctl failed; the text has the command and what it said."""


def systemd_runs() -> bool:
    """Whether systemd is this machine's init and takes orders."""
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def systemctl(*words: str) -> None:
    """Give systemctl an order. Raises SystemdError."""
    command = ("systemctl", *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONTROL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemdError(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise SystemdError(f"{' '.join(command)}: {said[-1] if said else f'exit {done.returncode}'}")


def user() -> str:
    """This user as loginctl names it."""
    return os.environ.get("USER") or str(os.getuid())


def lingers() -> bool:
    """Whether this user's services run without a login."""
    return Path("/var/lib/systemd/linger", user()).exists()
