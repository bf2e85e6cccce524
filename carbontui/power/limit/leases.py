"""Limit leases: the limit a GPU had before carbontui changed it, on disk before the first change.

One file and one lock per GPU UUID in `carbontui.paths.limit_lease_dir()`. A process that writes a limit holds the lock
(flock: the kernel frees it at any death) and owns the lease's epoch; the epoch is read again before every write. The
lease of a dead owner is stale: the next agent on the machine takes 'before' from it, never from the device.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from carbontui import paths
from carbontui.system import life, proc, untrusted


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
    """Inode of the pid namespace of these pids; 0 in leases of older versions."""

    @property
    def fix(self) -> str:
        """The exact command that restores the limit by hand."""
        if self.clocks_mhz is not None:
            return f"sudo nvidia-smi -i {self.uuid} -rgc"
        return limit_command(self.uuid, self.before_mw)

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

    @property
    def text(self) -> str:
        """The limit, who may have left it and the command that lifts it."""
        return (
            f"its limit is {self.limit_mw / 1000:.0f} W, the driver's default {self.default_mw / 1000:.0f} W: set by "
            "an administrator, or left by a job that was killed together with its lease (a container?); to lift it: "
            f"{limit_command(self.uuid, self.default_mw)}"
        )


DAMAGED = "look whether that GPU's limit is as it should be (nvidia-smi -q -d POWER), then remove the file"


def limit_command(uuid: str, before_mw: int) -> str:
    """The command that sets a power limit by hand."""
    watts = f"{before_mw / 1000:.3f}".rstrip("0").rstrip(".")
    return f"sudo nvidia-smi -i {uuid} -pl {watts}"


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
        try:
            return sorted(self.directory.glob(pattern)) if self.directory.lstat().st_uid == os.getuid() else []
        except OSError:
            return []

    def note_low(self, uuid: str, low: LowLimit | None) -> None:
        """Record, or clear, this GPU's low limit. In a directory that cannot be written nothing is recorded."""
        path = self.directory / f"{uuid}.low"
        with contextlib.suppress(OSError):
            if low is not None:
                paths.private_dir(self.directory)
                path.write_bytes(msgspec.json.encode(low))
            elif path.exists():
                path.unlink()

    def low(self) -> list[LowLimit]:
        """Low limits without a lease, as agents of this boot last saw them."""
        found = []
        for path in self._files("*.low"):
            with contextlib.suppress(OSError, ValueError):
                found.append(untrusted.decode(path.read_bytes(), LowLimit))
        return [low for low in found if low.boot_id == proc.boot_id() and self.read(low.uuid) is None]

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


def new_record(
    uuid: str, epoch: int, before_mw: int, ours_mw: tuple[int, ...], job: str, clocks_mhz: int | None = None
) -> LeaseRecord:
    """A lease owned by this process."""
    pid, parent = os.getpid(), os.getppid()
    owner_start = proc.start_time(parent) if parent > 1 else None
    return LeaseRecord(
        uuid=uuid,
        boot_id=proc.boot_id(),
        epoch=epoch,
        before_mw=before_mw,
        ours_mw=ours_mw,
        agent_pid=pid,
        agent_start=proc.start_time(pid) or 0,
        job=job,
        written_s=time.time(),
        clocks_mhz=clocks_mhz,
        owner_pid=parent if owner_start is not None else 0,
        owner_start=owner_start or 0,
        pidns=proc.pid_namespace(),
    )
