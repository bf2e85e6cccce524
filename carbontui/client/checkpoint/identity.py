"""Whose a checkpoint is, and whether it is still what was written: several jobs may be unloaded in one folder.

The checkpoints of a job's unloads are in `.carbontui/<job>/` below the folder that the script or its framework writes
to; the job's pointer holds a checksum of each. After the job's success its keeper removes these folders.
"""

import glob
import hashlib
import json
import os
import shutil
import socket
import sys
from typing import Any, Dict, Optional

from carbontui.client import device, marker

FOLDER = ".carbontui"
WHOLE_B = 1 << 26
BLOCKS, BLOCK_B = 64, 1 << 18
"""Of a file above WHOLE_B, this many blocks of this size, evenly spread, first and last included, are hashed: another
run's weights differ in nearly all of them, and an unload is not delayed by reading many gigabytes again."""


def job() -> str:
    """The id of the job that this process belongs to, '' outside of one."""
    return os.environ.get("CARBONTUI_JOB", "") if os.environ.get("CARBONTUI_MARKER") else ""


def in_job_directory(name: str) -> str:
    """A place next to the job's journal, for the checkpoint of a framework that has no folder of its own."""
    return os.path.join(os.path.dirname(os.environ["CARBONTUI_MARKER"]), name)


def folder_below(root: str) -> str:
    """This job's folder below a framework's own; made by who writes there."""
    return os.path.join(os.path.abspath(root), FOLDER, job())


def is_ours(path: str) -> bool:
    """Whether it was written for an unload of this job, and is no other's to remove."""
    folder, name = os.path.split(os.path.abspath(path))
    mine = job() and folder.endswith(os.path.join(os.sep + FOLDER, job()))
    return bool(mine) or path == in_job_directory(name)


def remove(path: str) -> None:
    """Remove a file or a folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        marker.remove(path)


def checksum(path: str) -> Optional[str]:
    """SHA-256 of a file, or of the names and files of a folder; None if it is not there, or a pipe or device, which is
    not opened. Raises OSError."""
    found = hashlib.sha256()
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            found.update(f"{name}\0{checksum(os.path.join(path, name))}\0".encode(errors="surrogateescape"))
    elif os.path.isfile(path):
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            found.update(f"{size}\0".encode())
            blocks, each = (BLOCKS, BLOCK_B) if size > WHOLE_B else (1, size)
            for number in range(blocks):
                file.seek((size - each) * number // max(1, blocks - 1))
                found.update(file.read(each))
    else:
        return None
    return found.hexdigest()


def verified(one: Dict[str, Any]) -> str:
    """The path of a checkpoint that the job's pointer names. Ends the process with one line, before any step, if it is
    missing or not what this job has written: the keeper falls back to an earlier one, or the job has failed."""
    path = str(one["path"])
    if not os.path.exists(path):
        sys.exit(f"carbontui: the checkpoint of the unload is missing: {path}")
    if one.get("checksum") not in (None, checksum(path)):
        sys.exit(f"carbontui: {path} is not what job {job()} wrote when it was unloaded (another checksum)")
    return path


def of_another(path: str) -> str:
    """The job under way whose unload wrote what is at `path`, a file or folder named by several; '' if there is none.
    Our own files there are the same as in its job's folder."""
    folder, name = os.path.split(os.path.abspath(path))
    for twin in glob.glob(os.path.join(glob.escape(folder), FOLDER, "*", glob.escape(name))):
        owner = os.path.basename(os.path.dirname(twin))
        if owner != job() and same(twin, path) and _under_way(owner):
            return owner
    return ""


def same(one: str, other: str) -> bool:
    """Whether they are one file, or folders of which a first file is."""
    if os.path.isdir(one) and os.path.isdir(other):
        return any(same(os.path.join(one, name), os.path.join(other, name)) for name in os.listdir(one))
    return os.path.isfile(one) and os.path.isfile(other) and os.path.samefile(one, other)


def publish(path: str, to: str) -> None:
    """Make `to` the same file or folder as `path`, atomically for a file. Raises OSError."""
    part = to + ".part"
    remove(part)
    if os.path.isdir(path):
        shutil.copytree(path, part, copy_function=_link)
        remove(to)
    else:
        _link(path, part)
    os.replace(part, to)


def _link(path: str, to: str) -> None:
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)


def _under_way(other: str) -> bool:
    """Whether a job of ours has a keeper; of one on another host, whether it has not ended."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.environ["CARBONTUI_MARKER"])), other)
    try:
        with open(os.path.join(folder, "job.json")) as file:
            facts = json.load(file)
        pid, began = facts["pids"]["keeper"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if os.path.exists(os.path.join(folder, "exit.json")):
        return False
    return bool(facts.get("host") != socket.gethostname() or device.start_time(pid) == began)
