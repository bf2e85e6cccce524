"""What pauses a training, and its link to the supervisor."""

import importlib
import os
from typing import Any


def late(name: str) -> Any:
    """A module of this package when it is first needed; the job's own copy of it where an upgrade of this environment
    has removed or replaced ours."""
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except Exception:
        __path__[:] = [os.path.dirname(os.environ["CARBONTUI_MARKER"]) + "/hook/" + __name__.replace(".", "/")]
        return importlib.import_module(f"{__name__}.{name}")
