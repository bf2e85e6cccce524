"""What `run` adds in a Slurm job: its nodes, and the successor that resumes an unloaded job."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import click

from carbontui.cluster import slurm, successor
from carbontui.job import spec as job_spec
from carbontui.job.keeper import resume
from carbontui.verbs.failure import Failure
from carbontui.verbs.foreground import UNLOADED_EXIT, say


def nodes() -> job_spec.Nodes | None:
    """The machines of this Slurm job if there are several; an error in finding them is printed, and kept."""
    try:
        names = slurm.promised_nodes(os.environ)
    except slurm.SlurmError as error:
        fault = f"the other nodes of this job cannot be listed ({error}): they are neither metered nor controlled"
        click.echo(f"carbontui: {fault}", err=True)
        return job_spec.Nodes(own="", others=(), fault=fault)
    if not names:
        return None
    own = slurm.own_node(os.environ, names, socket.gethostname())
    job = os.environ["SLURM_JOB_ID"]
    others = tuple(name for name in names if name != own)
    return job_spec.Nodes(own=own, others=others, reach={name: slurm.on_node(job, name) for name in others})


def check_resubmit() -> None:
    """Refuse --resubmit where there is no batch script to submit again. Raises Failure."""
    if successor.chain(os.environ) is None or slurm.in_step(os.environ):
        raise Failure("--resubmit: only in a Slurm batch script, outside srun; elsewhere leave it out", 2)


def resubmit(directory: Path, code: int) -> int:
    """After the job's end: submit the successor of one that was unloaded; the exit code for this process."""
    if code != UNLOADED_EXIT:
        return code
    now = time.time()
    not_before = resume.not_before(str(directory / "resume.json")) or now
    try:
        new = successor.submit(os.environ, not_before_s=not_before, now_s=now)
    except slurm.SlurmError as error:
        say(f"unloaded, but its successor cannot be submitted ({error}); submit it again by hand: it resumes")
        return code
    wait = max(0.0, not_before - now)
    say(f"unloaded; continues as Slurm job {new}, starting in {wait:.0f} s")
    return 0
