"""Threads and file descriptors of processes over the rounds of a disturbance: what is never given back adds up."""

from __future__ import annotations

import contextlib
import statistics
from pathlib import Path

ROUNDS_MIN = 9
GROWTH_MAX = 2.0
"""Per process. A leak of one per round grows by two thirds of the rounds; a file that is just being written is one."""


class Leaks:
    """Call `sample` once a round, with everything at rest; `check` compares the first third with the last."""

    def __init__(self) -> None:
        self.threads: list[float] = []
        self.descriptors: list[float] = []

    def sample(self, *pids: int) -> None:
        """The mean over the processes that are there; none is no sample."""
        threads, descriptors = [], []
        for pid in pids:
            with contextlib.suppress(OSError):
                descriptors.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
                threads.append(len(list(Path(f"/proc/{pid}/task").iterdir())))
        if threads:
            self.threads.append(statistics.mean(threads))
            self.descriptors.append(statistics.mean(descriptors))

    def check(self) -> dict[str, float]:
        """What grew, in figures; fewer rounds than `ROUNDS_MIN` say nothing and are not judged."""
        if len(self.threads) < ROUNDS_MIN:
            return {}
        grown = {"threads": growth(self.threads), "descriptors": growth(self.descriptors)}
        assert max(grown.values()) <= GROWTH_MAX, (grown, self.threads, self.descriptors)
        return grown


def growth(samples: list[float]) -> float:
    third = len(samples) // 3
    return statistics.median(samples[-third:]) - statistics.median(samples[:third])
