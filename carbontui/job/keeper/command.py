"""Starts the user's command as it would run without carbontui."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carbontui.client import inject
from carbontui.job.keeper import files, signals
from carbontui.system import isolation, life


class CannotStart(Exception):
    """The command could not be started; `code` is the exit code a shell would give."""

    def __init__(self, code: int) -> None:
        self.code = code


def build_hook(directory: str, log: Callable[[str], None]) -> None:
    """Write what the command's Python loads of us."""
    try:
        inject.build(f"{directory}/hook")
    except OSError as error:
        log(f"the hook directory could not be written, the script runs unsteered: {error}")


def start(
    spec: Mapping[str, Any],
    argv: Sequence[str],
    environment: Mapping[str, str],
    surroundings: dict[str, Any],
    log: Callable[[str], None],
) -> subprocess.Popen[bytes]:
    """Start it in its own session, output to run.log. Raises CannotStart, with the reason in run.log."""

    def as_the_user_has_it() -> None:
        """Between fork and exec: undo the keeper's own process settings."""
        isolation.give(surroundings)
        signals.unblock()

    output, lock = _open_log(spec["log"], log), None
    with contextlib.suppress(OSError):
        lock = files.locked(f"{spec['job_dir']}/{life.TRAINING_LOCK}")
    try:
        return subprocess.Popen(
            argv,
            cwd=spec["cwd"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
            preexec_fn=as_the_user_has_it,
        )
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        # the folder may have been removed since the first start
        what = argv[0] if os.path.isdir(spec["cwd"]) else f"the folder {spec['cwd']}"  # noqa: PTH112
        with contextlib.suppress(OSError):
            os.write(output, f"carbontui: {what}: {error.strerror}\n".encode(errors="replace"))
        raise CannotStart(127 if missing else 126) from None
    finally:
        os.close(output)
        if lock is not None:
            os.close(lock)


def say(path: str, text: str) -> None:
    """Append a line of ours to the command's output; ignored if it cannot be written."""
    with contextlib.suppress(OSError):
        output = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(output).st_size
            begun = size > 0 and os.pread(output, 1, size - 1) != b"\n"
            os.write(output, b"\n" * begun + f"carbontui: {text}\n".encode())
        finally:
            os.close(output)


def _open_log(path: str, log: Callable[[str], None]) -> int:
    """A descriptor of run.log; /dev/null if it cannot be opened (folder gone, no inode left): training matters more."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        log(f"run.log cannot be opened, the output of this start is lost: {error}")
        return os.open(os.devnull, os.O_WRONLY)
