"""Jobs on disk, read-only: what `ls`, `status` and the station know of a job whose supervisor does not answer."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from carbontui import paths, protocol, units
from carbontui.job.files import launch_file, places, runlog, shown_totals
from carbontui.job.terms import child as children
from carbontui.job.terms.records import LAST_S, known_exit, read_bytes, read_json
from carbontui.protocol import Situation
from carbontui.system import proc, untrusted
from carbontui.system.life import LOCK, TRAINING_LOCK, HostIdentity, Life, Unseen, answers, here, is_locked, judge
from carbontui.text import statements


class Job(msgspec.Struct, frozen=True):
    """One job directory. `pids` maps keeper, supervisor and child to (pid, start time)."""

    id: str
    name: str
    dir: Path
    place: HostIdentity | None
    """Where it runs; None: its job.json cannot be read, and the rest is from its other files. Its keeper, if it lives,
    writes a new one."""
    socket: Path
    log: Path
    started_s: float
    argv: tuple[str, ...]
    pids: dict[str, tuple[int, int] | None]
    exit: dict[str, Any] | None
    err: Path | None = None
    """Its stderr, where that is apart."""
    stop_socket: Path | None = None
    """The keeper's own socket; an older keeper has none and takes its stop order by signal."""
    was: str = "running"
    """The child's state as last reported by the keeper: waiting, running, unloaded or exited."""
    trying: bool = False
    """The command runs as a try: its real start is still to come."""
    scheduler: str = ""
    """The scheduler's job it was started in; '' outside one."""

    @property
    def restart_command(self) -> str:
        """The command that restarts a lost job; '' if none can."""
        return f"carbontui restart {self.id}" if self.exit is None and launch_file.kept(self.dir) else ""

    @property
    def owner(self) -> str:
        """The user whose job it is."""
        with contextlib.suppress(OSError, KeyError):
            return self.dir.owner()
        return ""

    @property
    def foreign(self) -> bool:
        """Belongs to another machine (a shared home directory): listed, never touched."""
        return self._unseen == "host"

    @property
    def host(self) -> str:
        """The machine it runs on, by the name it had then."""
        return (self.place or here()).host

    @property
    def _unseen(self) -> Unseen:
        return "damaged" if self.place is None else self.place.unseen(here())

    def alive(self, role: str) -> int | None:
        """The pid of keeper, supervisor or child if that same process still runs and can be seen from here."""
        entry = self.pids.get(role)
        if not entry or self.place is None or self._unseen or self.place.boot != here().boot:
            return None
        return entry[0] if proc.same_process(entry[0], entry[1]) else None

    @property
    def life(self) -> Life:
        """Whether anything of the job still runs."""
        sockets = (self.socket, self.stop_socket)
        return judge(self.dir, self.place, self.pids.values(), sockets, ended=self.exit is not None)

    @property
    def live(self) -> bool:
        """Whether anything of the job is known to run."""
        return self.life.state == "alive"

    @property
    def dead(self) -> bool:
        """Whether it is known that nothing of the job runs any more."""
        return self.life.state == "dead"

    @property
    def kept(self) -> bool:
        """Whether its keeper lives, be it stopped or hung."""
        return bool(is_locked(self.dir / LOCK) or answers(self.stop_socket) or self.alive("keeper"))

    @property
    def orphaned(self) -> bool:
        """Whether its training runs here without a keeper: `restart` gives it one."""
        return self.exit is None and self.alive("child") is not None and not self.kept

    def read_log(self, ask: protocol.LogRead) -> protocol.LogAnswer:
        """A piece of its output, straight from the file."""
        return runlog.read(self.log, ask, self.err, self.alive("child"))

    def whole_run(self, columns: int) -> protocol.HistoryAnswer | None:
        """Chart data of a finished job; None if nothing was booked. Raises past.HistoryError."""
        from carbontui.job.files import history  # with SQLite: a screen opens without it

        return history.whole(self.dir / "journal.db", self.status(), columns)

    def status(self) -> protocol.Status:
        """The last known status, corrected by what is visible from outside."""
        saved = snapshot(self.dir)
        if saved is None:
            saved = protocol.Status(
                job=self.id,
                name=self.name,
                host=self.host,
                measured_at=units.iso(self.started_s),
                state="starting",
                reason=statements.reason(children.STARTING, self.started_s),
                step=None if self.log.exists() else 0,
            )
        saved = statements.read_here(saved, units.from_iso(saved.measured_at))
        if self.foreign:
            return saved
        pids = protocol.Pids(self.alive("keeper"), self.alive("supervisor"), None, self.alive("child"))
        changes: dict[str, Any] = {"pids": pids, "owner": self.owner}
        if there := places.read(self.dir).moved_to:
            changes["moved_to"] = protocol.MovedTo(there)
        if saved.state in protocol.LIVE_STATES:
            saved = shown_totals.at_least(saved, shown_totals.read(shown_totals.place(self.socket)))
            changes |= self._outside(saved, pids)
        elif saved.state == "lost" and self.dead and self.restart_command:
            changes["reason"] = _reason(children.lost(self.was, self.restart_command))
        return msgspec.structs.replace(saved, **changes)

    def _outside(self, saved: protocol.Status, pids: protocol.Pids) -> dict[str, Any]:
        """What the exit file and the process table say about a job whose snapshot is live."""
        if self.exit is not None:
            # the snapshot could not be written any more
            return ended(self.exit) | {"measured_at": units.iso(self.exit.get("at", self.started_s))}
        known = self.life.state
        if known == "unknown":
            said = protocol.statement("life_unknown", why=self.unseen)
            return {"reason": _reason(protocol.Why("unseen", said))}
        if known == "dead":
            reason = _reason(children.lost(saved.state, self.restart_command))
            return {"state": "lost", "reason": reason, "situation": Situation.over(None), "next": None, "exit": None}
        if host := places.read(self.dir).moved_to:
            reason = _reason(protocol.Why("moved", protocol.statement("moved_to", host=host)))
            there = {"moved_to": protocol.MovedTo(host), "situation": Situation.over(None)}
            return {"state": "unloaded", "reason": reason, "next": None, "power_w": None, **there}
        keeper, child = self.alive("keeper"), self.alive("child")
        if keeper and child and proc.stopped(keeper) and proc.stopped(child):
            said = protocol.statement("suspended") if self.scheduler else protocol.statement("suspended_here")
            now = saved.situation and msgspec.structs.replace(saved.situation, applied="pause")
            reason = _reason(protocol.Why("no_client", said))
            return {"state": "paused", "reason": reason, "situation": now, "power_w": None, "next": None}
        unseen = self.unseen
        steered = pids.supervisor is not None if unseen is None else answers(self.socket)
        if not steered and (pids.child is not None or unseen is not None):
            then = unseen or protocol.statement("take_up", command=f"carbontui restart {self.id}")
            said = protocol.statement("unsteered") if self.kept else protocol.statement("orphaned", then=then)
            # the last supervisor's readings are out of date
            blank = {"power_w": None, "own_w": None, "memory_used_b": None, "util": None}
            gpus = tuple(msgspec.structs.replace(gpu, **blank) for gpu in saved.gpus)
            reason = _reason(protocol.Why("unguarded", said))
            gone = {"power_w": None, "rate_steps_per_s": None, "gpus": gpus}
            now = Situation.unsteered(saved.situation)
            return {"state": "running", "reason": reason, "situation": now, "next": None, **gone}
        return {}

    @property
    def unseen(self) -> protocol.Statement | None:
        """What hides its processes from here; None: nothing."""
        why = self._unseen
        facts = {"host": {"host": self.host}, "damaged": {"record": str(self.dir / "job.json")}}
        return protocol.statement(f"unseen_{why}", **facts.get(why, {})) if why else None


