"""Continuing a job whose keeper is gone: by `carbontui restart`, else by its supervisor.

A training that still runs is taken up by a new keeper. A job that waited waits again, an unloaded one is resumed at its
time, and one that was training starts again, from the checkpoint of its last unload if there was one. If several try at
once, the keepers' lock admits one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from carbontui import paths
from carbontui.job.files import spool, store
from carbontui.job.life import launch
from carbontui.job.terms import spec as opts
from carbontui.system import proc
from carbontui.text.statements import words

LEAVE_S = 5.0
"""How long a supervisor without a keeper may take to leave for one that has a keeper."""


def restart(job: store.Job, *, machine_gone: bool = False) -> bool:
    """Start a keeper for a job that has none; whether it answers already. `machine_gone`: a person says so of
    another machine, with which it shared this state directory. Raises LaunchError, which says why not."""
    if job.foreign and not machine_gone:
        gone = f"; if that machine is gone for good: carbontui restart {job.id} --here"
        raise launch.LaunchError(f"job {job.id} belongs to {job.host}; restart it there{gone}")
    if job.exit is not None:
        raise launch.LaunchError(f"job {job.id} is over ({job.status().state}); start a new one with carbontui run")
    if job.kept:
        raise launch.LaunchError(f"job {job.id} is live: its keeper starts it by itself")
    if job.orphaned:
        return take_up(job)
    if job.unseen is not None and not job.dead and not job.foreign:
        raise launch.LaunchError(f"job {job.id} may still run, it cannot be started twice: {words(job.unseen, 0.0)}")
    if pid := job.alive("supervisor"):
        raise launch.LaunchError(f"the supervisor of job {job.id} (pid {pid}) takes it up by itself")
    return launch.run_keeper(again(job.dir))


def take_up(job: store.Job) -> bool:
    """Start a keeper for a training that still runs; whether it answers already. Raises LaunchError."""
    if pid := job.alive("supervisor"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        due = time.monotonic() + LEAVE_S
        while job.alive("supervisor") and time.monotonic() < due:
            time.sleep(0.02)
    with contextlib.suppress(OSError):  # the training knows no other socket
        paths.private_dir(job.socket.parent)
    return launch.run_keeper(again(job.dir, child=job.pids["child"]))


def orphan(name: str, argv: tuple[str, ...], cwd: str) -> store.Job | None:
    """The job of this name, command and folder whose training runs without a keeper."""
    for job in store.jobs():
        with contextlib.suppress(OSError, ValueError):
            if job.name == name and job.argv == argv and job.orphaned and opts.load(job.dir).cwd == cwd:
                return job
    return None


def again(directory: Path, state: str | None = None, child: tuple[int, int] | None = None) -> dict[str, Any]:
    """The spec of a keeper that continues where the last one stopped: with the `child` that still runs, else in
    `state`, else as job.json says.

    Raises LaunchError.
    """
    spec = spool.load(directory)
    if spec is None and child is not None:
        with contextlib.suppress(OSError, ValueError):
            spec = launch.keeper_spec(opts.load(directory), proc.environment(child[0]))
    if spec is None:
        raise launch.LaunchError(f"job {directory.name} has no stored environment; start a new one with carbontui run")
    socket = Path(spec["socket"])
    if not socket.parent.is_dir():
        # the runtime directory belonged to a login session that has ended
        socket = paths.socket_path(directory.name)
        spec["socket"] = spec["public"]["socket"] = str(socket)
        spec["door"] = spec["public"]["door"] = opts.stop_socket(socket)
        options = opts.load(directory)
        opts.save(msgspec.structs.replace(options, socket=str(socket)))
    record = store.read_json(directory / "job.json") or _left(spec)
    spec["again"] = {"state": state or record.get("state", "running"), "starts": record.get("starts", 1)}
    if child is not None:
        spec["again"] |= {"child": child, "trying": record.get("trying") is True}
    return spec


def _left(spec: dict[str, Any]) -> dict[str, Any]:
    """Where a job stopped whose job.json is damaged."""
    started = Path(spec["log"]).exists()
    return {"state": "running" if started else "waiting", "starts": int(started)}


def unloaded(directory: Path) -> bool:
    """Whether a child that is gone left a resume marker: it is to be started again."""
    return bool(store.read_json(directory / "resume.json"))
