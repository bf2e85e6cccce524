"""Evidence of a training before its first step, in a file next to the marker: used to explain why no step is seen.

Lines of `PID WORD`, appended by every process of the job that imports a training library. Words: the name of a module
the hook waits for, and OPTIMIZER, BACKWARD, CAPTURED.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Set

OPTIMIZER = "optimizer"
"""A torch optimizer was created."""
BACKWARD = "backward"
"""Gradients were computed several times without a torch optimizer."""
CAPTURED = "captured"
"""A CUDA graph was recorded."""
BACKWARDS = 3
SIZE_MAX = 64 * 1024
"""Maximum bytes of the file, for jobs that start thousands of processes."""
_noted: Set[str] = set()


def note(word: str) -> None:
    """Write it down, once per process; nothing is raised."""
    marker = os.environ.get("CARBONTUI_MARKER")
    if not marker or word in _noted:
        return
    _noted.add(word)
    try:
        fd = os.open(marker + ".evidence", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.fstat(fd).st_size < SIZE_MAX:
                os.write(fd, f"{os.getpid()} {word}\n".encode())
        finally:
            os.close(fd)
    except OSError:
        return


def on_gradients() -> None:
    """torch.optim is being imported: check once whether gradients are computed without an optimizer."""
    autograd = sys.modules.get("torch.autograd")
    inner = getattr(autograd, "_engine_run_backward", None)
    if inner is None:
        return
    seen = 0

    @functools.wraps(inner)
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen >= BACKWARDS or OPTIMIZER in _noted:
            autograd._engine_run_backward = inner  # type: ignore[union-attr]
            if OPTIMIZER not in _noted:
                note(BACKWARD)
        return inner(*args, **kwargs)

    autograd._engine_run_backward = _engine_run_backward  # type: ignore[union-attr]
