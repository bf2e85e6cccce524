"""Continuing a job whose keeper is gone: by `carbontui restart`, else by its supervisor.

A training that still runs is taken up by a new keeper. A job that waited waits again, an unloaded one is resumed at its
time, and one that was training starts again, from the checkpoint of its last unload if there was one. If several try at
once, the keepers' lock admits one.
"""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from carbontui import paths
from carbontui.job.files import launch_file, places, store
from carbontui.job.keeper.messages import Left, Renewed
from carbontui.job.life import launch, stopping
from carbontui.job.terms import records
from carbontui.job.terms import spec as opts
from carbontui.system import bounded_command, proc
from carbontui.text.statements import words

NAME = "carbontui-restart.service"
UNIT = Path(__file__).with_name("restart.service")
KEPT = (
    *("CARBONTUI_HOME", "CARBONTUI_LEASE_DIR", "CARBONTUI_GRID_URLS", "CARBONTUI_OFFLINE", "CARBONTUI_ZONE"),
    *("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
)
"""Paths and keys that jobs need: a unit sees nothing else of the shell that installs it."""


def place(environment: Mapping[str, str] = os.environ) -> Path:
    """Where systemd looks for user units. Raises FileNotFoundError if no home directory is known."""
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "~"), ".config")  # noqa: PTH118
    return paths.known(lambda: str(Path(config).expanduser()), wanted="HOME") / "systemd" / "user" / NAME


def text(environment: Mapping[str, str] = os.environ) -> str:
    """The unit's text. Raises ValueError for a path that a unit file cannot contain."""
    words = (sys.executable, "-m", "carbontui.cli", "restart", "--after-reboot")
    command = " ".join(_word(word).replace("$", "$$") for word in words)
    kept = {name: environment[name] for name in KEPT if environment.get(name)}
    lines = (f"Environment={_word(f'{name}={value}')}\n" for name, value in kept.items())
    return UNIT.read_text(encoding="utf-8").format(command=command, environment="".join(lines))


def install(unit: str) -> None:
    """Write and enable it; nothing is left of one that cannot be. Raises SystemdError and OSError."""
    where = place()
    where.parent.mkdir(parents=True, exist_ok=True)
    try:
        where.write_text(unit)
        bounded_command.systemctl("--user", "daemon-reload")
        bounded_command.systemctl("--user", "enable", NAME)
    except (bounded_command.SystemdError, OSError):
        where.unlink(missing_ok=True)
        raise


def remove() -> None:
    """Disable and delete it, where there is no systemd, delete it alone. Raises SystemdError and OSError."""
    here = shutil.which("systemctl") is not None
    if here:
        bounded_command.systemctl("--user", "disable", NAME)
    place().unlink()
    if here:
        bounded_command.systemctl("--user", "daemon-reload")


def _word(word: str) -> str:
    """A word of a unit file: quoted, with specifiers escaped (systemd.syntax(7))."""
    if not word.isprintable() or not word.isascii():
        raise ValueError(f"{word!a} cannot stand in a unit file: ASCII paths alone")
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


LEAVE_S = 5.0
"""How long a supervisor without a keeper may take to leave for one that has a keeper."""
LEAVES_S = 10.0
"""A watching keeper makes room for the job's return within this."""


def restart(job: store.Job, *, machine_gone: bool = False) -> bool:
    """Start a keeper for a job that has none; whether it answers already. `machine_gone`: a person says so of
    another machine, with which it shared this state directory. Raises LaunchError, which says why not."""
    if job.foreign and not machine_gone:
        gone = f"; if that machine is gone for good: carbontui restart {job.id} --here"
        raise launch.LaunchError(f"job {job.id} belongs to {job.host}; restart it there{gone}")
    if job.exit is not None:
        raise launch.LaunchError(f"job {job.id} is over ({job.status().state}); start a new one with carbontui run")
    if job.kept:
        raise launch.LaunchError(f"job {job.id} is running; nothing to restart")
    if job.orphaned:
        return take_up(job)
    if job.unseen is not None and not job.dead and not job.foreign:
        raise launch.LaunchError(f"job {job.id} may still run, it cannot be started twice: {words(job.unseen, 0.0)}")
    if pid := job.alive("supervisor"):
        raise launch.LaunchError(f"the supervisor of job {job.id} (pid {pid}) takes it up by itself")
    return launch.run_keeper(again(job.dir))


def watcher_leaves(here: store.Job) -> None:
    """A keeper that only watches leaves. Raises LaunchError."""
    stopping.tell_keeper(here, Left())
    if not proc.awaited(lambda: not here.kept, LEAVES_S):
        raise launch.LaunchError("the monitor process of its earlier stay there does not leave")


def claim(here: store.Job) -> None:
    """A person says that the other machine is gone for good: the job is this one's, without a lease. Raises LaunchError
    or OSError."""
    known = places.read(here.dir)
    good = Renewed(known.token, None)
    if known.holder and (not known.leased or stopping.carry_out(here, good, lambda: not places.read(here.dir).leased)):
        return
    if known.holder and here.kept:
        raise launch.LaunchError("its monitor process does not take it")
    if not known.holder:
        watcher_leaves(here)
    places.write(here.dir, known._replace(token=known.token + 1, holder=True, leased=False))


def take_up(job: store.Job) -> bool:
    """Start a keeper for a training that still runs; whether it answers already. Raises LaunchError."""
    if pid := job.alive("supervisor"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        proc.awaited(lambda: not job.alive("supervisor"), LEAVE_S)
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
    spec = launch_file.load(directory)
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
    record = records.read_json(directory / "job.json") or _left(spec)
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
    return bool(records.read_json(directory / "resume.json"))
