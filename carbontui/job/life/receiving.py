"""The other end of `move`: what the machine that is to take a job says of itself, makes ready, and is told.

A job arrives in `incoming/ID` of the state directory and becomes a job there only when its token is given. Everything
may be said again: the same token starts nothing twice, an older one is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from carbontui import __version__, paths
from carbontui.client.checkpoint import identity
from carbontui.job.files import launch_file, places, store
from carbontui.job.files.places import Stay
from carbontui.job.keeper import job_files as files
from carbontui.job.keeper.messages import Left, Renewed
from carbontui.job.life import launch, restart, stopping
from carbontui.job.terms import spec as opts
from carbontui.system import life, proc

LEAVES_S = 10.0
"""A watching keeper makes room for the job's return within this."""
OF_THE_MACHINE = (
    *launch_file.OF_THE_SESSION,
    *("XDG_", "DBUS_", "CARBONTUI_", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "HOSTNAME", "DISPLAY"),
    *launch.OF_THE_BOARDS,
)
"""Variables with these prefixes are each machine's own."""


class NotTaken(ValueError):
    """The job cannot be taken, and nothing of it is started; one line."""


def incoming(job: str) -> Path:
    return paths.state_dir() / "incoming" / job


def follow(path: str, roots: Mapping[str, str]) -> str:
    """The same place on this machine: `roots` are folders there and here, the innermost first."""
    for there, here in roots.items():
        if path == there or path.startswith(there.rstrip("/") + "/"):
            return here.rstrip("/") + path[len(there.rstrip("/")) :] or "/"
    return path


# --- before ---


def check(job: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What decides whether `job` can come here, and where to. Raises NotTaken."""
    if asked["version"] != __version__:
        raise NotTaken(f"carbontui is {__version__} there, {asked['version']} here: install the same")
    if shutil.which("rsync") is None:
        raise NotTaken("rsync is not installed there")
    home = str(Path.home())
    cwd = follow(asked["cwd"], {asked["home"]: home})
    roots = {asked["cwd"]: cwd, asked["home"]: home}
    before = _room_for(job)
    command, where = follow(asked["argv0"], roots), _path(asked["path"], roots)
    full = os.path.join(cwd, command) if os.sep in command else command  # noqa: PTH118
    brought = full.startswith(f"{cwd}/") and any(full == f"{cwd}/{name}" for name, *_ in asked["files"])
    if not brought and shutil.which(full, path=where) is None:
        raise NotTaken(f"{command} is not there: install it, or start the job with a command that both machines have")
    try:
        os.makedirs(cwd, exist_ok=True)  # noqa: PTH103
        folder = paths.private_dir(paths.private_dir(incoming("").parent / "incoming") / job)
    except OSError as error:
        raise NotTaken(f"{error.filename or cwd} cannot be used there ({error.strerror})") from None
    copied, changed = compare(cwd, asked["files"], been=before is not None)
    return {
        "watches": before,
        "home": home,
        "cwd": cwd,
        "staging": str(folder),
        "free_b": min(shutil.disk_usage(where).free for where in (cwd, folder)),
        "copy_b": copied,
        "changed": changed,
    }


def _room_for(job: str) -> int | None:
    """Of a job that was on this machine: the token of its hand-over, which this machine watches (-1: no more). None of
    another. Raises NotTaken where it is here."""
    if (here := store.named(job)) is None:
        return None
    if here.foreign or (here.unseen is not None and not here.dead):
        raise NotTaken(f"both machines share {paths.state_dir()}: carbontui restart {job} --here, on that one")
    known = places.read(here.dir)
    if known.holder and here.exit is None:
        raise NotTaken(f"there is a job {job} on it")
    return known.token if here.exit is None else -1


def compare(cwd: str, files: list[list[Any]], *, been: bool) -> tuple[int, list[tuple[str, str | None]]]:
    """Bytes of the files (path, size, mtime in ns) that differ here, and those that were changed here, with
    a checksum where the size is the same: nothing overwrites them. `been`: the job left its files here before."""
    differ: list[tuple[str, int, int | None, bool]] = []
    for name, size, mtime_ns in files:
        try:
            info = os.lstat(f"{cwd}/{name}")
        except OSError:
            differ.append((name, size, None, False))
            continue
        if (info.st_size, info.st_mtime_ns // 10**9) != (size, mtime_ns // 10**9):
            differ.append((name, size, info.st_size, info.st_mtime_ns > mtime_ns))
    there = {name for name, _, was_b, _ in differ if was_b is not None}
    tracked = there.intersection(git(cwd, "ls-files", "-z") or ()) if there else set()
    modified = tracked.intersection(git(cwd, "diff", "--name-only", "-z", "--relative", "HEAD") or ())
    changed = [
        (name, size == was_b)
        for name, size, was_b, newer in differ
        if was_b is not None
        and ((name in modified and not been) or (newer and (name not in tracked or name in modified)))
    ]
    shown = [(name, identity.checksum(f"{cwd}/{name}") if same else None) for name, same in changed]
    return sum(size for _, size, *_ in differ), shown


def git(cwd: str, *words: str) -> list[str] | None:
    """The names that git says, each ended by a zero byte; None where there is no repository, or no git."""
    try:
        done = subprocess.run(["git", "-C", cwd, *words], capture_output=True, check=False)
    except OSError:
        return None
    return [*filter(None, os.fsdecode(done.stdout).split("\0"))] if done.returncode == 0 else None


def not_ignored(cwd: str) -> list[str] | None:
    """The files below `cwd` that git does not ignore; None without a repository."""
    return git(cwd, "ls-files", "-z", "--cached", "--others", "--exclude-standard")


def _path(value: str, roots: Mapping[str, str]) -> str:
    """A PATH of there that holds here: what exists, then this machine's own."""
    theirs = [follow(entry, roots) for entry in value.split(os.pathsep) if entry]
    own = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*(entry for entry in theirs if Path(entry).is_dir()), *own]))


