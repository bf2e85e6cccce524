"""The boards' energy counters at the start of the training: the agent starts a second later."""

from __future__ import annotations

import contextlib
import subprocess
import sys

from carbontui.job.keeper import signals
from carbontui.system import isolation

SCRIPT = f"{isolation.ROOT}/carbontui/power/backends/first_count.py"


def start(job_dir: str) -> None:
    """Have them read into first-count.json, without waiting for it."""
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-I", "-S", SCRIPT, f"{job_dir}/first-count.json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=signals.unblock,
        )
