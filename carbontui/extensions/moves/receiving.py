"""The other end of `move`: what the machine that is to take a job says of itself, makes ready, and is told.

A job arrives in `incoming/ID` of the state directory and becomes a job there only when its token is given. Everything
may be said again: the same token starts nothing twice, an older one is refused.
"""

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from carbontui import paths
from carbontui.client import version
from carbontui.client.checkpoint import identity
from carbontui.extensions.moves import lease
from carbontui.extensions.moves.lease import Grant, Greeting, HoldAnswer
from carbontui.job.files import launch_file, places, store
from carbontui.job.files.places import At, Stay
from carbontui.job.keeper import job_files as files
from carbontui.job.keeper.messages import Left, Renewed
from carbontui.job.life import launch, restart, stopping
from carbontui.job.terms import records
from carbontui.job.terms import spec as opts
from carbontui.system import life, proc

OF_THE_MACHINE = (
    *launch_file.OF_THE_SESSION,
    *("XDG_", "DBUS_", "CARBONTUI_", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "HOSTNAME", "DISPLAY"),
    *launch.OF_THE_BOARDS,
)
"""Variables with these prefixes are each machine's own."""


class NotTaken(ValueError):
    """The job cannot be taken, and nothing of it is started; one line."""


# --- what is said between `move` and here: one line of JSON each, checked by `records.decode` ---


class CheckAsk(NamedTuple):
    """move -> there: can this job come, and where to?"""

    version: str
    cwd: str
    home: str
    argv0: str
    path: str
    """PATH."""
    files: tuple[tuple[str, int, int], ...]
    """Name below `cwd`, bytes, and mtime in ns."""


class CheckAnswer(NamedTuple):
    """What decides whether it comes, and where to."""

    home: str
    cwd: str
    staging: str
    free_b: int
    copy_b: int
    changed: tuple[tuple[str, str | None], ...] = ()
    """Files that differ there and were changed there, with a digest if that may be the same."""
    zone: str = ""
    zone_why: str = ""


class StageAsk(NamedTuple):
    """move -> there: all has been copied. Times are epoch seconds."""

    cwd: str
    home: str
    token: int
    peer: str
    host: str
    zone: str
    boot: str
    since: float
    until: float
    bytes: int
    joules: float | None = None


class Staged(NamedTuple):
    """What has arrived is what was sent."""

    ready: bool


class StartAsk(NamedTuple):
    """run --at -> there: what has been copied is to be started by `run` with these words."""

    cwd: str
    left: str
    """Its directory where it comes from."""
    home: str
    words: tuple[str, ...]
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


class Started(NamedTuple):
    """The job's id there."""

    job: str


# --- where ---


def incoming(job: str) -> Path:
    return paths.state_dir() / "incoming" / job


def zone_of(options: opts.Options) -> str:
    """A machine's grid zone; where it names an intensity alone, that; '' where it knows neither."""
    return options.zone or (f"{known:g} g/kWh" if (known := options.intensity_g_per_kwh) is not None else "")


def follow(path: str, roots: Mapping[str, str]) -> str:
    """The same place on this machine: `roots` are folders there and here, the innermost first."""
    for there, here in roots.items():
        if path == there or path.startswith(there.rstrip("/") + "/"):
            return here.rstrip("/") + path[len(there.rstrip("/")) :] or "/"
    return path


# --- before ---


def check(job: str, asked: CheckAsk, zone: str, zone_why: str) -> CheckAnswer:
    """What decides whether `job` can come here, and where to. Raises NotTaken."""
    # a commit that one side cannot name (no git there) is no difference
    if any(a != b for a, b in zip(asked.version.split("+"), version.full().split("+"), strict=False)):
        raise NotTaken(f"carbontui is {version.full()} there, {asked.version} here: install the same")
    if shutil.which("rsync") is None:
        raise NotTaken("rsync is not installed there")
    home = str(Path.home())
    cwd = follow(asked.cwd, {asked.home: home})
    roots = {asked.cwd: cwd, asked.home: home}
    been = _has_been(job)
    command, where = follow(asked.argv0, roots), _path(asked.path, roots)
    full = os.path.join(cwd, command) if os.sep in command else command  # noqa: PTH118
    brought = full.startswith(f"{cwd}/") and any(full == f"{cwd}/{name}" for name, *_ in asked.files)
    if not brought and shutil.which(full, path=where) is None:
        raise NotTaken(f"{command} is not there: install it, or start the job with a command that both machines have")
    try:
        os.makedirs(cwd, exist_ok=True)  # noqa: PTH103
        folder = paths.private_dir(paths.private_dir(incoming("").parent / "incoming") / job)
    except OSError as error:
        raise NotTaken(f"{error.filename or cwd} cannot be used there ({error.strerror or error})") from None
    copied, changed = compare(cwd, asked.files, been=been)
    free_b = min(shutil.disk_usage(where).free for where in (cwd, folder))
    return CheckAnswer(home, cwd, str(folder), free_b, copied, changed, zone, zone_why)


