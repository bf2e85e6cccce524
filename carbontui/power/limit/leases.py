"""Limit leases: the limit a GPU had before carbontui changed it, on disk before the first change.

One file and one lock per GPU UUID in `carbontui.paths.limit_lease_dir()`. A process that writes a limit holds the lock
(flock: the kernel frees it at any death) and owns the lease's epoch; the epoch is read again before every write. The
lease of a dead owner is stale: the next agent on the machine takes 'before' from it, never from the device.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from carbontui import paths
from carbontui.power.backends.base import DeviceError
from carbontui.power.limit.steering import Steering
from carbontui.system import life, proc, untrusted
from carbontui.text import boards
from carbontui.text.boards import MAKERS, limit_command


class LeaseRecord(Struct, frozen=True, kw_only=True):
    """Milliwatts as the driver keeps them. `ours_mw`: every value that may be in force because of us."""

    uuid: str
    boot_id: str
    epoch: int
    before_mw: int
    ours_mw: tuple[int, ...]
    agent_pid: int
    agent_start: int
    job: str
    written_s: float
    clocks_mhz: int | None = None
    """The clock lock used instead of a limit; it can only be lifted, since a lock cannot be read."""
    owner_pid: int = 0
    owner_start: int = 0
    """The supervisor that started the agent: once it is gone the limit is no longer wanted. 0: it had gone before."""
    pidns: int = 0
    """Inode of the pid namespace of these pids; 0 where /proc shows another one."""
    maker: str = "nvidia"
    address: str = ""
    """What the maker's tool calls the board, if not by its UUID."""

    @property
    def fix(self) -> str:
        """The exact command that restores the limit by hand."""
        board = self.address or self.uuid
        if self.clocks_mhz is not None:
            return "sudo " + boards.of(self.maker).unlock.format(board=board)
        return limit_command(self.maker, board, self.before_mw)

    @property
    def text(self) -> str:
        """What was left, if this lease is stale."""
        left = f"job {self.job} left {self.uuid}"
        if self.clocks_mhz is not None:
            return f"{left} with its clock locked at {self.clocks_mhz} MHz"
        watts = " or ".join(f"{ours / 1000:.0f}" for ours in dict.fromkeys(self.ours_mw))
        return f"{left} at {watts} W (found {self.before_mw / 1000:.0f} W)"


class LowLimit(Struct, frozen=True):
    """A limit below the driver's default without a lease, as an agent saw it: for commands that query no driver."""

    uuid: str
    boot_id: str
    limit_mw: int
    default_mw: int
    maker: str = "nvidia"
    address: str = ""

    @property
    def text(self) -> str:
        """The limit, who may have left it and the command that lifts it."""
        return (
            f"its limit is {self.limit_mw / 1000:.0f} W, the driver's default {self.default_mw / 1000:.0f} W: set by "
            "an administrator, or left by a job that was killed together with its lease (a container?); to lift it: "
            f"{limit_command(self.maker, self.address or self.uuid, self.default_mw)}"
        )


DAMAGED = "look whether that GPU's limit is as it should be ({command}), then remove the file".format(
    command=" or ".join(maker.inspect for maker in MAKERS.values())
)


REFUSED_S = 600.0


