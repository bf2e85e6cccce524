"""A job restarted by its scheduler is the same job: found by the scheduler's id, continued in its own directory.

Its journal, account, budget, overrides and checkpoints already exist. The options of this `run` apply, except the
job's start time and name. With --resubmit its Slurm script is submitted again instead, as its successor.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from carbontui import paths, units
from carbontui.job.files import store
from carbontui.job.keeper import resume, signals
from carbontui.job.life.foreground import UNLOADED_EXIT, exit_code
from carbontui.job.life.launch import LaunchError
from carbontui.job.terms import records
from carbontui.job.terms import spec as opts
from carbontui.slurm import allocation, commands, successor
from carbontui.slurm.allocation import BatchJob
from carbontui.system import life


class Scheduled(NamedTuple):
    """A scheduler's job, and how often it has been restarted."""

    key: str
    attempt: int


def scheduled(environment: Mapping[str, str]) -> Scheduled | None:
    """The scheduler's job according to its environment variables; None outside one: Slurm, and SkyPilot, whose task
    keeps its id over the machines on which it is started again."""
    chain = successor.chain(environment)
    if chain is None:
        task = environment.get("SKYPILOT_TASK_ID", "")
        return _elsewhere(f"skypilot {task}") if task else None
    job = chain.first
    key = f"slurm {environment.get('SLURM_CLUSTER_NAME', '')} {job}"
    if environment.get("SLURM_STEP_NUM_TASKS", "1") != "1":  # srun starts `carbontui run` once per task
        key += f" task {environment.get('SLURM_PROCID', '')}"
    count = environment.get("SLURM_RESTART_COUNT", "")
    return Scheduled(key, chain.number + (int(count) if count.isdecimal() else 0))


def _elsewhere(key: str) -> Scheduled:
    """A scheduler that counts no restarts: on another boot than the last it is one more."""
    for job in store.jobs():
        if job.scheduler == key:
            with contextlib.suppress(OSError, ValueError):
                moved = job.place is not None and job.place.boot != life.here().boot
                return Scheduled(key, opts.load(job.dir).attempt + moved)
    return Scheduled(key, 0)


def earlier(here: Scheduled, argv: tuple[str, ...], cwd: str, *, resubmit: bool = False) -> store.Job | None:
    """The job to continue; None at the first start, or if the last one came to its end.

    After a restart by the scheduler, any job that has not ended by itself continues; within one start only an unloaded
    one. With --resubmit, each of the jobs that one script has started with this command, in their order: where others
    go on also one that `is_over`, which is not to be repeated.
    """
    started, others = _started(here.key), _others_go_on(here.key)
    for job in reversed(started) if resubmit else started:
        try:
            spec = opts.load(job.dir)
        except (OSError, ValueError):
            continue
        if job.argv != argv or spec.cwd != cwd:
            continue
        again = here.attempt > spec.attempt
        if not resubmit:
            return job if goes_on(job, again=again) else None
        if again and (goes_on(job, again=True) or (others and is_over(job))):
            with contextlib.suppress(FileExistsError):  # another `run` of this start has it
                (job.dir / f"start-{here.attempt}").touch(exist_ok=False)
                return job
    return None


def _started(key: str) -> list[store.Job]:
    """All of a scheduler's job, newest first."""
    return [job for job in store.jobs() if job.scheduler == key]


def _others_go_on(key: str) -> bool:
    return any(job.exit is None or job.exit.get("unloaded") for job in _started(key))


def is_over(job: store.Job) -> bool:
    """Whether it has come to its end by itself."""
    record = job.exit or {}
    return record.get("code") is not None and not record.get("unloaded") and not record.get("signals")


LEFT = "left"
"""File of an unloaded job: the Slurm job that has ended itself, its successor being there."""


def leave_if_done(job: store.Job, say: Callable[[str], None]) -> None:
    """Exit where a successor has nothing to do for this job: it was over, and its code is given again, or the Slurm job
    before was cancelled while it left, and this one is ended, too."""
    chain, last, requeued = successor.chain(os.environ), "", os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
    if is_over(job) and (_others_go_on(job.scheduler) or not exit_code(job)):
        say(f"job {job.id} ({job.name}) came to its end in an earlier start, and is not repeated")
        raise SystemExit(exit_code(job))
    with contextlib.suppress(OSError):
        last = (job.dir / LEFT).read_text()
    if requeued or not (job.exit or {}).get("unloaded") or chain is None or chain.after in ("", last):
        return
    if successor.cancelled(chain.after):
        say(f"Slurm job {chain.after} was cancelled before it had left: this one ends, too")
        successor.end(allocation.own_name(os.environ), lambda: False)
        raise SystemExit(UNLOADED_EXIT)


def goes_on(job: store.Job, *, again: bool) -> bool:
    record = job.exit
    if record is None:
        return again  # killed with its keeper, or still alive
    if record.get("unloaded"):
        return True
    # exit code 0 after an external signal is a training that has saved, to continue later
    return again and (record.get("code") != 0 or bool(record.get("signals")))