def digest(cwd: str, name: str) -> str | None:
    """Of a regular file below `cwd`, which no link leads out of; None of anything else, which is not opened."""
    path = f"{cwd}/{name}"
    with contextlib.suppress(OSError):
        inside = os.path.realpath(os.path.dirname(path)).startswith(os.path.realpath(cwd))  # noqa: PTH120
        if inside and stat.S_ISREG(os.lstat(path).st_mode):
            return identity.checksum(path)
    return None


def _has_been(job: str) -> bool:
    """Whether the job was on this machine before. Raises NotTaken where it is here."""
    if (here := store.named(job)) is None:
        return False
    if here.foreign or (here.unseen is not None and not here.dead):
        raise NotTaken(f"both machines share {paths.state_dir()}: carbontui restart {job} --here, on that one")
    if places.read(here.dir).holder and here.exit is None:
        raise NotTaken(f"there is a job {job} on it")
    return True


def compare(
    cwd: str, files: Iterable[tuple[str, int, int]], *, been: bool
) -> tuple[int, tuple[tuple[str, str | None], ...]]:
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
    tracked = there.intersection(launch.git(cwd, "ls-files", "-z") or ()) if there else set()
    modified = tracked.intersection(launch.git(cwd, "diff", "--name-only", "-z", "--relative", "HEAD") or ())
    changed = [
        (name, size == was_b)
        for name, size, was_b, newer in differ
        if was_b is not None
        and ((name in modified and not been) or (newer and (name not in tracked or name in modified)))
    ]
    shown = tuple((name, digest(cwd, name) if same else None) for name, same in changed)
    return sum(size for _, size, *_ in differ), shown


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