def environment(theirs: Mapping[str, str], roots: Mapping[str, str]) -> dict[str, str]:
    """The command's environment here: as it was there, over this machine's own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
    kept = {
        name: os.pathsep.join(follow(part, roots) for part in value.split(os.pathsep))
        for name, value in theirs.items()
        if not name.startswith(OF_THE_MACHINE)
    }
    return own | kept | {"PATH": _path(theirs.get("PATH", ""), roots)}


# --- what has arrived ---


def stage(job: str, sent: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Make what was copied a job of this machine, in its folder still; `own`: fields of its options that are this
    machine's. Raises NotTaken for what is not what was sent."""
    folder, final = incoming(job), paths.job_dir(job)
    left = opts.load(folder)
    roots = {left.dir: str(final), left.cwd: sent["cwd"], sent["home"]: str(Path.home())}
    pointer = folder / "resume.json.checkpoint"
    if body := store.read_json(pointer):
        _check_checkpoints(body, roots, {**roots, left.dir: str(folder)})
        paths.write_whole(pointer, json.dumps(_followed(body, roots)).encode())
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as journal:
        if journal.execute("pragma quick_check").fetchone() != ("ok",):
            raise NotTaken("its journal has not arrived whole")
    socket_path = paths.socket_path(job)
    options = msgspec.structs.replace(
        left,
        **own,
        dir=str(final),
        cwd=sent["cwd"],
        argv=tuple(follow(word, roots) for word in left.argv),
        log=follow(left.log, roots),
        err=follow(left.err, roots) if left.err else "",
        socket=str(socket_path),
        grid=None,
        metrics=None,
        ends_s=None,
        slurm_job=None,
    )
    kept = launch_file.load(folder)
    if kept is None:
        raise NotTaken("its environment has not arrived")
    spec = {**launch.keeper_spec(options, environment(kept["environment"], roots)), "hold": kept.get("hold", False)}
    spec["input"] = {**kept["input"], "path": follow(kept["input"].get("path") or "", roots) or None}
    paths.write_whole(folder / "spec.json", json.dumps(msgspec.to_builtins(options)).encode())
    paths.write_whole(folder / launch_file.FILE, json.dumps(spec).encode())
    was = store.read_json(folder / "job.json") or {}
    record = {**spec["public"], **life.here()._asdict(), "pids": {}}
    record |= {name: was[name] for name in ("state", "starts") if name in was}
    paths.write_whole(folder / "job.json", json.dumps(record).encode())
    places.write(
        folder, places.Places(int(sent["token"]), holder=False, peer=sent["peer"], places=_places(folder, sent))
    )
    for name in ("exit.json", life.LOCK, life.TRAINING_LOCK):
        (folder / name).unlink(missing_ok=True)
    os.sync()


def _places(folder: Path, sent: Mapping[str, Any]) -> tuple[Stay, ...]:
    """Where it was, and what it cost to come here."""
    *before, last = places.read(folder).places or (Stay(sent["host"], sent["zone"], sent["boot"], sent["since"]),)
    cost = Stay(socket.gethostname(), bytes=sent["bytes"], joules=sent.get("joules"))
    return (*before, last._replace(until=sent["until"]), cost)


def _check_checkpoints(body: Mapping[str, Any], roots: Mapping[str, str], arrived: Mapping[str, str]) -> None:
    """The checkpoint that the pointer names is the one that was written. Raises NotTaken."""
    path, known = body.get("path"), body.get("checksum")
    if isinstance(path, str) and known is not None and identity.checksum(follow(path, arrived)) != known:
        raise NotTaken(f"the checkpoint {follow(path, roots)} has not arrived as it was sent")


def _followed(value: Any, roots: Mapping[str, str]) -> Any:
    """The same, with every path in it followed."""
    if isinstance(value, dict):
        return {name: _followed(one, roots) for name, one in value.items()}
    if isinstance(value, list):
        return [_followed(one, roots) for one in value]
    return follow(value, roots) if isinstance(value, str) else value


# --- what the place before says ---


