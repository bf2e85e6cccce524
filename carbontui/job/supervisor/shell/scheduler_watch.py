"""When the job's scheduler will end it, or its cloud this machine, asked again as long as the job lives: a limit is
changed, a spot machine is called back. The answer comes from another machine, so no tick waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time

from carbontui.job.life import surroundings
from carbontui.slurm import allocation
from carbontui.slurm.commands import SlurmError
from carbontui.system import termination

EVERY_S = 45.0
"""A changed limit is known within a minute; a thousand jobs ask Slurm's controller 22 times a second."""
ANSWER_S = 10.0
SAME_S = 5.0
"""Slurm states the time left in whole seconds: an end that moves by less has not moved."""


class SchedulerWatch:
    """`job` is the id of a Slurm job or step, None outside of one."""

    def __init__(self, job: str | None) -> None:
        self._job = (job or "").partition(".")[0]
        self._due_mono = 0.0
        self._task: asyncio.Task[None] | None = None
        self.ends_s: float | None = None
        """Epoch seconds, infinite without a limit; None before the first answer."""

    def tick(self) -> None:
        if self._job and time.monotonic() >= self._due_mono and (self._task is None or self._task.done()):
            self._due_mono = time.monotonic() + EVERY_S
            self._task = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        with contextlib.suppress(SlurmError):  # what was known stays
            found = await asyncio.to_thread(allocation.look, {"SLURM_JOB_ID": self._job}, ANSWER_S)
            ends_s = math.inf if found is None or found.ends_s is None else found.ends_s
            if self.ends_s is None or not abs(ends_s - self.ends_s) < SAME_S:
                self.ends_s = ends_s


NOTICE_EVERY_S = 3.0
"""The shortest notice is 30 s; AWS asks to look every five."""
UNANSWERED_S = 60.0
"""Between two questions where nobody answers: a virtual machine of one's own may have the same maker as a cloud's."""


class TerminationWatch:
    """Asks nobody where the machine is no cloud's."""

    def __init__(self, *, replayed: bool) -> None:
        cloud = surroundings.cloud()
        self._service = None if replayed else termination.service(cloud[0] if cloud else None)
        self._due_mono = 0.0
        self._task: asyncio.Task[None] | None = None
        self.ends_s: float | None = None
        """Epoch seconds; None without a notice."""

    def tick(self) -> None:
        if self._service and time.monotonic() >= self._due_mono and (self._task is None or self._task.done()):
            self._due_mono = time.monotonic() + NOTICE_EVERY_S
            self._task = asyncio.ensure_future(self._ask(*self._service))

    async def _ask(self, provider: str, base: str) -> None:
        try:
            ends_s = await asyncio.to_thread(termination.ends_s, provider, base, time.time())
        except OSError:
            if self.ends_s is None:  # else the last one holds
                self._due_mono = time.monotonic() + UNANSWERED_S
            return
        # a notice without a time of its own begins when it is first seen
        if ends_s is None or self.ends_s is None or provider == "aws":
            self.ends_s = ends_s
