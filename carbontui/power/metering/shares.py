"""Attribution of watts: what part of a board's and of a machine's the job draws.

A board is split among its processes by their memory and kernels, the CPUs among the machine's jobs by CPU time.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading
from carbontui.power.messages import IDLE_OF_LIMIT
from carbontui.system import proc

AGENT, KEEPER = "carbontui.power.agent", "carbontui.job.keeper"
NO_JOBS = frozenset({"station", "doctor", "", None})
"""Agents are also started for these, which are not jobs."""


@dataclass(eq=False)
class JobsHere:
    """A job lives while its keeper, an agent of it, or what the keeper has started does: of these some may be replaced
    just now. One whose keeper has named itself ended is over, whoever still writes its account. Jobs with another lease
    directory (a container, a test; `apart`) do not count as sharing."""

    root: str = "/proc"
    own: str = ""
    apart: str = ""
    _ended: set[str] = field(default_factory=set)
    _of: dict[str, str | None] = field(default_factory=dict)
    """The job of each process of the last look, or ''; None: it may have been about to become its program."""

    def count(self) -> int:
        """How many share this machine, our own included."""
        self._ended.clear()
        known, pids = self._of, filter(str.isdigit, os.listdir(self.root))  # noqa: PTH208 - twice as fast
        self._of = {pid: "" if known.get(pid) == "" else self._job(pid) for pid in pids}
        return max(1, len((set(self._of.values()) - self._ended | {self.own}) - NO_JOBS))

    def _job(self, pid: str) -> str | None:
        job = self._of.get(pid)
        one = proc.observe(pid, self.root)
        if one is None or one.over:
            return ""
        if job is None:
            job = self._named(one.name, pid)
            if not job and self._of.get(parent := str(one.parent)):
                job = self._named(b"python", parent, KEEPER)
        if job and one.name == proc.JOB_ENDED:
            self._ended.add(job)
        return job or ("" if pid in self._of else None)

    def _named(self, name: bytes, pid: str, *roles: str) -> str:
        if not name.startswith((b"python", b"pypy")):
            return ""
        words = proc.arguments(int(pid), self.root)
        role = next((role for role in roles or (AGENT, KEEPER) if role in words[:6]), "")
        if not role or proc.option(words, "--apart") != self.apart:
            return ""
        return words[words.index(KEEPER) + 1] if role == KEEPER else proc.option(words, "--job")


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


def cpu_share(spent: CpuSeconds, jobs: float) -> float:
    """One job's share of the CPUs' watts, 0..1: busy threads are attributed to the program that kept them busy, idle
    ones equally to all of so many jobs. The shares of all jobs and other programs add up to 1."""
    idle, busy = IDLE_CPU * spent.all, (1.0 - IDLE_CPU) * spent.busy
    if idle + busy <= 0:
        return 1.0 / max(1.0, jobs)
    own = (1.0 - IDLE_CPU) * min(spent.own, spent.busy)
    return (idle / max(1.0, jobs) + own) / (idle + busy)


MOVED_B = 64 << 20
"""A change of used memory by more than this may be a process that started or exited."""


class BoardUse:
    """Kept by the sampling thread of one agent."""

    def __init__(self, backend: Backend) -> None:
        self.shares: dict[str, float] = {}
        """The job's share of the watts of each board shared with others."""
        self._backend = backend
        self._memory_b: dict[str, dict[int, int]] = {}
        self._listed_at_b: dict[str, int | None] = {}
        self._idle_w: dict[str, float] = {}
        self._met: set[str] = set()

    def list(self, uuid: str, raw: RawReading | None) -> tuple[int, ...] | None:
        """The processes on a board according to the driver; None if it does not report them (MIG)."""
        self._listed_at_b[uuid] = raw.memory_used_b if raw else None
        try:
            self._memory_b[uuid] = self._backend.processes(uuid)
        except DeviceError:
            self._memory_b.pop(uuid, None)
            return None
        return tuple(self._memory_b[uuid])

    def changed(self, uuid: str, raw: RawReading) -> bool:
        """Whether the board's used memory has changed since the last listing enough for a process start or exit."""
        before = self._listed_at_b.get(uuid)
        return before is not None and raw.memory_used_b is not None and abs(raw.memory_used_b - before) > MOVED_B

    def split(self, info: DeviceInfo, raw: RawReading, own: frozenset[int] | None, seeking: bool) -> None:
        """Compute the share of the processes `own` since the last call; None: the board is not split.

        If none of the job's processes was ever seen on the board, it may use it unseen (from its own container): then
        the whole board counts as its own, once the search has ended (`seeking`).
        """
        uuid, memory_b = info.uuid, self._memory_b.get(info.uuid, {})
        if memory_b and raw.util == 0 and raw.power_w is not None:
            self._idle_w[uuid] = min(self._idle_w.get(uuid, raw.power_w), raw.power_w)
        if own:
            self._met.add(uuid)
        if own is None or (not own and not seeking and uuid not in self._met):
            self.shares.pop(uuid, None)
            return
        try:
            kernels = self._backend.kernels(uuid)
        except DeviceError:
            self.shares.pop(uuid, None)
            return
        idle_w = self._idle_w.get(uuid, IDLE_OF_LIMIT * (info.limit_max_mw or 0) / 1000)
        self.shares[uuid] = board_share(raw.power_w, idle_w, memory_b, kernels, own)


