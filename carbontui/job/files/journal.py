"""The journal: one SQLite file per job, one writer (the supervisor), read by accounts, reports and users.

Tables (all times epoch seconds of the job's clock):
  event   at, wall, kind, data (JSON)        every decision, acknowledgement, override, plan, fault
  energy  t0, t1, device, joules, how, state  what each device drew over an interval, never across a change of state;
          the state may be "switching" (going on after a pause or an unload) or what the account excludes it for
          (try, estimate, calibration)
  energy_10min  start, joules, seconds        sums of the energy rows that begin in each ten minutes, over all devices
  steps   at, step, rate, loss, level         telemetry of the training loop
  grid    start, dur, value, kind, signal, source   realised intensity and prices used by the accounts
  state   key, value (JSON)                   what a respawned supervisor needs; "seal" is the SHA-256 of SEALED, row by
          row as Python shows it: without the rows of energy while there is a writer

The schema's version is SQLite's user_version; the one writer migrates. A journal that cannot be written never
hurts the job: writes are dropped, counted and reported. A damaged one is set aside and a new one started.

Triggers in the file itself keep energy_10min correct.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

SCHEMA_VERSION = 1

_CREATE = """
create table event (at real not null, wall real not null, kind text not null, data text not null);
create table energy (t0 real not null, t1 real not null, device text not null, joules real not null,
                     how text not null, state text not null);
create table steps (at real not null, step integer not null, rate real, loss real, level text);
create table grid (start real not null, dur real not null, value real not null, kind text not null,
                   signal text not null, source text not null, primary key (start, signal)) without rowid;
create table state (key text primary key, value text not null) without rowid;
create index energy_t0 on energy (t0);
create index event_kind on event (kind, at);
"""
ROLLUP_S = 600
"""Seconds of one row of energy_10min. A multiple of the accounts' bin, which no row of energy crosses."""
_ROLLED = f"""insert into energy_10min
select cast(t0 / {ROLLUP_S} as integer) * {ROLLUP_S}, joules, t1 - t0"""
_ON_TOP = "on conflict (start) do update set joules = joules + excluded.joules, seconds = seconds + excluded.seconds"
_ROLLUP = (
    "create table energy_10min (start integer primary key, joules real not null, seconds real not null)",
    f"create trigger energy_added after insert on energy begin {_ROLLED} from energy where rowid = new.rowid {_ON_TOP};"
    " end",
    "create trigger energy_removed after delete on energy begin update energy_10min"
    " set joules = joules - old.joules, seconds = seconds - (old.t1 - old.t0)"
    f" where start = cast(old.t0 / {ROLLUP_S} as integer) * {ROLLUP_S}; end",
)

_EVENT = "insert into event values (?,?,?,?)"
_ENERGY = "insert into energy values (?,?,?,?,?,?)"
_STEPS = "insert into steps values (?,?,?,?,?)"
_GRID = "insert or replace into grid values (?,?,?,?,?,?)"
_WITHIN = "delete from grid where signal=? and start>? and start<?"
_DISOWN = "delete from energy where device=?"
_STATE = "insert or replace into state values (?,?)"
SEALED = (
    "select * from energy order by rowid",
    "select * from grid order by start, signal",
    "select * from state where key in ('accounts', 'books') order by key",
)
"""What the account is made of, and the account."""

CHANGES = slice(24, 28)
"""Bytes of a SQLite file that count its commits."""
COPIES, COPY_AGAIN_S = 40, 0.05
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
NOT_WRITTEN = "journal not written: "
ENERGY_SOUND = (
    "t0 between 0 and 1e11 and t1 between t0 and t0 + 1e5 and joules between -1e12 and 1e12 and typeof(device) = 'text'"
)
AT_SOUND = "at between 0 and 1e11"
GRID_SOUND = "start between 0 and 1e11 and dur between 0 and 4e7 and value between -1e6 and 1e6"
"""Plausibility conditions for rows: others are skipped, so that a bad time stamp cannot span a million years of
five-minute bins. SQLite sorts text and blobs after all numbers, so they are excluded."""

