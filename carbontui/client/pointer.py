"""Records which checkpoint the training has left, for the next start of the command and for its keeper.

A file next to the marker. It names the newest checkpoint, and earlier ones that the keeper falls back to if the newest
cannot be resumed from (`carbontui/job/keeper/resume.py`).
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional, Sequence

from carbontui.client import marker

REPEAT_MOST_S = 600.0
"""At most this much work is repeated if the checkpoint of an unload proves unusable."""


def write(kind: str, path: str, step: int, earlier: Sequence[Dict[str, Any]]) -> None:
    """Point to `path`, of step `step`; `earlier`: path and step each, newest first. `kind`: which framework reads
    them. Does nothing outside a job, or on ranks that are not the first of their host. Raises OSError."""
    if os.environ.get("CARBONTUI_MARKER") and os.environ.get("LOCAL_RANK", "0") in ("", "0"):
        body = {"framework": kind, "path": path, "step": step, "earlier": list(earlier)}
        marker.write_atomic(_file(), json.dumps(body).encode())


def read(kind: Optional[str] = None) -> Optional[str]:
    """The path it points to, of this kind if one is given. Raises OSError, ValueError."""
    found = entries(kind)
    return found[0]["path"] if found else None


def entries(kind: Optional[str] = None) -> List[Dict[str, Any]]:
    """Path and step of every checkpoint it names, the one it points to first. Raises OSError, ValueError."""
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
