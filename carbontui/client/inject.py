"""Injects the client into an unmodified script: a directory for PYTHONPATH, and the environment of the child.

The directory contains carbontui/__init__.py, the client and a sitecustomize.py, nothing else: a training environment
never sees the tool's own packages. Used by the keeper's side, never inside the training process.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict, Mapping, Union

_LEFT_OUT = {"inject.py", "pth.py", "sitecustomize.py", "unseen.py"}
"""Files used only by the tool itself."""
_PACKAGE = ("__init__.py", "callbacks.py", "job/__init__.py", "py.typed", "train.py")
"""What scripts name."""


def build(hook_dir: Union[str, Path]) -> Path:
    """Write the directory (0700), replacing files of an older version; returns it. Raises OSError."""
    source = Path(__file__).resolve().parent
    target = Path(hook_dir)
    package = target / "carbontui"
    files = [file for file in source.rglob("*.py") if file.name not in _LEFT_OUT]
    for file in [*(source.parent / name for name in _PACKAGE), *files]:
        copy = package / file.relative_to(source.parent)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    shutil.copyfile(source / "sitecustomize.py", target / "sitecustomize.py")
    return target


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
    env = dict(base)
    # a job started from within another: two hooks would count every step twice
    hooks = {str(hook_dir), base.get("CARBONTUI_HOOK")}
    given = base.get("PYTHONPATH")  # an empty entry is the current folder, but an empty one has none
    paths = [path for path in given.split(os.pathsep) if path not in hooks] if given else []
    env["PYTHONPATH"] = os.pathsep.join([str(hook_dir), *paths])
    env["CARBONTUI_SOCKET"] = str(socket)
    env["CARBONTUI_JOB"] = job
    env["CARBONTUI_MARKER"] = str(marker)
    env["CARBONTUI_HOOK"] = str(hook_dir)
    for name, path in (("CARBONTUI_RUN_LOG", log), ("CARBONTUI_RUN_ERR", err)):
        env.pop(name, None)
        if path:
            env[name] = str(path)
    for name in ("CARBONTUI_RESUME", "CARBONTUI_START_STEP"):  # from a job that started this one
        env.pop(name, None)
    if resume:
        env["CARBONTUI_RESUME"] = "1"
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def as_on_a_terminal(base: Mapping[str, str], columns: int, rows: int) -> Dict[str, str]:
    """For a job started on a terminal: its output goes to a file, but looks as it would on the terminal.

    In colour and of the terminal's size, unless `base` says otherwise. Elsewhere (Slurm, cron, a pipe) a program must
    see the same environment as without us.
    """
    env = dict(base)
    if "NO_COLOR" not in base:
        env.setdefault("FORCE_COLOR", "1")
    env.setdefault("TTY_COMPATIBLE", "1")
    env.setdefault("COLUMNS", str(columns))
    env.setdefault("LINES", str(rows))
    return env
