"""The Slurm job that this process runs in, as Slurm has it now.

The id of an array's last task is also the array's, and the id of a heterogeneous job's first component the whole job's:
either may be answered by several rows, of which the one with this very id is ours.
"""

import fcntl
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from carbontui.slurm import commands, queue

TRAINS, SUBMITS = 0, 1
"""The locks: of those that train, which share it, and of the one that submits."""


class BatchJob:
    """As one `run` has it, which trains from now on: where another is ending the job it waits for that. Raises
    OSError."""

    def __init__(self, path: Path, job: int) -> None:
        self._file, self._first = path.open("ab+"), 2 * job
        fcntl.lockf(self._file, fcntl.LOCK_SH, 1, self._first + TRAINS)

    def has(self, lock: int) -> bool:
        """Take a lock alone; False where others have it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._first + lock)
        except OSError:
            return False
        return True

    def leave(self, lock: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._first + lock)


POLL_S = 5.0
"""A start waits no longer than this for the time limit, which the supervisor reads again."""


class Allocation(NamedTuple):
    """`name` is how Slurm's commands name it alone: 12, or 12_3 for a task of an array."""

    name: str
    state: str
    ends_s: float | None
    """When Slurm ends it (epoch seconds); None without a limit."""
    cap_w: float | None = None
    """Watts per GPU at which the fleet planned its start; None: at full."""
    comment: str = ""


def observe(environment: Mapping[str, str], within_s: float = commands.ASK_S) -> Allocation | None:
    """None outside a Slurm job. Raises SlurmError, also for a job that Slurm has forgotten."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        return None
    told = commands.ask("squeue", "-h", "-j", job, "-t", "all", "-o", "%A|%i|%T|%L|%k", within_s=within_s)
    for id_, name, state, left, comment in (row.split("|", 4) for row in told.splitlines() if row.count("|") > 3):
        if id_.strip() == job:
            left_s = queue.limit_s(left)
            ends_s = None if left_s is None else time.time() + left_s
            return Allocation(name.strip(), state.strip(), ends_s, queue.asked(comment).cap_w, comment)
    raise commands.SlurmError(f"squeue: shows no job {job}")


def fields(shown: str) -> dict[str, str]:
    """The fields of one job of `scontrol -o show job`; values may contain spaces, names do not."""
    found = re.split(r"(?:^|\s)([A-Z][\w/:]*)=", shown.strip())
    return {name: value.strip() for name, value in zip(found[1::2], found[2::2], strict=False)}


def record(
    environment: Mapping[str, str], *, given_up: Callable[[], bool] | None = None, within_s: float = commands.ASK_S
) -> dict[str, str]:
    """The fields of this job's own row. Raises SlurmError."""
    job = environment.get("SLURM_JOB_ID", "")
    asked = ("scontrol", "-o", "show", "job", job)
    for row in commands.ask(*asked, given_up=given_up, within_s=within_s).splitlines():
        found = fields(row)
        if found.get("JobId") == job:
            return found
    raise commands.SlurmError(f"scontrol: shows no job {job}")


def own_name(environment: Mapping[str, str]) -> str:
    """The `name` of this job."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID", ""), environment.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if task else environment["SLURM_JOB_ID"]


def name_of(shown: Mapping[str, str]) -> str:
    """Its `name`, of its record."""
    task = shown.get("ArrayTaskId", "")
    return f"{shown['ArrayJobId']}_{task}" if task.isdigit() else shown["JobId"]