def start(job: str, sent: StartAsk) -> str:
    """Start what was copied as a new job of this machine, as a person would here; its id. Raises NotTaken."""
    incoming(job).rmdir()
    roots = {sent.left: sent.cwd, sent.home: str(Path.home())}
    argv = [follow(word, roots) for word in sent.argv]
    line = [sys.executable, "-m", "carbontui.cli", "run", "--detach", *sent.words, "--", *argv]
    theirs = environment(dict(sent.environment), roots)
    done = subprocess.run(line, cwd=sent.cwd, env=theirs, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotTaken(done.stderr.strip().rpartition("\n")[2].removeprefix("carbontui: "))
    return done.stdout.strip()


# --- what has arrived ---


def stage(job: str, sent: StageAsk, own: Mapping[str, Any]) -> None:
    """Make what was copied a job of this machine, in its folder still; `own`: fields of its options that are this
    machine's. Raises NotTaken for what is not what was sent."""
    folder, final = incoming(job), paths.job_dir(job)
    left = opts.load(folder)
    roots = {left.dir: str(final), left.cwd: sent.cwd, sent.home: str(Path.home())}
    pointer = folder / "resume.json.checkpoint"
    if body := records.read_json(pointer):
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
        cwd=sent.cwd,
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
    was = records.read_json(folder / "job.json") or {}
    record = {**spec["public"], **life.here()._asdict(), "pids": {}}
    record |= {name: was[name] for name in ("state", "starts") if name in was}
    paths.write_whole(folder / "job.json", json.dumps(record).encode())
    come = places.Places(sent.token, holder=False, leased=False, peer=sent.peer, places=_places(folder, sent))
    places.write(folder, come)
    for name in ("exit.json", life.LOCK, life.TRAINING_LOCK):
        (folder / name).unlink(missing_ok=True)
    os.sync()


def _places(folder: Path, sent: StageAsk) -> tuple[Stay, ...]:
    """Where it was, and what it cost to come here."""
    *before, last = places.read(folder).places or (Stay(sent.host, sent.zone, sent.boot, sent.since),)
    cost = Stay(socket.gethostname(), bytes=sent.bytes, joules=sent.joules)
    return (*before, last._replace(until=sent.until), cost)


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


def converse(job: str, receive: Callable[[type[Grant]], Grant], say: Callable[[Greeting | HoldAnswer], None]) -> None:
    """One conversation with the keeper of the place before: a lease counts from before it is asked for."""
    asked, here = places.now(), store.named(job)
    facts = None if here is None else stopping.facts(here)
    say(Greeting(ready=True, leave=facts is not None and facts.release))
    terms = receive(Grant)
    if terms.ping and not terms.recall:
        say(HoldAnswer(ok=True))
        return
    # what several conversations ask is done one after the other
    with launch.one_at_a_time(paths.private_dir(incoming("").parent / "incoming")):
        try:
            say(_carried_out(job, terms, asked))
        except (NotTaken, launch.LaunchError, OSError, ValueError) as error:
            say(HoldAnswer(error=str(error), refused=isinstance(error, NotTaken)))


def _carried_out(job: str, terms: Grant, asked: At) -> HoldAnswer:
    """What is done with a grant, as `lease.received` decides. Raises NotTaken, LaunchError or OSError."""
    here = store.named(job)
    known = None if here is None else places.read(here.dir)
    arrived = places.read(incoming(job)) if incoming(job).is_dir() else places.NEVER_MOVED
    verdict = lease.received(known, arrived.token, terms, over=here is not None and here.exit is not None)
    if verdict in ("end", "leave"):
        if here is not None:
            _end(here, terms.recall)
        shutil.rmtree(incoming(job), ignore_errors=True)
        if verdict == "leave" and here is not None:
            _until_over(here)
        return HoldAnswer(ok=True, back=verdict == "leave", left=verdict == "leave")
    if verdict == "own" or (here is None and verdict == "over"):
        return HoldAnswer(ok=True, own=True)
    if verdict == "refuse":
        raise NotTaken(f"there is no job {job} with token {terms.token}")
    right = lease.granted(arrived if verdict == "install" or known is None else known, terms, asked)
    if right.leased and right.permit().left_s(places.now()) <= 0.0:
        raise NotTaken("the lease has ended before it was received")
    if verdict == "install":
        _install(job, here, right)
        return HoldAnswer(ok=True)
    assert here is not None
    if verdict == "over":
        return _ended(here, terms)
    ends = right.ends if right.leased else None
    given = Renewed(terms.token, ends, right.lease_s, right.margin_s)
    if not stopping.carry_out(here, given, lambda: right.leased or _taken(here, terms)) and here.kept:
        raise launch.LaunchError("the monitor process there does not take it")
    if not here.kept:
        if not _taken(here, terms):
            places.write(here.dir, right)
        restart.restart(here)
    return HoldAnswer(ok=True, lives=_lives(here))


def _taken(here: store.Job, terms: Grant) -> bool:
    """Whether its last machine has let it go, or it is not here any more: of a lease the next one is soon given, but
    that is said once."""
    now = places.read(here.dir)
    return now.token != terms.token or not now.holder or not now.leased


def _lives(here: store.Job) -> bool:
    """Whether its command runs, waits because of a plan or a person, or is on its way to another machine."""
    facts, status = stopping.facts(here), here.status()
    if facts is None or facts.pid is not None:
        return here.alive("child") is not None
    held = status.state in ("waiting", "unloaded", "paused") and status.reason.code != "moved"
    return held or bool(facts.moving) or facts.stopping


def _until_over(here: store.Job) -> None:
    """Until nothing of it runs here any more. Raises NotTaken."""

    def is_over() -> bool:
        now = store.named(here.id)
        return now is None or (now.exit is not None and now.alive("child") is None)

    if not proc.awaited(is_over, restart.LEAVES_S):
        raise launch.LaunchError("it has not ended there yet")


def _ended(here: store.Job, terms: Grant) -> HoldAnswer:
    """How it ended; one that failed before its first step here goes back."""
    assert here.exit is not None
    failed = here.exit.get("code") != 0 and not here.exit.get("stopped")
    if failed and 0 < terms.step >= (here.status().step or 0):
        return HoldAnswer(ok=True, back=True)
    return HoldAnswer(ok=True, over=here.exit)


def _install(job: str, here: store.Job | None, right: places.Places) -> None:
    """The job is this machine's: its folder takes its place, and its keeper is started. Raises LaunchError."""
    final = paths.job_dir(job)
    *before, stay = right.places
    now_s = time.time()
    took_s = max(0.0, now_s - (before[-1].until or now_s)) if before else 0.0
    stay = stay._replace(boot=proc.boot_id(), since=now_s, took_s=took_s, zone=zone_of(opts.load(incoming(job))))
    try:
        places.write(incoming(job), right._replace(places=(*before, stay)))
        paths.private_dir(paths.jobs_dir())
        if here is not None:
            restart.watcher_leaves(here)
            shutil.rmtree(final)
    except (OSError, launch.LaunchError) as error:
        raise NotTaken(str(error)) from None
    incoming(job).rename(final)
    paths.sync_dir(final.parent)
    launch.run_keeper(restart.again(final))


def _end(here: store.Job, why: str) -> None:
    """The place before has the job again: nothing of it runs here any more. Raises NotTaken."""
    if here.exit is not None or stopping.carry_out(here, Left(why), lambda: not places.read(here.dir).holder):
        return
    if here.kept:
        raise NotTaken("the monitor process there does not answer")
    known = places.read(here.dir)
    places.write(here.dir, known._replace(holder=False, leased=False))
    if here.orphaned:
        stopping.by_ourselves(here, now=True)
    stopping.close(here, {**files.exit_record(None, None, stopped=False), "moved": known.peer or "another machine"})
