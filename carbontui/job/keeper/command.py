"""Starts the user's command as it would run without carbontui."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carbontui.client import inject
from carbontui.job.keeper import signals
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
    *,
    again: bool,
) -> subprocess.Popen[bytes]:
    """Start it in its own session, output to run.log, stderr to run.err where it is apart, with the descriptors that
    `run` was handed. Raises CannotStart, with the reason among its errors.
    """

    def as_the_user_has_it() -> None:
        """Between fork and exec: undo the keeper's own process settings."""
        isolation.give(surroundings)
        signals.unblock()

    lock: int | None = None

    def started(words: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            cwd=spec["cwd"],
            env=environment,
            stdin=stdin,
            stdout=output,
            stderr=errors,
            pass_fds=(*spec["input"]["others"], *(() if lock is None else (lock,))),
            start_new_session=True,
            preexec_fn=as_the_user_has_it,
        )

    output = _open_log(spec["log"], log)
    errors = _open_log(spec["err"], log) if spec["err"] else os.dup(output)
    stdin = open_input(spec, log, again=again)
    with contextlib.suppress(OSError):
        lock = life.locked(f"{spec['job_dir']}/{life.TRAINING_LOCK}")
    try:
        try:
            return started(argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # a script without its first line: a shell's own affair
            script = shutil.which(argv[0], path=environment.get("PATH")) or argv[0]
            return started(["/bin/sh", script, *argv[1:]])
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        # the folder may have been removed since the first start
        what = argv[0] if os.path.isdir(spec["cwd"]) else f"the folder {spec['cwd']}"  # noqa: PTH112
        with contextlib.suppress(OSError):
            os.write(errors, f"carbontui: {what}: {error.strerror}\n".encode(errors="replace"))
        raise CannotStart(127 if missing else 126) from None
    finally:
        once = spec["input"]["closes"]  # pipes: who writes into them is to see when the command ends
        for fd in (output, errors, stdin, *once, *(() if lock is None else (lock,))):
            os.close(fd)
        given = spec["input"]
        given |= {"closes": (), "others": [fd for fd in given["others"] if fd not in once]}
        given["stdin"] = None if given["stdin"] in once else given["stdin"]


def open_input(spec: Mapping[str, Any], log: Callable[[str], None], *, again: bool) -> int:
    """A descriptor of the command's standard input: the one that `run` was handed; a file, for a later start, from
    where it began. /dev/null if there is none."""
    given, path = spec["input"]["stdin"], spec["input"]["path"]
    try:
        if given is not None and not (again and path):
            return os.dup(given)
        if path:
            stdin = os.open(path if given is None else f"/proc/self/fd/{given}", os.O_RDONLY)
            os.lseek(stdin, spec["input"]["begin"], os.SEEK_SET)
            say(spec, f"standard input ({path}) is read again from its start")
            return stdin
    except OSError as error:
        why = f"standard input ({path or 'a pipe'}) cannot be read again: {error.strerror}"
        log(why)
        say(spec, why)
    return os.open(os.devnull, os.O_RDONLY)


def say(spec: Mapping[str, Any], text: str) -> None:
    """Append a line of ours to the command's errors; ignored if it cannot be written."""
    with contextlib.suppress(OSError):
        output = os.open(spec["err"] or spec["log"], os.O_RDWR | os.O_APPEND)
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