LOCAL_FILESYSTEMS = {"ext4", "ext3", "ext2", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs", "ramfs"}


def filesystem_of(path: Path) -> str:
    """The file system type that holds `path`, from /proc/mounts; '' when unknown."""
    best, kind = b"", ""
    try:
        mounts = Path("/proc/mounts").read_bytes()
    except OSError:
        return ""
    target = os.fsencode(path.resolve())
    for line in mounts.splitlines():
        fields = line.split()
        mount = re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), fields[1])
        inside = target == mount or target.startswith(mount.rstrip(b"/") + b"/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fields[2].decode()
    return kind


def has_locks(folder: Path) -> bool:
    """Whether files here can have POSIX locks: on Lustre without `flock` they cannot, and SQLite writes nothing."""
    for name in ("spec.json", ".lock"):  # never a file of SQLite's: closing it would drop the locks that SQLite holds
        try:
            fd = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in NO_LOCKS
        finally:
            os.close(fd)
    return True


class Journal:
    """The writer of a journal. Rows are collected and committed by `commit()`, about every two seconds.

    `aside` is the path of a file found damaged: its rows of energy, steps and events are not in the new one.
    """

    def __init__(self, path: Path, wall_s: Callable[[], float] = time.time, *, opened: bool = True) -> None:
        self.path = path
        self.aside: Path | None = None
        self._wall_s = wall_s
        self.locked = True
        """Whether the file system has locks."""
        self.dropped = 0
        self.fault = ""
        self._pending: list[tuple[str, Sequence[Any]]] = []
        self._kept: dict[str, Any] = {}
        """Values that `keep` has written or is about to write, by key."""
        self._grid: Any = None
        """The digest of the rows of the grid, which are seldom written."""
        self._left: dict[str, Any] = {}
        self._lock = threading.Lock()
        """Of the pending rows: one thread collects them, another may commit them."""
        self._db: sqlite3.Connection | None = None
        if opened:
            self._open()

    def _open(self) -> None:
        db = None
        try:
            self.locked = has_locks(self.path.parent)
            # without locks: it has one writer all the same, since a job has one keeper and that one supervisor
            where = str(self.path) if self.locked else f"{self.path.resolve().as_uri()}?vfs=unix-none"
            how: dict[str, Any] = {"uri": not self.locked, "check_same_thread": False}
            db = sqlite3.connect(where, isolation_level=None, timeout=0.2, **how)
            # write-ahead logging needs shared memory, which network file systems do not give
            if self.locked and filesystem_of(self.path.parent) in LOCAL_FILESYSTEMS:
                db.execute("pragma journal_mode=wal")
            db.execute("pragma synchronous=normal")
            self._migrate(db)
            self._db = db
            self.fault = ""
        except sqlite3.Error as error:
            self._db = None
            self.fault = f"{NOT_WRITTEN}{error}"
            self._repair(error, db)

    def _repair(self, error: Exception, db: sqlite3.Connection | None) -> None:
        """Set a damaged file aside and start a new one; only once, since that does not repair a faulty disk."""
        if self.aside is not None or db is None or not _damaged(error):
            return
        self._kept.clear()
        state, grid = list(_readable(db, "state")), list(_readable(db, "grid"))
        self._db = None
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._wall_s()))
        aside = self.path.with_name(f"{self.path.name}.corrupt-{stamp}")
        try:
            db.close()
            # the write-ahead log first: one left behind would be replayed into the new file
            for end in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{end}").rename(f"{aside}{end}")
        except (OSError, sqlite3.Error) as fault:
            self.fault = f"{NOT_WRITTEN}{error}, and it cannot be set aside: {fault}"
            return
        self.aside = aside
        rows = [(_STATE, row) for row in state] + [(_GRID, row) for row in grid]
        with self._lock:
            self._pending = [*rows, *(row for row in self._pending if row[0] != _ENERGY)]
        self._open()
        self.commit()

    @staticmethod
    def _migrate(db: sqlite3.Connection) -> None:
        version = db.execute("pragma user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"journal schema {version} is newer than this carbontui ({SCHEMA_VERSION})")
        if version == 0:
            db.executescript(f"begin; {_CREATE} {'; '.join(_ROLLUP)}; pragma user_version={SCHEMA_VERSION}; commit;")

    def event(self, at: float, wall: float, kind: str, **data: Any) -> None:
        self._pending.append((_EVENT, (at, wall, kind, json.dumps(data, default=str))))

    def energy(self, t0: float, t1: float, device: str, joules: float, how: str, state: str) -> None:
        self._pending.append((_ENERGY, (t0, t1, device, joules, how, state)))

    def steps(self, at: float, step: int, rate: float | None, loss: float | None, level: str | None) -> None:
        self._pending.append((_STEPS, (at, step, rate, loss, level)))

    def grid(self, rows: Iterable[tuple[float, float, float, str, str, str]]) -> None:
        """Write grid rows; finer rows of an earlier value inside a new row are removed."""
        for row in rows:
            start, dur, _, _, signal, _ = row
            self._pending += [(_WITHIN, (signal, start, start + dur - 1e-6)), (_GRID, row)]

    def keep(self, key: str, value: Any) -> None:
        """Store a value for a successor's `recall`, in its JSON form. An unchanged value is not written again: most of
        the state does not change for hours."""
        if key in self._left and self._left[key] == value:
            return
        if key not in self._kept or self._kept[key] != value:
            self._kept[key] = value
            self._pending.append((_STATE, (key, _as_json(value))))

    def leave(self, key: str, value: Any) -> None:
        """Keep what the file has under `key` as long as nothing but `value` is to take its place: a default, because
        the stored value could not be read."""
        self._left[key] = value

    def unreadable(self) -> str:
        """Why nothing can be read of the file now; '' if it can be read, or if there is none yet."""
        if self._db is None:
            self._open()
        if self._db is None:
            with contextlib.suppress(OSError):
                return self.fault if self.path.stat().st_size else ""
            return ""
        try:
            self._db.execute("select count(*) from state").fetchone()
        except sqlite3.Error as error:
            return "" if _damaged(error) else f"journal not read: {error}"  # a damaged one is set aside when it is read
        return ""

    def recall(self, key: str, default: Any = None) -> Any:
        """The value kept under `key`, from the file (call before the first commit matters only at start)."""
        rows = self._select("select value from state where key=?", key)
        try:
            return json.loads(rows[0][0]) if rows else default
        except (TypeError, ValueError, RecursionError):
            return default

    def energy_rows(self) -> list[tuple[float, float, float, str]]:
        """(t0, t1, joules, state) of every row written so far."""
        return self._select(f"select t0, t1, joules, state from energy where {ENERGY_SOUND}")

    def disown(self, device: str) -> list[tuple[float, float, str, str]] | None:
        """Remove every energy row of a device that turned out not to be the job's; returns (t0, joules, how, state) of
        each. None if the file cannot be written now; then nothing was removed."""
        if not self.commit():
            return None
        rows = self._select("select t0, joules, how, state from energy where device=?", device)
        self._pending.append((_DISOWN, (device,)))
        if self.commit():
            return rows
        with self._lock:
            self._pending = [each for each in self._pending if each[0] != _DISOWN]
        return None

    def grid_rows(self) -> list[tuple[float, float, float, str, str, str]]:
        """(start, dur, value, kind, signal, source) of every row written so far."""
        return self._select(f"select start, dur, value, kind, signal, source from grid where {GRID_SOUND}")

    def _select(self, query: str, *values: Any) -> list[Any]:
        """Rows of the file; if it turns out to be damaged, rows of its replacement."""
        if self._db is None:
            return []
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            known = self.aside
            self._repair(error, self._db)
            return [] if self.aside is known else self._select(query, *values)

    def commit(self) -> bool:
        """Write pending rows in one transaction; False (with `fault` set) if that was not possible."""
        if not self._pending:
            return not self.fault
        if self._db is None:
            self._open()
        db = self._db
        with self._lock:
            rows, self._pending = self._pending, []
        try:
            if db is None:
                raise sqlite3.OperationalError(self.fault.removeprefix(NOT_WRITTEN))
            db.execute("begin")
            for statement, row in rows:
                db.execute(statement, row)
            if self._grid is None or any(statement in (_WITHIN, _GRID) for statement, _ in rows):
                self._grid = _digest(db, SEALED[1:2], hashlib.sha256())
            db.execute(_STATE, ("seal", _as_json(_digest(db, SEALED[2:], self._grid.copy()).hexdigest())))
            db.execute("commit")
        except (sqlite3.Error, OverflowError, ValueError) as error:
            if db is not None and db.in_transaction:
                db.execute("rollback")
            self.fault = f"{NOT_WRITTEN}{error}"
            self._kept.clear()  # it is unknown which of these will reach the file
            self._grid = None
            with self._lock:
                self._pending = rows + self._pending
            self.bound()
            self._repair(error, db)
            return not self.fault
        self.fault = ""
        return True

    def bound(self) -> None:
        """Of rows that cannot be written keep an hour or so for when the disk has room again."""
        with self._lock:
            if len(self._pending) > 20_000:
                self.dropped += len(self._pending) - 10_000
                del self._pending[:-10_000]

    def close(self) -> None:
        """After this `examples/audit.py` can see whether a row was altered."""
        self.commit()
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute(_STATE, ("seal", _as_json(_digest(self._db, SEALED, hashlib.sha256()).hexdigest())))
            self._db.close()
            self._db = None


def _digest(db: sqlite3.Connection, queries: Iterable[str], digest: Any) -> Any:
    for row in chain.from_iterable(map(db.execute, queries)):
        digest.update(repr(row).encode("utf-8", "replace"))
    return digest


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:  # a name with bytes that are not text; json escapes them
        return json.dumps(msgspec.to_builtins(value, enc_hook=str))


def _damaged(error: Exception) -> bool:
    """Whether SQLite reports damage: texts of SQLITE_NOTADB and SQLITE_CORRUPT; Python 3.10 has no error codes."""
    return "not a database" in str(error) or "malformed" in str(error)


def why_not(error: Exception) -> str:
    """Why a journal cannot be read, with the repair if there is one."""
    if "locked" in str(error):
        return "another program holds a lock on it (fuser -v names it): close that and repeat"
    return f"it cannot be read ({error})"


def _readable(db: sqlite3.Connection, table: str) -> Iterator[Sequence[Any]]:
    """The rows of a small table up to the first that cannot be read."""
    with contextlib.suppress(sqlite3.Error):
        yield from db.execute(f"select * from {table}")


def read(path: Path) -> contextlib.closing[sqlite3.Connection]:
    """`with read(path) as db`: a read-only connection for accounts, reports and scripts, closed at the block's end.

    Raises FileNotFoundError.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    log = path.with_name(f"{path.name}-wal")
    written = log.exists() or os.access(path.parent, os.W_OK, effective_ids=True)
    if not has_locks(path.parent):
        try:
            db = _of_a_copy(path)
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from None
    else:
        # no write-ahead log, and none can be created (read-only disk): no process writes this file any more
        still = "" if written else "&immutable=1"
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{still}", uri=True, timeout=2.0)
    db.row_factory = sqlite3.Row
    return contextlib.closing(db)


def _of_a_copy(path: Path) -> sqlite3.Connection:
    """A journal without locks as it was between two commits. The writer changes it only while its rollback journal is
    there, so a copy of both is rolled back, and one during which a commit has ended is taken again."""
    log = path.with_name(f"{path.name}-journal")

    def version() -> tuple[bytes, bool]:
        with path.open("rb") as file:
            return file.read(CHANGES.stop)[CHANGES], log.exists()

    with tempfile.TemporaryDirectory(prefix="carbontui-") as folder:
        copy = Path(folder) / path.name
        for _ in range(COPIES):
            before = version()
            shutil.copyfile(path, copy)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(log, copy.with_name(log.name))
            if version() == before:
                break
            copy.with_name(log.name).unlink(missing_ok=True)
            time.sleep(COPY_AGAIN_S)
        else:
            raise sqlite3.OperationalError("it is written all the time, and this file system has no locks")
        db = sqlite3.connect(copy)
        db.execute("select count(*) from sqlite_master").fetchone()  # rolled back, and open when the folder goes
        return db
