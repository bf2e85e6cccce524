"""A job's share of this machine's CPU watts: its part of all CPU time, from /proc, every ten seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from carbontui.power.shares import CpuSeconds, cpu_share
from carbontui.system import proc

LIST_S = 10.0
"""Interval between two scans of all processes, which take a millisecond per hundred."""
FIRST_S = 1.5
"""The first share is known after this long."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
AGENT = b"carbontui.power.agent"
NO_JOBS = frozenset({b"station", b"doctor", b""})
"""Agents are also started for these, which are not jobs."""
BATCH = re.compile(r"^(.*/job_\d+)(/.*)?$")
"""The cgroup in which a batch system (Slurm) runs one job."""


class RunningProcess(NamedTuple):
    """One process: `ticks` of CPU time, those of its ended and collected children included."""

    pid: int
    parent: int
    session: int
    ticks: int
    start: int
    name: bytes


class CpuPart(NamedTuple):
    """The job's share of the CPUs' watts (None: not a job, or not known yet), and how many jobs run."""

    share: float | None
    jobs: int


class CpuTime:
    """Tracks CPU time. `machine` returns ticks of all threads and of the busy ones since boot."""

    def __init__(
        self,
        machine: Callable[[], tuple[int, int]],
        root: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._machine = machine
        self._root = root
        self._cgroups = cgroups
        self.apart = b""
        """The lease directory of our job: jobs with another one (a container, a test) do not count as sharing."""
        self._agents: dict[tuple[int, int], bytes] = {}
        self._at_s: float | None = None
        self._before: tuple[int, int, float] | None = None
        self._part = CpuPart(None, 1)

    def part(self, own: tuple[int, ...], mono_s: float) -> CpuPart:
        """The job's current share; `own` are processes of the job, from which the others descend."""
        if not own:
            return CpuPart(None, 1)
        due = FIRST_S if self._part.share is None else LIST_S
        if self._at_s is not None and mono_s - self._at_s < due:
            return self._part
        self._at_s = mono_s
        listed = list(processes(self._root))
        spent_s = self._cgroup_s(own[0])
        if spent_s is None:
            spent_s = sum(one.ticks for one in members(listed, own)) / TICKS_PER_S
        jobs = max(1, len(self._jobs(listed)))
        everybody, busy = self._machine()
        now = (everybody, busy, spent_s)
        if self._before is not None:
            past = [(new - old) for new, old in zip(now, self._before, strict=True)]
            passed = CpuSeconds(past[0] / TICKS_PER_S, past[1] / TICKS_PER_S, max(0.0, past[2]))
            self._part = CpuPart(cpu_share(passed, jobs), jobs)
        self._before = now
        return self._part

    def _jobs(self, listed: list[RunningProcess]) -> set[bytes]:
        """The jobs of any user that have an agent on this machine."""
        found, agents = set(), {}
        for one in listed:
            key = (one.pid, one.start)
            job = self._agents.get(key)
            if job is None:
                job = self._job_of(one)
            agents[key] = job
            found.add(job)
        self._agents = agents
        return found - NO_JOBS

    def _job_of(self, one: RunningProcess) -> bytes:
        if not one.name.startswith((b"python", b"pypy")):
            return b""
        try:
            words = (self._root / str(one.pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return b""
        if AGENT not in words[:6] or _after(words, b"--apart") != self.apart:
            return b""
        return _after(words, b"--job")

    def _cgroup_s(self, pid: int) -> float | None:
        """CPU seconds of the batch job that a process belongs to; None if it is in no batch system's cgroup."""
        try:
            lines = (self._root / str(pid) / "cgroup").read_text().splitlines()
            found = next((BATCH.match(line[3:]) for line in lines if line.startswith("0::")), None)
            if found is None:
                return None
            stat = (self._cgroups / found[1].lstrip("/") / "cpu.stat").read_text()
            return int(stat.split("usage_usec", 1)[1].split()[0]) / 1e6
        except (OSError, ValueError, IndexError):
            return None


def _after(words: list[bytes], flag: bytes) -> bytes:
    """The word after `flag` on a command line; empty if absent."""
    return words[words.index(flag) + 1] if flag in words[:-1] else b""


def processes(root: Path) -> Iterator[RunningProcess]:
    """Every process of /proc."""
    for entry in os.listdir(root):  # noqa: PTH208 - twice as fast
        if not entry.isdigit():
            continue
        try:
            head, _, tail = proc.read(f"{root}/{entry}/stat").rpartition(b")")
        except OSError:
            continue
        fields = tail.split()
        if len(fields) > 19:
            ticks = sum(map(int, fields[11:15]))
            yield RunningProcess(
                int(entry), int(fields[1]), int(fields[3]), ticks, int(fields[19]), head.partition(b"(")[2]
            )


def members(listed: list[RunningProcess], own: tuple[int, ...]) -> list[RunningProcess]:
    """The processes of a job: `own`, their descendants, and all in their sessions, except carbontui's own."""
    mine = os.getsid(0)
    sessions = {one.session for one in listed if one.pid in own} - {mine}
    inside = {one.pid for one in listed if one.pid in own or one.session in sessions}
    below: dict[int, list[int]] = {}
    for one in listed:
        below.setdefault(one.parent, []).append(one.pid)
    ahead = list(inside)
    while ahead:
        new = [pid for pid in below.get(ahead.pop(), ()) if pid not in inside]
        inside.update(new)
        ahead += new
    return [one for one in listed if one.pid in inside]
