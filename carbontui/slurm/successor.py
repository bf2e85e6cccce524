"""The Slurm job that continues where this one was unloaded: submitted from within it, started when its hours are clean.

No daemon waits: Slurm holds the successor, and the present job ends. If this job is killed meanwhile the successor
still exists, and waits for the end of this one (`--dependency=afterany`).
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from carbontui.slurm import commands
from carbontui.slurm.queue import limit_s
from carbontui.system import proc

CHAIN = "CARBONTUI_CHAIN"
"""Variable in a successor's environment: the id of the first job, and this job's number in the chain."""
UNSET = frozenset({"", "(null)", "N/A", "UNLIMITED", "Unknown"})
OPTIONS = {
    "Partition": "--partition",
    "Account": "--account",
    "QOS": "--qos",
    "TimeLimit": "--time",
    "NumNodes": "--nodes",
    "NumTasks": "--ntasks",
    "CPUs/Task": "--cpus-per-task",
    "MinMemoryNode": "--mem",
    "MinMemoryCPU": "--mem-per-cpu",
    "TresPerNode": "--gres",
    "Features": "--constraint",
    "Reservation": "--reservation",
    "Licenses": "--licenses",
    "JobName": "--job-name",
    "WorkDir": "--chdir",
    "StdOut": "--output",
    "StdErr": "--error",
}
"""sbatch options by their names in `scontrol show job`: those given on the command line are not in the script."""


class Chain(NamedTuple):
    """A job's position in a chain of successors; the first is number 0."""

    first: str
    number: int


def chain(environment: Mapping[str, str]) -> Chain | None:
    """The chain of this environment's Slurm job; None outside one."""
    job = environment.get("SLURM_JOB_ID", "")
    found = re.fullmatch(r"(\d+) (\d+)", environment.get(CHAIN, ""))
    if not job.isdigit():
        return None
    return Chain(found[1], int(found[2])) if found else Chain(job, 0)


def fields(shown: str) -> dict[str, str]:
    """The fields of one job of `scontrol -o show job`; values may contain spaces, names do not."""
    found = re.split(r"(?:^|\s)([A-Z][\w/:]*)=", shown.strip())
    return {name: value.strip() for name, value in zip(found[1::2], found[2::2], strict=False)}


def command(
    shown: Mapping[str, str], here: Chain, *, array_task: str, wait_s: float, script: str, arguments: Sequence[str]
) -> list[str]:
    """The sbatch command that submits the same script with the same resources, to start in `wait_s` seconds."""
    options = ["sbatch", "--parsable", f"--dependency=afterany:{shown['JobId']}", "--open-mode=append"]
    if wait_s >= 1.0:
        options.append(f"--begin=now+{math.ceil(wait_s)}seconds")
    note = json.dumps({"chain": here.first, "number": here.number + 1, "after": shown["JobId"]})
    options.append(f"--comment=carbontui:{note}")
    if array_task:
        options.append(f"--array={array_task}")
    for name, option in OPTIONS.items():
        value = shown.get(name, "")
        if value not in UNSET:
            options.append(f"{option}={value.partition('-')[0] if name == 'NumNodes' else value}")
    return [*options, script, *arguments]


def submit(environment: Mapping[str, str], *, not_before_s: float, now_s: float) -> str:
    """Submit the successor of this batch job and return its id. Raises SlurmError."""
    here = chain(environment)
    if here is None:
        raise commands.SlurmError("not in a Slurm job")
    job = environment["SLURM_JOB_ID"]
    shown = fields(commands.ask("scontrol", "-o", "show", "job", job))
    if "JobId" not in shown:
        raise commands.SlurmError(f"scontrol: shows no job {job}")
    text = commands.ask("scontrol", "write", "batch_script", job, "-")
    with tempfile.TemporaryDirectory(prefix="carbontui-") as folder:
        script = Path(folder) / "job.sh"
        script.write_text(text)
        asked = command(
            shown,
            here,
            array_task=environment.get("SLURM_ARRAY_TASK_ID", ""),
            wait_s=not_before_s - now_s,
            script=str(script),
            arguments=_arguments(),
        )
        new = commands.step_environment(environment) | {CHAIN: f"{here.first} {here.number + 1}"}
        new.pop("SLURM_JOB_ID", None)
        return commands.submitted(asked, environment=new)


def end_s(environment: Mapping[str, str]) -> float | None:
    """When Slurm ends this job (epoch seconds); None without a limit, or if not reported."""
    job = environment.get("SLURM_JOB_ID", "")
    try:
        left = commands.ask("squeue", "-h", "-j", job, "-o", "%L") if job.isdigit() else ""
    except commands.SlurmError:
        return None
    left_s = limit_s(left.strip().partition("\n")[0])
    return None if left_s is None else time.time() + left_s


def _arguments() -> list[str]:
    """The batch script's arguments, as given to the shell that runs it."""
    for one in proc.ancestry(os.getppid()):
        words = proc.arguments(one.pid)
        for place, word in enumerate(words):
            if word.endswith("/slurm_script"):
                return words[place + 1 :]
    return []
