"""Injects the client into an unmodified script: a directory for PYTHONPATH, and the environment of the child.

The directory contains carbontui/__init__.py, the client and a sitecustomize.py, nothing else: a training environment
never sees the tool's own packages. Used by the keeper's side, never inside the training process.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Dict, List, Mapping, TypeVar, Union

    Place = TypeVar("Place", str, Path)

_LEFT_OUT = {"inject.py", "pth.py", "sitecustomize.py", "unseen.py"}
"""Files used only by the tool itself."""
_PACKAGE = ("__init__.py", "callbacks.py", "job/__init__.py", "py.typed", "train.py")
"""What scripts name."""


_HERE = os.path.dirname(os.path.abspath(__file__))


def _files() -> List[str]:
    """What it holds of the package, by names relative to that."""
    walked = ((folder[len(_HERE) :], name) for folder, _, names in os.walk(_HERE) for name in names)
    ours = [f"client{below}/{name}" for below, name in walked if name.endswith(".py") and name not in _LEFT_OUT]
    return [*_PACKAGE, *sorted(ours)]


def build(hook_dir: Place) -> Place:
    """Write the directory (0700), replacing files of an older version; returns it. Raises OSError."""
    for name in _files():
        copy = f"{hook_dir}/carbontui/{name}"
        os.makedirs(os.path.dirname(copy), 0o700, exist_ok=True)
        _copy(f"{_HERE}/../{name}", copy)
    _copy(f"{_HERE}/sitecustomize.py", f"{hook_dir}/sitecustomize.py")
    return hook_dir


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        new.write(old.read())


def link(job_dir: str) -> None:
    """Give a job its directory, `hook`: a link to the copy of this version that all jobs beside it share, so that
    their Pythons compile it once. Raises OSError."""
    import zlib

    known = [(name, os.stat(f"{_HERE}/../{name}")) for name in [*_files(), "client/sitecustomize.py"]]
    version = zlib.crc32(repr([(name, one.st_size, one.st_mtime_ns) for name, one in known]).encode())
    jobs = os.path.dirname(job_dir)
    shared, name = f"{os.path.dirname(jobs)}/client", f"{version:08x}"
    there = os.path.isdir(f"{shared}/{name}")
    fresh, hook = f"{job_dir}/hook.{os.getpid()}", f"{job_dir}/hook"
    if not there:
        try:
            build(fresh)
            os.makedirs(shared, 0o700, exist_ok=True)
            os.rename(fresh, f"{shared}/{name}")
        except OSError:
            remove(fresh)
            if not os.path.isdir(f"{shared}/{name}"):  # no other job was first
                raise
    if os.path.isdir(hook) and not os.path.islink(hook):  # of an older version
        remove(hook)
    os.symlink(f"../../client/{name}", fresh)
    os.replace(fresh, hook)
    if not there:
        links = (f"{jobs}/{job}/hook" for job in os.listdir(jobs))
        used = {os.path.basename(os.readlink(link)) for link in links if os.path.islink(link)}
        for old in {*os.listdir(shared)} - used:
            remove(f"{shared}/{old}")


def remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def environment(
    base: Mapping[str, str],
    *,
    hook_dir: Union[str, Path],
    socket: Union[str, Path],
    job: str,
    marker: Union[str, Path],
    log: Union[str, Path, None] = None,
    err: Union[str, Path, None] = None,
    resume: bool = False,
) -> Dict[str, str]:
    """The child's environment: `base` with the hook in front of its PYTHONPATH and what the client needs to know.

    Output goes to a file, which Python would buffer by kilobytes: unbuffered unless `base` says otherwise.
    """
    # a job started from within another: two hooks would count every step twice
    hooks = {str(hook_dir), base.get("CARBONTUI_HOOK")}
    given = base.get("PYTHONPATH")  # an empty entry is the current folder, but an empty one has none
    paths = [path for path in given.split(os.pathsep) if path not in hooks] if given else []
    ours = {
        "PYTHONPATH": os.pathsep.join([str(hook_dir), *paths]),
        "CARBONTUI_SOCKET": socket,
        "CARBONTUI_JOB": job,
        "CARBONTUI_MARKER": marker,
        "CARBONTUI_HOOK": hook_dir,
        "CARBONTUI_RUN_LOG": log,
        "CARBONTUI_RUN_ERR": err,
        "CARBONTUI_RESUME": "1" if resume else None,
        "CARBONTUI_START_STEP": None,
    }
    # without those that a job has set which started this one
    every = {"PYTHONUNBUFFERED": "1", **base, **ours}
    return {name: str(value) for name, value in every.items() if value or name not in ours}


def as_on_a_terminal(base: Mapping[str, str], columns: int, rows: int) -> Dict[str, str]:
    """For a job started on a terminal: its output goes to a file, but looks as it would on the terminal.

    In colour and of the terminal's size, unless `base` says otherwise. Elsewhere (Slurm, cron, a pipe) a program must
    see the same environment as without us.
    """
    color = {} if "NO_COLOR" in base else {"FORCE_COLOR": "1"}
    return {**color, "TTY_COMPATIBLE": "1", "COLUMNS": str(columns), "LINES": str(rows), **base}