def _reason(why: protocol.Why) -> protocol.Reason:
    return statements.reason(why, time.time())


def snapshot(directory: Path) -> protocol.Status | None:
    """The last status a supervisor wrote; None if none can be read."""
    with contextlib.suppress(OSError, ValueError):
        return untrusted.decode(read_bytes(directory / "snapshot.json"), protocol.Status)
    return None


def _exit(directory: Path) -> dict[str, Any] | None:
    record = read_json(directory / "exit.json")
    return None if record is None else known_exit(record)


def ended(record: dict[str, Any]) -> dict[str, Any]:
    """state, reason and exit of a Status from the keeper's exit record."""
    child = children.exited(record)
    state, why = children.ending(child)
    at_s = child.ended_wall_s
    over = Situation.over(None if at_s is None else units.iso(at_s))
    return {
        "state": state,
        "reason": _reason(why),
        "situation": over,
        "exit": protocol.Exit(child.code, child.signal),
        "next": None,
    }


def load(directory: Path) -> Job | None:
    """The job in a directory; None if there is none. If job.json is damaged, as far as its other files tell."""
    return _recorded(directory) or _rebuilt(directory)


def _recorded(directory: Path) -> Job | None:
    """As job.json has it; None without a readable one."""
    record = read_json(directory / "job.json")
    if record is None:
        return None
    try:
        started_s = float(record["started"])
        if not 0 <= started_s <= LAST_S:
            return None
        pids = {role: (int(e[0]), int(e[1])) if e and e[1] else None for role, e in record.get("pids", {}).items()}
        return Job(
            id=str(record["job"]),
            name=str(record["name"]),
            dir=directory,
            place=HostIdentity.of(record),
            socket=Path(record["socket"]),
            log=Path(record["log"]),
            started_s=started_s,
            argv=tuple(record["argv"]),
            pids=pids,
            exit=_exit(directory),
            err=Path(record["err"]) if record.get("err") else None,
            stop_socket=Path(record["door"]) if record.get("door") else None,
            was=str(record.get("state", "running")),
            trying=record.get("trying") is True,
            scheduler=str(record.get("scheduler") or ""),
        )
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None


