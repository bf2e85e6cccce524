"""The machines of a job: of `run --hosts`, or of its Slurm job, with the successor of an unloaded one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from carbontui import paths, units
from carbontui.commands.support.command import Failure, refused
from carbontui.commands.support.foreground import UNLOADED_EXIT
from carbontui.job.files import store
from carbontui.job.keeper import resume, signals
from carbontui.job.life import requeue
from carbontui.job.terms import spec as job_spec
from carbontui.slurm import allocation, commands, successor
from carbontui.slurm.batch_job import BatchJob
from carbontui.system import bounded_command, ssh

ANSWER_S = 20.0
ANSWER_B = 2**20


def named(text: str) -> job_spec.Nodes:
    """The machines of `--hosts a,b`; this one need not be named. Each is asked once whether carbontui is installed at
    the same path as here. Raises Failure."""
    here = socket.gethostname()
    names: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        with refused("--hosts: "):
            found = ssh.place(word)
        if found.job is not None:
            raise Failure(f"--hosts: {units.printable(word)!r} names a job; give machines alone, like a,b", 2)
        if found.host not in (here, "localhost", *names):
            names.append(found.host)
    if not names:
        raise Failure(f"--hosts {units.printable(text)!r}: names no other machine", 2)
    for name in names:
        _check(name)
    reach = {name: ssh.begins_there(name) for name in names}
    return job_spec.Nodes(own=here, others=tuple(names), reach=reach, by_shell=True)


def _check(name: str) -> None:
    """Whether an agent can be started there. Raises Failure."""
    command = [*ssh.begins_there(name), f"{sys.executable} -c 'import carbontui.nodes.node'"]
    try:
        done = bounded_command.answer(command, within_s=ANSWER_S, most_b=ANSWER_B)
    except FileNotFoundError:
        raise Failure("--hosts: ssh is not installed here", 1) from None
    except subprocess.TimeoutExpired:
        raise Failure(f"--hosts: {name} has not answered for {ANSWER_S:.0f} s", 1) from None
    except OverflowError:
        raise Failure(f"--hosts: {name} sends output without end", 1) from None
    if done.returncode == 255:
        said = units.printable(" ".join(done.stderr.decode(errors="replace").split()))[:200]
        raise Failure(f"--hosts: {name}: {said or 'ssh cannot reach it without a password'}", 1)
    if done.returncode:
        raise Failure(f"--hosts: {name} has no carbontui at {sys.executable}: install it at the same path there", 1)


def of_slurm() -> job_spec.Nodes | None:
    """The machines of this Slurm job if there are several; an error in finding them is kept."""
    try:
        names = commands.promised_nodes(os.environ)
    except commands.SlurmError as error:
        fault = f"the other nodes of this job cannot be listed ({error}): they are neither metered nor controlled"
        return job_spec.Nodes(own="", others=(), fault=fault)
    if not names:
        return None
    own = commands.own_node(os.environ, names, socket.gethostname())
    job = os.environ["SLURM_JOB_ID"]
    others = tuple(name for name in names if name != own)
    return job_spec.Nodes(own=own, others=others, reach={name: commands.on_node(job, name) for name in others})


def allocated() -> dict[str, float | None]:
    """When Slurm ends the job of this process (epoch seconds), and the watts per GPU at which a fleet has started it;
    nothing without an answer: the supervisor asks for the limit again."""
    try:
        found = allocation.look(os.environ, allocation.LOOK_S)
    except commands.SlurmError:
        found = None
    return {} if found is None else {"ends_s": found.ends_s, "fleet_cap_w": found.cap_w}


def check_resubmit() -> None:
    """Refuse --resubmit where there is no batch script to submit again. Raises Failure."""
    batch = successor.chain(os.environ) is not None and not commands.in_step(os.environ)
    if batch:
        with contextlib.suppress(commands.SlurmError):  # then the end will tell
            batch = allocation.record(os.environ, within_s=allocation.LOOK_S).get("BatchFlag") != "0"
    if not batch:
        raise Failure("--resubmit: only in a Slurm batch script, outside srun and salloc; elsewhere leave it out", 2)
    if os.environ.get("SLURM_HET_SIZE", "1") != "1":
        raise Failure(f"--resubmit: this is {successor.HETEROGENEOUS}; leave it out, or submit one component", 2)


def batch_job() -> BatchJob:
    """The batch job of `run --resubmit`, shared with others in its script. Raises Failure."""
    with refused("--resubmit: ", OSError, code=1):
        return BatchJob(paths.private_dir(paths.socket_dir()) / "batch-jobs", int(os.environ["SLURM_JOB_ID"]))


def resubmit(directory: Path, code: int, batch: BatchJob, say: Callable[[str], None], *, progress: bool) -> int:
    """After the job's end: the exit code for this process, once `say` has said the rest. One that was unloaded has a
    successor, and its batch job is ended, unless it has made no `progress`."""
    now, here = time.time(), requeue.scheduled(os.environ)
    unloaded = [job for job in store.jobs() if here and job.scheduler == here.key and (job.exit or {}).get("unloaded")]
    if code != UNLOADED_EXIT:
        try:
            before = "" if unloaded else successor.withdraw_earlier(os.environ)
            say(f"it has come to its end: its successor {before} is cancelled" if before else "")
        except commands.SlurmError as error:
            say(f"whether a successor of an earlier start waits is not known ({error}): squeue --me")
        return code
    not_before = min((resume.not_before(str(job.dir / "resume.json")) or now for job in unloaded), default=now)
    heard = set((store.read_json(directory / "exit.json") or {}).get("signals") or ())

    def ended() -> bool:
        heard.update(found.number for found in signals.taken())
        return not heard.isdisjoint((signal.SIGTERM, signal.SIGINT))

    try:
        new = successor.submit(os.environ, batch, not_before_s=not_before, now_s=now, ended=ended, progress=progress)
        successor.until_alone(os.environ, batch, new, ended)
        told = f"it continues as Slurm job {new.job}, starting in {max(0.0, not_before - now):.0f} s, and this job ends"
        if new.left:
            left = units.printable(", ".join(new.left))[:200]
            told += f"; these wait for this job and cannot be moved to that one: {left}"
        say(told)
        successor.end(new, ended)
    except successor.Cancelled:
        say("unloaded, and ended by Slurm or its user: it has no successor")
        return 128 + signal.SIGTERM
    except commands.SlurmError as error:
        say(f"unloaded, but no successor is submitted ({error}); submit it again by hand: it resumes")
    return code
