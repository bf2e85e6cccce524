"""What is needed to restart a job's command after its keeper is lost: the keeper's spec and the environment, on disk.

Written 0600 when a job starts, on local file systems only, and deleted when the job is over. It contains no grid API
keys, and nothing that belongs to the login session the job was started from.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carbontui import paths
from carbontui.job.terms import records

FILE = "environment.json"
OF_THE_SESSION = ("SLURM_", "SSH_", "TMUX", "XDG_RUNTIME_DIR")
"""Variables with these prefixes belong to a session that a later start is not part of."""


def save(directory: Path, spec: Mapping[str, Any]) -> bool:
    """Store the spec of a job's keeper; False if the job's directory is not on a local file system, or is full."""
    from carbontui.job.files import journal

    if journal.filesystem_of(directory) not in journal.LOCAL_FILESYSTEMS:
        return False
    theirs = {name: value for name, value in spec["environment"].items() if not name.startswith(OF_THE_SESSION)}
    of_this_start = {"stdin": None, "others": (), "closes": ()}
    data = json.dumps({**spec, "environment": theirs, "input": {**spec["input"], **of_this_start}}).encode()
    try:
        paths.write_whole(directory / FILE, data, durable=True)
    except OSError:
        with contextlib.suppress(OSError):
            (directory / FILE).unlink()
        return False
    return True


def load(directory: Path) -> dict[str, Any] | None:
    """The stored spec; None if it is missing or unusable, or if other users could have written it."""
    path = directory / FILE
    try:
        info = path.lstat()
        found = json.loads(records.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return None
    ours = info.st_uid == os.getuid() and not info.st_mode & 0o077
    whole = isinstance(found, dict) and isinstance(found.get("environment"), dict) and bool(found.get("argv"))
    return found if ours and whole else None


def kept(directory: Path) -> bool:
    """Whether the job could be started again."""
    return (directory / FILE).exists()