def converse(job: str, receive: Callable[[], Mapping[str, Any]], say: Callable[[dict[str, Any]], None]) -> None:
    """One conversation with the keeper of the place before: a lease counts from before it is asked for."""
    asked = places.now()
    here = store.named(job)
    say({"ready": True, "leave": here is not None and _leaves(here)})
    said = receive()
    if not said or said.get("ping"):
        say({"ok": True})
        return
    # what several conversations ask is done one after the other
    with launch.one_at_a_time(paths.private_dir(incoming("").parent / "incoming")):
        try:
            say({"ok": True, **_obeyed(job, said, asked)})
        except (NotTaken, launch.LaunchError, OSError, ValueError) as error:
            say({"error": str(error), "refused": isinstance(error, NotTaken)})


def _leaves(here: store.Job) -> bool:
    """Whether this place moves the job on, and asks to be let go."""
    facts = stopping.facts(here)
    return facts is not None and facts.release


def _obeyed(job: str, sent: Mapping[str, Any], asked: float) -> dict[str, Any]:
    token, here = int(sent["token"]), store.named(job)
    known = places.NEVER_MOVED if here is None else places.read(here.dir)
    if sent.get("back"):
        if here is not None and known.token < token:
            _end(here)
        shutil.rmtree(incoming(job), ignore_errors=True)
        return {}
    ends, *_ = granted = lease(sent, asked)
    if ends is not None and ends <= places.now():
        raise NotTaken("the lease has ended before it was heard")
    arrived = places.read(incoming(job)) if incoming(job).is_dir() else places.NEVER_MOVED
    if arrived.token == token and not (here is not None and known.holder and here.exit is None):
        _install(job, here, arrived, granted)
        return {"state": "starting"}
    if here is None or known.token < token:
        raise NotTaken(f"there is no job {job} with token {token}")
    if known.token > token or not known.holder:
        return {"own": True}
    if here.exit is not None:
        return _ended(here, sent)
    if not stopping.tell_keeper(here, Renewed(token, *granted)) or not here.kept:
        places.write(here.dir, known.granted(*granted))
        if not here.kept:
            restart.restart(here)
    return {"state": here.status().state}


def lease(sent: Mapping[str, Any], asked: float) -> places.PlaceLease:
    """The right to train here by the words of the place before."""
    lease_s, margin_s = (None if sent.get(name) is None else float(sent[name]) for name in ("lease_s", "margin_s"))
    return places.PlaceLease(None if lease_s is None else asked + lease_s, lease_s, margin_s)


def _ended(here: store.Job, sent: Mapping[str, Any]) -> dict[str, Any]:
    """How it ended; one that failed before its first step here goes back."""
    assert here.exit is not None
    status = here.status()
    failed = here.exit.get("code") != 0 and not here.exit.get("stopped")
    if failed and 0 < int(sent.get("step") or 0) >= status.step:
        return {"back": True}
    return {"over": here.exit}


def _install(job: str, here: store.Job | None, arrived: places.Places, granted: places.PlaceLease) -> None:
    """The job is this machine's: its folder takes its place, and its keeper is started. Raises LaunchError."""
    final = paths.job_dir(job)
    *before, stay = arrived.places
    now_s = time.time()
    took_s = max(0.0, now_s - (before[-1].until or now_s)) if before else 0.0
    stay = stay._replace(boot=proc.boot_id(), since=now_s, took_s=took_s, zone=opts.load(incoming(job)).zone or "")
    try:
        places.write(incoming(job), arrived.granted(*granted)._replace(places=(*before, stay)))
        paths.private_dir(paths.jobs_dir())
        if here is not None:
            _no_keeper(here)
            shutil.rmtree(final)
    except OSError as error:
        raise NotTaken(str(error)) from None
    incoming(job).rename(final)
    paths.sync_dir(final.parent)
    launch.run_keeper(restart.again(final))


def _no_keeper(here: store.Job) -> None:
    """A keeper that only watches leaves. Raises NotTaken."""
    stopping.tell_keeper(here, Left())
    due = time.monotonic() + LEAVES_S
    while here.kept:
        if time.monotonic() > due:
            raise NotTaken("the keeper of its earlier stay there does not leave")
        time.sleep(0.05)


def claim(here: store.Job) -> None:
    """A person says that the other machine is gone for good: the job is this one's, without a lease. Raises NotTaken or
    OSError."""
    known = places.read(here.dir)
    if known.holder and (not known.leased or stopping.tell_keeper(here, Renewed(known.token, None))):
        return
    if not known.holder:
        _no_keeper(here)
    places.write(here.dir, known._replace(token=known.token + 1, holder=True, leased=False))


def _end(here: store.Job) -> None:
    """The place before has the job again: nothing of it runs here any more. Raises NotTaken."""
    if here.exit is not None or stopping.tell_keeper(here, Left()):
        return
    if here.kept:
        raise NotTaken("the keeper there does not answer")
    if here.orphaned:
        stopping.by_ourselves(here, now=True)
    moved = places.read(here.dir).peer or "another machine"
    stopping.close(here, {**files.exit_record(None, None, stopped=False), "moved": moved})
