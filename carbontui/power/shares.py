"""Attribution of watts: splits a board among its processes, and a machine among its jobs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

IDLE_OF_LIMIT = 0.15
"""Watts of a board with contexts but no running kernel, as a share of its highest limit, until observed: H100 118 of
700 W, A100 64 of 300 W (nvidia-smi outputs; arXiv 2605.23918)."""
IDLE_CPU = 0.1
"""Draw of an idle thread relative to a busy one: the rule of the estimate in `rapl`."""


class CpuSeconds(NamedTuple):
    """Elapsed CPU time: of all threads of the machine, of the busy ones, of those busy for the job."""

    all: float
    busy: float
    own: float


def board_share(
    power_w: float | None, idle_w: float, memory_b: Mapping[int, int], kernels: Mapping[int, float], own: frozenset[int]
) -> float:
    """The share of a board's watts drawn for the processes `own`, 0..1.

    The draw above `idle_w` is split by the kernels each process ran (any unit, pid to time); the rest, and all of it
    while none runs, by the memory each holds. The shares of all processes add up to 1.
    """
    by_memory = _part(memory_b, own) if any(memory_b.values()) else _part(dict.fromkeys(memory_b, 1.0), own)
    if not any(kernels.get(pid) for pid in memory_b):
        return by_memory
    by_kernels = _part({pid: kernels.get(pid, 0.0) for pid in memory_b}, own)
    if power_w is None or power_w <= 0:
        return by_kernels
    idle = min(1.0, idle_w / power_w)
    return idle * by_memory + (1.0 - idle) * by_kernels


def _part(amounts: Mapping[int, float], own: frozenset[int]) -> float:
    total = sum(amounts.values())
    return sum(amount for pid, amount in amounts.items() if pid in own) / total if total else 0.0


def cpu_share(spent: CpuSeconds, jobs: int) -> float:
    """One job's share of the CPUs' watts, 0..1: busy threads are attributed to the program that kept them busy, idle
    ones equally to all jobs. The shares of all jobs and other programs add up to 1."""
    idle, busy = IDLE_CPU * spent.all, (1.0 - IDLE_CPU) * spent.busy
    if idle + busy <= 0:
        return 1.0 / max(1, jobs)
    own = (1.0 - IDLE_CPU) * min(spent.own, spent.busy)
    return (idle / max(1, jobs) + own) / (idle + busy)