def _rebuilt(directory: Path) -> Job | None:
    """As spec.json has it, of a job that has begun; else as its locks prove. Without a keeper's, `run` has begun its
    command and is about to say what the job is: it is starting, and who holds that lock stands for its keeper."""
    from carbontui.job.terms import spec

    lock, training = directory / LOCK, directory / TRAINING_LOCK
    kept, trains = lock.exists(), is_locked(training)
    if not (kept or trains):
        return None
    name, log, started_s = directory.name, directory / "run.log", 0.0
    argv: tuple[str, ...] = ()
    socket = paths.found_socket(name)
    try:
        options = spec.load(directory)
        name, argv, log, started_s = options.name, options.argv, Path(options.log), options.created_s
        socket = Path(options.socket)
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            started_s = (lock if kept else training).stat().st_mtime
    holder = proc.holder(os.fspath(training)) if trains else None
    return Job(
        id=directory.name,
        name=name,
        dir=directory,
        place=here() if holder else None,
        socket=socket,
        log=log,
        started_s=started_s,
        argv=argv,
        pids={"child" if kept else "keeper": holder},
        exit=_exit(directory),
        stop_socket=Path(spec.stop_socket(socket)),
    )


def names() -> list[str]:
    """Names of the job directories, unread: for callers that poll often and read each job only once."""
    with contextlib.suppress(OSError):
        return [entry.name for entry in paths.jobs_dir().iterdir() if entry.is_dir()]
    return []


def named(name: str) -> Job | None:
    """The job in the directory of that name."""
    return load(paths.jobs_dir() / name)


def jobs() -> list[Job]:
    """Every job of the state directory, newest first."""
    return sorted((job for job in map(named, names()) if job is not None), key=lambda job: -job.started_s)


def live() -> list[Job]:
    """The jobs of this machine that live, newest first; of those that have ended no record is read."""
    unended = (name for name in names() if not (paths.jobs_dir() / name / "exit.json").exists())
    found = [job for job in map(named, unended) if job is not None and job.live and not job.foreign]
    return sorted(found, key=lambda job: -job.started_s)


class NoSuchJob(LookupError):
    """No job fits; the text lists those that are there."""


class NameOne(NoSuchJob):
    """None was named, and not exactly one fits."""


def find(wanted: str | None) -> Job:
    """A job by id or name; None: $CARBONTUI_JOB, else the only live one. Raises NoSuchJob, or NameOne with the
    list."""
    wanted = wanted or os.environ.get("CARBONTUI_JOB") or None
    every = jobs()
    if wanted:
        by_id = [job for job in every if job.id == wanted]
        named = [job for job in every if job.name == wanted]
        # a name may be reused once its job is over: take the live one, else the newest
        candidates = by_id or [job for job in named if job.live] or named[:1]
        if candidates:
            return candidates[0]
        raise NoSuchJob(f"no job {wanted!r}; there are: {listing(every)}")
    alive = [job for job in every if job.live and not job.foreign]
    if len(alive) == 1:
        return alive[0]
    if not alive and every:
        raise NameOne(f"no job is running; these are over: {listing(every)}")
    if not alive:
        raise NoSuchJob("no job is running")
    raise NameOne(f"several jobs are running; name one: {listing(alive)}")


def listing(some: list[Job]) -> str:
    """'k3f9aa (train.py), ...' for messages."""
    if not some:
        return "none"
    names = [f"{job.id} ({job.name})" for job in some[:6]]
    return ", ".join(names) + (" ..." if len(some) > 6 else "")
