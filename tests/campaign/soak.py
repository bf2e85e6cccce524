"""Viewers that come and go, previews, and agents that die: what a supervisor grows by."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from house import Job, until

LONG_S = 1800.0
VIEWERS, PREVIEWS, AGENT_KILLS = 2000, 5000, 50
"""What comes in a soak of LONG_S; of a shorter one as many as its share."""
WARM = 1 / 3
"""Share of the time after which caches, pools and the interpreter's arenas have the size that they keep."""


@dataclass
class Found:
    """What a soak has counted; growth is after the warm-up."""

    viewers: int = 0
    previews: int = 0
    agent_kills: int = 0
    growth_kb: int = 0
    descriptors: int = 0
    threads: int = 0
    sizes_kb: list[int] = field(default_factory=list)
    """Once a twentieth of the time."""


def _size(pid: int) -> tuple[int, int, int]:
    """(resident kB, open descriptors, threads) of a process."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(facts["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(facts["Threads"])


def run(job: Job, seconds: float, seed: int, found: Found) -> None:
    dice = random.Random(seed)
    pid = until(lambda: (s := job.served()) and s.pids.supervisor, what="a supervisor")
    begun = time.monotonic()
    share = seconds / LONG_S * 1.02  # a little more: the last of them is due before the end
    warm = None
    while (passed := time.monotonic() - begun) < seconds:
        done = passed / seconds
        if warm is None and done >= WARM:
            warm = _size(pid)
        if done * 20 >= len(found.sizes_kb):
            found.sizes_kb.append(_size(pid)[0])
        if found.viewers >= VIEWERS * share * done:
            time.sleep(0.05)
            continue
        connection, lines = job.connect()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b'{"t":"view","rate_hz":10}\n')
            lines.readline()
            found.viewers += 1
            while found.previews < PREVIEWS * share * done:
                connection.sendall(b'{"t":"preview","id":1,"budget":"%dh"}\n' % dice.randrange(2, 80))
                found.previews += 1
                time.sleep(0.02)
        if found.agent_kills < AGENT_KILLS * share * done:
            status = job.served()
            if status and status.pids.agent:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(status.pids.agent, signal.SIGKILL)
                    found.agent_kills += 1
    until(lambda: (s := job.served()) and s.pids.agent, 60, "an agent")
    time.sleep(2)
    assert warm is not None
    end = _size(pid)
    found.growth_kb, found.descriptors, found.threads = (b - a for a, b in zip(warm, end, strict=True))
