"""The two newest checkpoints of a script: the newest in its place, and beside it the one before.

Two, because the newest may turn out to be none: then the keeper starts the command again from the one before, where
that is of the last ten minutes of work (`pointer.py`). Only a checkpoint that this process has written or gone on from
is kept as the one before; what did not load never takes the place of what did.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import Any, Callable, Dict, List, Optional

from carbontui.client import api, pointer

KIND = "script"


class Kept:
    """The newest checkpoint at `path`, a file or a folder, and the one before it at `path`.before."""

    def __init__(self, path: str) -> None:
        self.path, self.before, self.part = path, path + ".before", path + ".part"
        self.good_step: Optional[int] = None
        """Of the checkpoint that this process has last written, or gone on from."""
        self._good = path
        self._worked_s = 0.0
        """The running seconds of the process when that was."""

    def load(self, read: Callable[[str], int]) -> Optional[int]:
        """Have `read` resume from the newest checkpoint, or from the one before it where the keeper says so: the step
        that it returns; None where there is no checkpoint. Raises what it raises."""
        path = self._chosen()
        if not os.path.exists(path):
            return None
        if path == self.before:
            sys.stderr.write(f"carbontui: going on from {path}\n")
        try:
            step = read(path)
        except Exception:
            if path == self.path and os.path.exists(self.before):
                sys.stderr.write(f"carbontui: cannot resume from {path}; the checkpoint before it: {self.before}\n")
            raise
        self._hold(path, step)
        return step

    def place(self, put: Callable[[], Any]) -> None:
        """Keep the newest as the one before, and have `put` put a new one in its place. Raises OSError."""
        good = self.good_step is not None and self._good == self.path and os.path.exists(self.path)
        if os.path.isdir(self.path):
            shutil.rmtree(self.before if good else self.path, ignore_errors=True)
            if good:  # a kill between here and the end of `put` leaves .before and .part: see _chosen
                os.replace(self.path, self.before)
        elif good:
            self._link()
        put()

    def saved(self, step: int) -> None:
        """The new one is in its place: where to resume from is written down. On every rank."""
        earlier: List[Dict[str, Any]] = []
        repeated_s = api.gate.running_s() - self._worked_s
        # one of several checkpoint functions that went back alone would not fit the others
        if self.good_step is not None and repeated_s <= pointer.REPEAT_MOST_S and len(api.gate.savers) == 1:
            earlier = [{"path": os.path.abspath(self.before), "step": self.good_step}]
        self._hold(self.path, step)
        with contextlib.suppress(OSError):  # a job's directory that is full or gone is no reason to end a training
            pointer.write(KIND, os.path.abspath(self.path), step, earlier)

    def _chosen(self) -> str:
        if os.environ.get("CARBONTUI_RESUME"):
            with contextlib.suppress(OSError, ValueError):
                if pointer.read(KIND) == os.path.abspath(self.before) and os.path.exists(self.before):
                    return self.before
        cut = os.path.isdir(self.part) and os.path.isdir(self.before) and not os.path.exists(self.path)
        return self.before if cut else self.path

    def _hold(self, path: str, step: int) -> None:
        self._good, self.good_step, self._worked_s = path, step, api.gate.running_s()

    def _link(self) -> None:
        """A second name, so that there is a file of the first at every moment; where there can be none, none before."""
        part = self.before + ".part"
        with contextlib.suppress(OSError):
            os.unlink(part)
        try:
            os.link(self.path, part)
            os.replace(part, self.before)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self.before)