LIST_S = 10.0
"""Interval between two scans of all processes, which take a millisecond per hundred."""
FIRST_S = 1.5
"""The first share is known after this long."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
BATCH = re.compile(r"^(.*/job_\d+)(/.*)?$")
"""The cgroup in which a batch system (Slurm) runs one job."""


class CpuPart(NamedTuple):
    """The job's share of the CPUs' watts (None: not a job, or not known yet), how many jobs run, the part of that share
    which idle threads draw, and the job's part of what is nobody's."""

    share: float | None
    jobs: int
    idle: float = 0.0
    nobodys: float = 1.0


@dataclass(eq=False)
class CpuTime:
    """Tracks CPU time. `machine` returns ticks of all threads and of the busy ones since boot."""

    machine: Callable[[], tuple[int, int]]
    root: str = "/proc"
    cgroups: Path = Path("/sys/fs/cgroup")

    def __post_init__(self) -> None:
        self.jobs_here = JobsHere(self.root)
        self._at_s: float | None = None
        self._before: tuple[int, int, float] | None = None
        self._part = CpuPart(None, 1)
        self._working = False

    def part(self, own: tuple[int, ...] | None, mono_s: float, allotted: float = 1.0) -> CpuPart:
        """The job's current share; `own` are processes of the job, from which the others descend: without any it has
        its part of the idling alone. None: not a job. What idles is split among jobs, or by the `allotted` part of the
        threads where that is less."""
        if own is None:
            return CpuPart(None, 1)
        self._part = self._part._replace(jobs=(jobs := self.jobs_here.count()))
        if own and not self._working:
            # what they have spent so far is not of this interval
            self._at_s, self._before, self._part = None, None, CpuPart(None, self._part.jobs)
        self._working = bool(own)
        due = FIRST_S if self._part.share is None else LIST_S
        if self._at_s is not None and mono_s - self._at_s < due:
            return self._part
        self._at_s = mono_s
        listed = list(proc.processes(self.root))
        spent_s = self._cgroup_s(own[0]) if own else 0.0
        if spent_s is None:
            spent_s = sum(one.ticks for one in members(listed, own)) / TICKS_PER_S
        now = (*self.machine(), spent_s)
        if self._before is not None:
            past = [(new - old) for new, old in zip(now, self._before, strict=True)]
            passed = CpuSeconds(past[0] / TICKS_PER_S, past[1] / TICKS_PER_S, max(0.0, past[2]))
            parts = max(jobs, 1.0 / allotted)
            idle = cpu_share(passed._replace(own=0.0), parts)
            self._part = CpuPart(cpu_share(passed, parts), jobs, idle, 1.0 / parts)
        self._before = now
        return self._part

    def _cgroup_s(self, pid: int) -> float | None:
        """CPU seconds of the batch job that a process belongs to; None if it is in no batch system's cgroup."""
        try:
            lines = Path(self.root, str(pid), "cgroup").read_text().splitlines()
            found = next((BATCH.match(line[3:]) for line in lines if line.startswith("0::")), None)
            if found is None:
                return None
            stat = (self.cgroups / found[1].lstrip("/") / "cpu.stat").read_text()
            return int(stat.split("usage_usec", 1)[1].split()[0]) / 1e6
        except (OSError, ValueError, IndexError):
            return None


def members(listed: list[proc.RunningProcess], own: tuple[int, ...]) -> list[proc.RunningProcess]:
    """The processes of a job: `own`, their descendants, and all in the sessions that they lead, except carbontui's."""
    mine = os.getsid(0)
    sessions = {one.session for one in listed if one.pid in own and one.pid == one.session} - {mine}
    inside = {one.pid for one in listed if one.pid in own or one.session in sessions}
    inside = set(proc.below(listed, inside))
    return [one for one in listed if one.pid in inside]
