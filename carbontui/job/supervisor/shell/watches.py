"""What is watched beside the ticks, each at its own pace: the end that a scheduler or a cloud sets, and the training's
processes.

The former comes from another machine, so no tick waits for it; it is asked again as long as the job lives, as a limit
is changed and a spot machine is called back. Of the latter /proc tells why a command shows no steps (the judgement is
in client.detection.unseen), and how long a training waits for a core.
"""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from carbontui import protocol
from carbontui.client.detection import unseen
from carbontui.client.detection.unseen import Cause, Process
from carbontui.job.files import runlog
from carbontui.job.life import launch
from carbontui.slurm import allocation
from carbontui.slurm.commands import SlurmError
from carbontui.system import proc, termination

LIMIT_EVERY_S = 45.0
"""A changed limit is known within a minute; a thousand jobs ask Slurm's controller 22 times a second."""
ANSWER_S = 10.0
SAME_S = 5.0
"""Slurm states the time left in whole seconds: an end that moves by less has not moved."""


class PacedWatch:
    """Asked beside the ticks, as an answer may hang: once at a time, no earlier than `due_mono`."""

    due_mono = 0.0
    _task: asyncio.Task[None] | None = None

    def tick(self) -> None:
        if time.monotonic() >= self.due_mono and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self.ask())

    async def ask(self) -> None:
        """Ask once, and set when to ask again."""
        raise NotImplementedError


class SchedulerWatch(PacedWatch):
    """`job` is the id of a Slurm job or step, None outside of one."""

    def __init__(self, job: str | None) -> None:
        self._job = (job or "").partition(".")[0]
        self.due_mono = 0.0 if self._job else math.inf
        self.ends_s: float | None = None
        """Epoch seconds, infinite without a limit; None before the first answer."""

    async def ask(self) -> None:
        self.due_mono = time.monotonic() + LIMIT_EVERY_S
        with contextlib.suppress(SlurmError):  # what was known stays
            found = await asyncio.to_thread(allocation.observe, {"SLURM_JOB_ID": self._job}, ANSWER_S)
            ends_s = math.inf if found is None or found.ends_s is None else found.ends_s
            if self.ends_s is None or not abs(ends_s - self.ends_s) < SAME_S:
                self.ends_s = ends_s


NOTICE_EVERY_S = 3.0
"""The shortest notice is 30 s; AWS asks to look every five."""
UNANSWERED_S = 60.0
"""Between two questions where nobody answers: a virtual machine of one's own may have the same maker as a cloud's."""


class TerminationWatch(PacedWatch):
    """Asks nobody where the machine is no cloud's."""

    def __init__(self, *, replayed: bool) -> None:
        cloud = launch.cloud()
        self._service = None if replayed else termination.service(cloud[0] if cloud else None)
        self.due_mono = 0.0 if self._service else math.inf
        self.ends_s: float | None = None
        """Epoch seconds; None without a notice."""

    async def ask(self) -> None:
        assert self._service is not None
        provider, base = self._service
        self.due_mono = time.monotonic() + NOTICE_EVERY_S
        try:
            ends_s = await asyncio.to_thread(termination.ends_s, provider, base, time.time())
        except OSError:
            if self.ends_s is None:  # else the last one holds
                self.due_mono = time.monotonic() + UNANSWERED_S
            return
        # a notice without a time of its own begins when it is first seen
        if ends_s is None or self.ends_s is None or provider == "aws":
            self.ends_s = ends_s


PRINTED_EVERY_S = 3.0


class LossWatch(PacedWatch):
    """What the command prints of its loss in `logs`, which may lie in a folder on a network."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._logs = logs
        self.loss: protocol.Loss | None = None

    async def ask(self) -> None:
        self.due_mono = time.monotonic() + PRINTED_EVERY_S
        self.loss = await asyncio.to_thread(runlog.printed_loss, self._logs) or self.loss


AGE_S = 20.0
CPU_S = 15.0
"""Inspect a command without steps from this age and this much CPU time on; most trainings have begun by then."""
INSPECT_EVERY_S = 5.0
SCRIPT_B = 200_000
"""How much of a script is read."""


class UnseenWatch:
    """`observe` is cheap for a command with steps: nothing is read. `directory` is the job's."""

    def __init__(self, directory: Path) -> None:
        self._hook_dir = str(directory / "hook")
        self._evidence = directory / "resume.json.evidence"
        self._polled_mono_s = 0.0
        self._cause: Cause | None = None

    def observe(self, child: int | None, age_s: float, mono_s: float, *, stepped: bool) -> Cause | None:
        """Why a command running as `child` for `age_s` shows no step; None once it does, or if it used little CPU."""
        if child is None or stepped or age_s < AGE_S:
            self._cause = None
        elif mono_s - self._polled_mono_s >= INSPECT_EVERY_S:
            self._polled_mono_s = mono_s
            pids = [child, *proc.descendants(child)]
            computed = sum(map(proc.cpu_s, pids)) >= CPU_S
            self._cause = unseen.judge(processes(pids, self._evidence), self._hook_dir) if computed else None
        return self._cause


def processes(pids: Iterable[int], evidence: Path) -> list[Process]:
    """These processes as described by /proc and the evidence file."""
    try:
        lines = [line.split(" ", 1) for line in evidence.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    words = {pid: frozenset(word for one, *rest in lines for word in rest if one == str(pid)) for pid in pids}
    return [_process(pid, noted) for pid, noted in words.items()]


def _process(pid: int, evidence: frozenset[str]) -> Process:
    argv, environ = proc.arguments(pid), proc.environment(pid)
    files = proc.mapped_files(pid)
    libraries = frozenset(name for name in map(unseen.loaded, files) if name)
    sites = {path.partition("/site-packages/")[0] for path in files if "/site-packages/" in path}
    hooked = any(Path(site, "site-packages", "carbontui_hook.pth").exists() for site in sites)
    return Process(
        name=proc.name(pid),
        argv=argv,
        environ=environ,
        libraries=libraries,
        cpu_s=proc.cpu_s(pid),
        evidence=evidence,
        hooked=hooked,
        script=_script(pid, argv),
    )


def _script(pid: int, argv: list[str]) -> str:
    """The text of the script that a Python process runs, as far as it can be read."""
    _, path = unseen.flags_and_script(argv)
    if path is None:
        return ""
    try:
        with Path(proc.folder(pid), path).open(errors="replace") as file:
            return file.read(SCRIPT_B)
    except OSError:
        return ""


class CoreWait:
    """How long the training is ready and waits for a core, asked at every tick; of one process, on this machine."""

    _of: protocol.Hello | None = None
    _file: int | None = None
    _before_s: float | None = None

    def since(self, training: protocol.Hello | None) -> float:
        """Seconds that `training` has waited since the last call; 0 where that is not told."""
        if training is not self._of:
            self._turn_to(training)
        if self._file is None:
            return 0.0
        before_s, self._before_s = self._before_s, proc.core_wait_s(self._file)
        return 0.0 if before_s is None or self._before_s is None else max(0.0, self._before_s - before_s)

    def _turn_to(self, training: protocol.Hello | None) -> None:
        if self._file is not None:
            os.close(self._file)
        self._of, self._file, self._before_s = training, None, None
        if training is None:
            return
        self._file = proc.open_core_wait(training.pid)
        if self._file is not None and not proc.same_process(training.pid, training.start_time):
            os.close(self._file)  # it is a process of another machine or namespace, or another has the pid by now
            self._file = None
