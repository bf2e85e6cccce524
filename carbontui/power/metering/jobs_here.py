"""The jobs of any user on this machine, by the processes that carry them: a look takes 0.1 ms per hundred processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

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
    _of: dict[int, str | None] = field(default_factory=dict)
    """The job of each process of the last look, or ''; None: it may have been about to become its program."""

    def count(self) -> int:
        """How many share this machine, our own included."""
        pids = [int(entry) for entry in os.listdir(self.root) if entry.isdigit()]  # noqa: PTH208 - twice as fast
        self._ended.clear()
        self._of = {pid: self._job(pid) for pid in pids}
        return max(1, len((set(self._of.values()) - self._ended | {self.own}) - NO_JOBS))

    def _job(self, pid: int) -> str | None:
        job = self._of.get(pid)
        if job == "":
            return job
        one = proc.look(pid, self.root)
        if one is None or one.over:
            return ""
        if job is None:
            job = self._named(one.name, pid)
            if not job and self._of.get(one.parent):
                job = self._named(b"python", one.parent, KEEPER)
        if job and one.name == proc.JOB_ENDED:
            self._ended.add(job)
        return job or ("" if pid in self._of else None)

    def _named(self, name: bytes, pid: int, *roles: str) -> str:
        if not name.startswith((b"python", b"pypy")):
            return ""
        words = proc.arguments(pid, self.root)
        role = next((role for role in roles or (AGENT, KEEPER) if role in words[:6]), "")
        if not role or proc.option(words, "--apart") != self.apart:
            return ""
        return words[words.index(KEEPER) + 1] if role == KEEPER else proc.option(words, "--job")
