"""The two newest checkpoints of a script: the newest in its place, and next to it the previous one.

Two, because the newest may prove unusable: then the keeper restarts the command from the previous one, if that is at
most ten minutes of work older (`pointer.py`). Only a checkpoint that this process has written or resumed from is kept
as the previous one; a checkpoint that did not load never replaces one that did.
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
    """The newest checkpoint at `path`, a file or a folder, and the previous one at `path`.before."""

    def __init__(self, path: str) -> None:
        self.path, self.before, self.part = path, path + ".before", path + ".part"
        self.good_step: Optional[int] = None
        """Step of the checkpoint that this process last wrote or resumed from."""
        self._good = path
        self._worked_s = 0.0
        """Running seconds of the process at that time."""

    def load(self, read: Callable[[str], int]) -> Optional[int]:
        """Have `read` resume from the newest checkpoint, or from the previous one if the keeper says so. Returns its
        step; None if there is no checkpoint. Raises what `read` raises."""
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
        """Keep the newest as the previous one, and have `put` write a new one in its place. Raises OSError."""
        good = self.good_step is not None and self._good == self.path and os.path.exists(self.path)
        if os.path.isdir(self.path):
            shutil.rmtree(self.before if good else self.path, ignore_errors=True)
            if good:  # a kill between here and the end of `put` leaves .before and .part; see _chosen
                os.replace(self.path, self.before)
        elif good:
            self._link()
        put()

    def saved(self, step: int) -> None:
        """The new one is in place: record where to resume from. On every rank."""
        earlier: List[Dict[str, Any]] = []
        repeated_s = api.gate.running_s() - self._worked_s
        # with several checkpoint functions, going back with only one would be inconsistent
        if self.good_step is not None and repeated_s <= pointer.REPEAT_MOST_S and len(api.gate.savers) == 1:
            earlier = [{"path": os.path.abspath(self.before), "step": self.good_step}]
        self._hold(self.path, step)
        with contextlib.suppress(OSError):  # a full or missing job directory must not end a training
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
        """Hard-link the newest to the second name, so that the first always exists; if impossible, keep no previous."""
        part = self.before + ".part"
        with contextlib.suppress(OSError):
            os.unlink(part)
        try:
            os.link(self.path, part)
            os.replace(part, self.before)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self.before)