def taken_up(job: store.Job, options: opts.Options, *, log: str | None) -> opts.Options:
    """`options` for a job that continues at home. Raises OSError or ValueError if its spec cannot be read."""
    before = opts.load(job.dir)
    return msgspec.structs.replace(options, log=log or before.log, created_s=before.created_s)


def state_left(job: store.Job) -> dict[str, Any]:
    """Where its next keeper continues: see `again` in the keeper's spec."""
    record = records.read_json(job.dir / "job.json") or {}
    starts = int(record.get("starts") or 0)
    if not starts:  # it left before its start: nothing is to be resumed
        (job.dir / "resume.json").unlink(missing_ok=True)
    elif (job.dir / "resume.json").exists():
        return {"state": "unloaded", "starts": starts}
    return {"state": "running" if starts else "waiting", "starts": starts}


def reached(directory: Path) -> tuple[int, int | None]:
    """How often a job has been started, and its last step; None: not known."""
    status, record = store.snapshot(directory), records.read_json(directory / "job.json") or {}
    return int(record.get("starts") or 0), None if status is None else status.step


def got_on(begun: tuple[int, int | None], directory: Path) -> bool:
    """Whether a job that had `reached` this has not been started since, or has made a step, as far as that is known."""
    starts, step = reached(directory)
    return starts == begun[0] or step is None or step != begun[1]


def check_resubmit() -> None:
    """Refuse --resubmit where there is no batch script to submit again. Raises LaunchError."""
    batch = successor.chain(os.environ) is not None
    if batch:
        with contextlib.suppress(commands.SlurmError):  # then the end will tell
            batch = allocation.record(os.environ, within_s=allocation.POLL_S).get("BatchFlag") != "0"
    if commands.in_step(os.environ):
        raise LaunchError(
            "--resubmit: not inside srun, but around it: carbontui run --resubmit ... -- srun ...; or without"
        )
    if not batch:
        raise LaunchError("--resubmit: only in a Slurm batch script, not in salloc; elsewhere leave it out")
    if not all(map(shutil.which, ("sbatch", "scancel", "scontrol", "squeue"))):
        raise LaunchError("--resubmit: sbatch, scancel, scontrol or squeue is not found here; leave it out")
    if os.environ.get("SLURM_HET_SIZE", "1") != "1":
        raise LaunchError(f"--resubmit: this is {successor.HETEROGENEOUS}; leave it out, or submit one component")


def batch_job() -> BatchJob:
    """The batch job of `run --resubmit`, shared with others in its script. Raises LaunchError."""
    try:
        return BatchJob(paths.private_dir(paths.socket_dir()) / "batch-jobs", int(os.environ["SLURM_JOB_ID"]))
    except OSError as error:
        raise LaunchError(f"--resubmit: {error.strerror or error}", 1) from None


def resubmit(directory: Path, code: int, batch: BatchJob, say: Callable[[str], None], *, progress: bool) -> int:
    """After the job's end: the exit code for this process, once `say` has said the rest. One that was unloaded has a
    successor, and its batch job is ended, unless it has made no `progress`."""
    now, unloaded, own = time.time(), _unloaded(), allocation.own_name(os.environ)
    if code != UNLOADED_EXIT:
        try:
            before = "" if unloaded else successor.withdraw_earlier(os.environ)
            say(f"it has come to its end: its successor {before} is cancelled" if before else "")
        except commands.SlurmError as error:
            say(f"whether a successor of an earlier start waits is not known ({error}): squeue --me")
        return code
    not_before = min((resume.not_before(str(job.dir / "resume.json")) or now for job in unloaded), default=now)
    received = set((records.read_json(directory / "exit.json") or {}).get("signals") or ())

    def ended() -> bool:
        received.update(found.number for found in signals.taken())
        return not received.isdisjoint((signal.SIGTERM, signal.SIGINT))

    try:
        new = successor.submit(os.environ, batch, wait_s=not_before - now, ended=ended, progress=progress)
        successor.until_alone(own, batch, new, ended)
        told = f"it continues as Slurm job {new.job}, starting in {max(0.0, not_before - now):.0f} s, and this job ends"
        if new.left:
            left = units.printable(", ".join(new.left))[:200]
            told += f"; these wait for this job and cannot be moved to that one: {left}"
        say(told)
        for job in _unloaded():
            with contextlib.suppress(OSError):
                (job.dir / LEFT).write_text(own)
        successor.end(own, ended)
    except successor.Cancelled:
        say("unloaded, and ended by Slurm or its user: it has no successor")
        return 128 + signal.SIGTERM
    except commands.SlurmError as error:
        say(f"unloaded, but no successor is submitted ({error}); submit it again by hand: it resumes")
        with contextlib.suppress(successor.Cancelled):
            successor.until_alone(own, batch, None, ended)
            successor.fail(own, ended)
    return code


def _unloaded() -> list[store.Job]:
    """Those of this batch job's chain."""
    here = scheduled(os.environ)
    return [job for job in _started(here.key if here else "") if (job.exit or {}).get("unloaded")]
