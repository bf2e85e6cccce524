"""The two newest checkpoints of a script, and the file that says which checkpoint a training has left.

Two, because the newest may prove unusable: then the keeper restarts the command from the previous one, if that is at
most ten minutes of work older. Only a checkpoint that this process has written or resumed from is kept as the previous
one; a checkpoint that did not load never replaces one that did.

The file lies next to the marker, for the next start of the command and for its keeper. It names the newest checkpoint,
and earlier ones that the keeper falls back to (`carbontui/job/keeper/resume.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

from carbontui.client import api, marker

REPEAT_MOST_S = 600.0
"""At most this much work is repeated if the checkpoint of an unload proves unusable."""


def point_to(kind: str, path: str, step: int, earlier: Sequence[Dict[str, Any]]) -> None:
    """Point to `path`, of step `step`; `earlier`: path and step each, newest first. `kind`: which framework reads
    them. Does nothing outside a job, or on ranks that are not the first of their host. Raises OSError."""
    if marker.ours():
        body = {"framework": kind, "path": path, "step": step, "earlier": list(earlier)}
        marker.write_atomic(_file(), json.dumps(body).encode())


def entries(kind: Optional[str] = None) -> List[Dict[str, Any]]:
    """Path and step of every checkpoint it names, of this kind if one is given, the one it points to first. Raises
    OSError, ValueError."""
    with open(_file()) as file:
        body = json.load(file)
    if not isinstance(body, dict) or kind not in (None, body.get("framework")):
        return []
    earlier = body.get("earlier")
    named = [body, *(earlier if isinstance(earlier, list) else ())]
    found = [one if isinstance(one, dict) else {} for one in named]
    if not isinstance(found[0].get("path"), str):
        return []
    return [{"path": one["path"], "step": one.get("step")} for one in found if isinstance(one.get("path"), str)]


def _file() -> str:
    return os.environ.get("CARBONTUI_MARKER", "") + ".checkpoint"


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
        if self.good_step is not None and repeated_s <= REPEAT_MOST_S and len(api.gate.savers) == 1:
            earlier = [{"path": os.path.abspath(self.before), "step": self.good_step}]
        self._hold(self.path, step)
        with contextlib.suppress(OSError):  # a full or missing job directory must not end a training
            point_to(KIND, os.path.abspath(self.path), step, earlier)

    def _chosen(self) -> str:
        if os.environ.get("CARBONTUI_RESUME"):
            with contextlib.suppress(OSError, ValueError):
                named = [one["path"] for one in entries(KIND)]
                if named[:1] == [os.path.abspath(self.before)] and os.path.exists(self.before):
                    return self.before
        cut = os.path.isdir(self.part) and os.path.isdir(self.before) and not os.path.exists(self.path)
        return self.before if cut else self.path

    def _hold(self, path: str, step: int) -> None:
        self._good, self.good_step, self._worked_s = path, step, api.gate.running_s()

    def _link(self) -> None:
        """Hard-link the newest to the second name, so that the first always exists; if impossible, keep no previous."""
        part = self.before + ".part"
        marker.remove(part)
        try:
            os.link(self.path, part)
            os.replace(part, self.before)
        except OSError:
            marker.remove(self.before)
