"""What a process has met before its first step, in a file beside the marker: the tool tells by it why none is seen.

Lines of `PID WORD`, appended by every process of the job in which something of a training is imported. Words: the name
of a module the hook waits for, and OPTIMIZER, BACKWARD, CAPTURED.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Set

OPTIMIZER = "optimizer"
"""An optimizer of torch's has been made."""
BACKWARD = "backward"
"""Gradients were computed several times, and there was no optimizer of torch's."""
CAPTURED = "captured"
"""A CUDA graph was recorded."""
BACKWARDS = 3
SIZE_MAX = 64 * 1024
"""Bytes of the file: a job that starts thousands of processes writes no more."""
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
    """torch.optim is being imported: look whether gradients are made without an optimizer, and then look no more."""
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
