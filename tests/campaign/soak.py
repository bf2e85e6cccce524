"""Viewers that come and go, previews, and agents that die: what a supervisor grows by."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from house import Job, until


@dataclass
class Found:
    """What a soak has counted; growth is of the second half."""

    viewers: int = 0
    previews: int = 0
    agent_kills: int = 0
    growth_kb: int = 0
    descriptors: int = 0
    threads: int = 0


def _size(pid: int) -> tuple[int, int, int]:
    """(resident kB, open descriptors, threads) of a process."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(facts["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(facts["Threads"])


def run(job: Job, seconds: float, seed: int, found: Found) -> None:
    dice = random.Random(seed)
    pid = until(lambda: (s := job.served()) and s.pids.supervisor, what="a supervisor")
    begun = time.monotonic()
    middle = None
    while (passed := time.monotonic() - begun) < seconds:
        if middle is None and passed > seconds / 2:
            middle = _size(pid)
        connection, lines = job.connect()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b'{"t":"view","rate_hz":10}\n')
            lines.readline()
            found.viewers += 1
            for _ in range(dice.randrange(4)):
                connection.sendall(b'{"t":"preview","id":1,"budget":"%dh"}\n' % dice.randrange(2, 80))
                found.previews += 1
                time.sleep(0.05)
        if dice.random() < 0.02:
            status = job.served()
            if status and status.pids.agent:
                os.kill(status.pids.agent, signal.SIGKILL)
                found.agent_kills += 1
    time.sleep(2)
    assert middle is not None
    end = _size(pid)
    found.growth_kb, found.descriptors, found.threads = (b - a for a, b in zip(middle, end, strict=True))
