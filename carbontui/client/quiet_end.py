"""The end of a try or an estimate: the keeper's interrupt leaves no traceback of the user's script in their output.

The keeper names its own interrupt by a file beside the marker; any other acts as it would without us. A command that
is this process alone ends at its next step boundary, as by sys.exit(0). Below a shell or a launcher it is interrupted
like them (after an orderly exit a shell would go on with its next line), and only the traceback is left out.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from carbontui.client.gate import Gate

VARIABLES = ("CARBONTUI_TRY", "CARBONTUI_ESTIMATE")


def arm(gate: Gate) -> None:
    """Handle the interrupt, unless the script does so itself."""
    mine = any(os.environ.get(name) == "1" for name in VARIABLES)
    default = mine and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not default or threading.current_thread() is not threading.main_thread():
        return
    named = os.environ.get("CARBONTUI_MARKER", "") + ".end"

    def caught(number: int, frame: Any) -> None:
        if os.path.exists(named):
            if os.getpid() == os.getpgrp():
                gate.end()
                return
            sys.excepthook = _quiet(sys.excepthook)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, caught)


def _quiet(inner: Any) -> Any:
    def hook(kind: Any, error: Any, trace: Any) -> None:
        if kind is not KeyboardInterrupt:
            inner(kind, error, trace)

    return hook
