"""What a script prints where nobody asks anything of it: in this process, for torch takes seconds to load."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

from carbontui.client import api
from carbontui.client.pausing.gate import Gate


def output(script: str, *args: object) -> str:
    said = io.StringIO()
    argv = ["undisturbed.py", *map(str, args)]
    with contextlib.redirect_stdout(said), mock.patch.object(sys, "argv", argv), mock.patch.object(api, "gate", Gate()):
        exec(compile(script, argv[0], "exec"), {"__name__": "__main__"})
    return said.getvalue()