class LeaseStore:
    """The lease files of one directory. Each write is fsynced with its directory before it returns."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or paths.limit_lease_dir()

    def path(self, uuid: str) -> Path:
        return self.directory / f"{uuid}.json"

    def lock_path(self, uuid: str) -> Path:
        return self.directory / f"{uuid}.lock"

    def read(self, uuid: str) -> LeaseRecord | None:
        """The lease of this GPU; None if there is none or it cannot be read (`damaged` tells which)."""
        try:
            lease = untrusted.decode(self.path(uuid).read_bytes(), LeaseRecord)
        except (OSError, ValueError):
            return None
        return lease if lease.uuid == uuid else None

    def damaged(self, uuid: str) -> bool:
        """Whether this GPU's lease file cannot be read: from another version, or cut short."""
        return self.path(uuid).exists() and self.read(uuid) is None

    def write(self, lease: LeaseRecord) -> None:
        """Write the lease. Raises OSError; then no limit may be set."""
        paths.private_dir(self.directory)
        paths.write_whole(self.path(lease.uuid), msgspec.json.encode(lease), durable=True)

    def drop(self, uuid: str) -> None:
        self.path(uuid).unlink(missing_ok=True)
        if self.directory.is_dir():
            paths.sync_dir(self.directory)

    def uuids(self) -> list[str]:
        """The GPUs that have a lease here, readable or not; none in a directory made by another user: its limits, and
        the commands it would have root run, cannot be trusted."""
        return [path.stem for path in self._files("*.json")]

    def _files(self, pattern: str) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(self.directory.glob(pattern)) if self.directory.lstat().st_uid == os.getuid() else []
        return []

    def note(self, uuid: str, kind: Literal["low", "refused"], data: bytes | None) -> None:
        """Record, or clear, what is known of a GPU without a lease: its low limit, or with which code the driver has
        refused to set one. In a directory that cannot be written nothing is recorded."""
        path = self.directory / f"{uuid}.{kind}"
        with contextlib.suppress(OSError):
            if data is not None:
                paths.private_dir(self.directory)
                path.write_bytes(data)
            else:
                path.unlink(missing_ok=True)

    def low(self) -> list[LowLimit]:
        """Low limits without a lease, as agents of this boot last saw them."""
        found = []
        for path in self._files("*.low"):
            with contextlib.suppress(OSError, ValueError):
                found.append(untrusted.decode(path.read_bytes(), LowLimit))
        return [low for low in found if low.boot_id == proc.boot_id() and self.read(low.uuid) is None]

    def refused(self, uuid: str) -> int | None:
        """The code of a refusal a short while ago, in this boot: permissions may change."""
        path = self.directory / f"{uuid}.refused"
        with contextlib.suppress(OSError, ValueError):
            code, boot = path.read_text().split()
            recent = abs(time.time() - path.stat().st_mtime) < REFUSED_S
            return int(code) if recent and boot == proc.boot_id() else None
        return None

    def all(self) -> list[LeaseRecord]:
        return [lease for uuid in self.uuids() if (lease := self.read(uuid)) is not None]

    def lock(self, uuid: str) -> int | None:
        """A descriptor holding this GPU's lock, or None while another process holds it."""
        paths.private_dir(self.directory)
        descriptor = os.open(self.lock_path(uuid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor


class Now(Struct, frozen=True):
    """What is read for one step: the limit in force, the error of reading it or of the last write, and the draw."""

    at_s: float = 0.0
    limit_mw: int | None = None
    power_w: float | None = None
    error: DeviceError | OSError | None = None
    """An OSError: no lease could be written, so nothing was set."""


class Write(Struct, frozen=True):
    """Put on disk which limits may be in force from now on, then set one limit or lock; with neither the lease alone.

    Without `ours_mw` the original one is set again, or the lock lifted, and the lease ends.
    """

    ours_mw: tuple[int, ...] = ()
    limit_mw: int | None = None
    mhz: int | None = None
    """0: no lock."""
    lock: Steering | None = None
    """How this lock is steered."""
    asked_w: float = 0.0
    first: bool = False
    """No lease was there before: nothing of ours is in force if the driver refuses."""


def is_stale(lease: LeaseRecord, store: LeaseStore | None = None) -> bool:
    """Whether its agent or that agent's supervisor is gone in the same boot (a reboot restores limits).

    An agent restores within milliseconds of losing its supervisor: one still alive after that is stopped or hangs. Of
    one in another pid namespace, its lock tells.
    """
    if lease.boot_id != proc.boot_id():
        return False
    if lease.pidns and lease.pidns != proc.pid_namespace():
        return not life.is_locked((store or LeaseStore()).lock_path(lease.uuid))
    return not proc.same_process(lease.agent_pid, lease.agent_start) or is_orphaned(lease)


def is_orphaned(lease: LeaseRecord) -> bool:
    """Whether its agent is alive although its supervisor is gone."""
    alive = proc.same_process(lease.agent_pid, lease.agent_start)
    return alive and bool(lease.owner_pid) and not proc.same_process(lease.owner_pid, lease.owner_start)


def left_by(job: str) -> list[LeaseRecord]:
    """The leases of this job still on disk: if the job has ended, these limits were not restored."""
    return [lease for lease in LeaseStore().all() if lease.job == job and lease.boot_id == proc.boot_id()]


def damaged_leases(directory: Path | None = None) -> tuple[str, ...]:
    """What to do about each unreadable lease, as text."""
    store = LeaseStore(directory)
    return tuple(
        f"{store.path(uuid)} is not a lease that this version can read; {DAMAGED}"
        for uuid in store.uuids()
        if store.damaged(uuid)
    )


def stale_leases(directory: Path | None = None) -> tuple[LeaseRecord, ...]:
    """The leases of limits that were never restored on this machine; starts no process and changes nothing."""
    store = LeaseStore(directory)
    return tuple(lease for lease in store.all() if is_stale(lease, store))


LEAVING_S = 0.5
"""An agent that has lost its supervisor restores and exits within this, unless it hangs."""
DYING_S = 1.0
"""A killed process is gone within this, unless it is stuck in the driver."""


@dataclass(eq=False)
class BoardLease:
    """One GPU's lock and lease in this process. `say` takes lines for the log."""

    store: LeaseStore | None
    uuid: str
    job: str
    say: Callable[[str], None]
    maker: str = "nvidia"
    address: str = ""

    def __post_init__(self) -> None:
        self.record: LeaseRecord | None = None
        """The limit set by us, or by a dead agent that we took over from; None: none."""
        self._lock: int | None = None

    def on_disk(self) -> LeaseRecord | None:
        """The lease of this boot, whoever owns it; one from an earlier boot no longer applies."""
        lease = self.store.read(self.uuid) if self.store else None
        return lease if lease is not None and lease.boot_id == proc.boot_id() else None

    def inherited(self) -> bool:
        """Whether the lease is still that of the dead agent it was taken over from."""
        return self.record is not None and self.record.agent_pid != os.getpid()

    def take(self) -> bool:
        """Take the GPU's lock, and with it the lease of a dead owner; False while another agent holds it.

        Raises OSError if no lock can be kept, or if the lease on disk is no longer ours.
        """
        if self.store is None:
            return True
        if self.store.damaged(self.uuid):
            raise OSError(f"{self.store.path(self.uuid)} cannot be read; {DAMAGED}")
        if self._lock is None:
            self._lock = self.store.lock(self.uuid)
            if self._lock is None:
                self._lock = self._lock_of_an_orphan(self.store)
            if self._lock is None:
                return False
            self.record = self.on_disk()
        elif self.record is not None:
            found = self.store.read(self.uuid)
            if found is None or found.epoch != self.record.epoch:
                raise OSError("the lease is not ours any more")
        return True

    def holder(self) -> str:
        """Who holds this GPU's limit instead of us, as text."""
        lease = self.on_disk()
        if lease is None:
            return "another carbontui job holds this GPU's limit"
        if is_orphaned(lease):
            return f"an agent of job {lease.job} hangs in the driver (pid {lease.agent_pid}) and holds this GPU's limit"
        return f"job {lease.job} holds this GPU's limit"

    def _lock_of_an_orphan(self, store: LeaseStore) -> int | None:
        """The lock of an agent that outlived its supervisor, once that agent has exited or has been killed.

        That agent will never restore the limit by itself: it is stopped, or hangs in the driver.
        """
        lease = self.on_disk()
        if lease is None or lease.agent_pid == os.getpid() or not is_orphaned(lease):
            return None
        lock = self._lock_within(store, LEAVING_S)
        if lock is None and proc.same_process(lease.agent_pid, lease.agent_start):
            self.say(f"{self.uuid}: the agent of job {lease.job} (pid {lease.agent_pid}) has no supervisor: killed")
            with contextlib.suppress(ProcessLookupError):
                os.kill(lease.agent_pid, signal.SIGKILL)
            lock = self._lock_within(store, DYING_S)
        return lock

    def _lock_within(self, store: LeaseStore, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        while (lock := store.lock(self.uuid)) is None and time.monotonic() < until:
            time.sleep(0.01)
        return lock

    def write(self, before_mw: int, ours_mw: tuple[int, ...], clocks_mhz: int | None = None) -> None:
        """Record on disk which limits may be in force from now on. Raises OSError; then nothing may be set."""
        epoch = 1 if self.record is None else self.record.epoch + self.inherited()
        pid, parent = os.getpid(), os.getppid()
        owner_start = proc.start_time(parent) if parent > 1 else None
        lease = LeaseRecord(
            uuid=self.uuid,
            boot_id=proc.boot_id(),
            epoch=epoch,
            before_mw=before_mw,
            ours_mw=ours_mw,
            agent_pid=pid,
            agent_start=proc.start_time(pid) or 0,
            job=self.job,
            written_s=time.time(),
            clocks_mhz=clocks_mhz,
            owner_pid=parent if owner_start is not None else 0,
            owner_start=owner_start or 0,
            pidns=proc.pid_namespace(),
            maker=self.maker,
            address=self.address,
        )
        if self.store is not None:
            self.store.write(lease)
        self.record = lease

    def end(self) -> None:
        """No limit of ours is in force: remove the lease and free the lock; if the former fails, the next agent finds a
        limit that is already restored."""
        try:
            if self.record is not None and self.store is not None:
                self.store.drop(self.uuid)
        except OSError as error:
            self.say(f"{self.uuid}: its lease cannot be removed ({error})")
        self.let_go()

    def let_go(self) -> None:
        """Free the lock; the lease on disk stays."""
        self.record = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
