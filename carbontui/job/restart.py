"""Continuing a job whose keeper is gone: after a reboot by `carbontui restart`, else by its supervisor.

A job that waited waits again, an unloaded one is resumed at its time, and one that was training starts again,
from the checkpoint of its last unload if there was one. If several try at once, the keepers' lock admits one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from carbontui import paths
from carbontui.job import launch, spool, store
from carbontui.job import spec as opts
from carbontui.system import proc


def restart(job: store.Job) -> int:
    """Start a keeper for a lost job; returns its pid. Raises LaunchError, which says why not."""
    if job.foreign:
        raise launch.LaunchError(f"job {job.id} belongs to {job.host}; restart it there")
    if job.exit is not None:
        raise launch.LaunchError(f"job {job.id} is over ({job.status().state}); start a new one with carbontui run")
    if job.alive("keeper"):
        raise launch.LaunchError(f"job {job.id} is live: its keeper starts it by itself")
    if pid := job.alive("child"):
        raise launch.LaunchError(f"the training of job {job.id} still runs (pid {pid}); it cannot be started twice")
    if pid := job.alive("supervisor"):
        raise launch.LaunchError(f"the supervisor of job {job.id} (pid {pid}) takes it up by itself")
    return launch.run_keeper(again(job.dir))


def again(directory: Path, state: str | None = None) -> dict[str, Any]:
    """The spec of a keeper that continues where the last one stopped: in `state`, else as job.json says.

    Raises LaunchError.
    """
    spec = spool.load(directory)
    record = store.read_json(directory / "job.json")
    if spec is None or record is None:
        raise launch.LaunchError(f"job {directory.name} has no stored environment; start a new one with carbontui run")
    socket = Path(spec["socket"])
    if not socket.parent.is_dir():
        # the runtime directory belonged to a login session that has ended
        socket = paths.socket_path(directory.name)
        spec["socket"] = spec["public"]["socket"] = str(socket)
        spec["door"] = spec["public"]["door"] = launch.stop_socket(str(socket))
        options = opts.load(directory)
        opts.save(msgspec.structs.replace(options, socket=str(socket)))
    spec["public"] |= {"boot": proc.boot_id()}
    spec["again"] = {"state": state or record.get("state", "running"), "starts": record.get("starts", 1)}
    return spec


def unloaded(directory: Path) -> bool:
    """Whether a child that is gone left a resume marker: it is to be started again."""
    return bool(store.read_json(directory / "resume.json"))
