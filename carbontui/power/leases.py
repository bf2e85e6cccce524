"""Limit leases: the limit a GPU had before carbontui changed it, on disk before the first change.

One file and one lock per GPU UUID in `carbontui.paths.limit_lease_dir()`. Whoever writes a limit holds the lock
(flock: the kernel frees it at any death) and owns the lease's epoch; before every write the epoch is read again. The
lease of a dead owner is stale: the next agent on the machine takes 'before' from it, never from the device.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from carbontui import paths, proc
from carbontui.power.messages import Outcome


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
    """The clock lock used instead of a limit; it can only be lifted, since none can be read."""


class StaleLease(Struct, frozen=True):
    """A limit nobody restored: the board is still at `ours_w`; before, it was `before_w`. `text` says so."""

    uuid: str
    before_w: float
    ours_w: float
    job: str
    fix: str
    text: str


DAMAGED = "look whether that GPU's limit is as it should be (nvidia-smi -q -d POWER), then remove the file"


def command(lease: LeaseRecord) -> str:
    """The exact command that restores a limit by hand."""
    if lease.clocks_mhz is not None:
        return f"sudo nvidia-smi -i {lease.uuid} -rgc"
    return limit_command(lease.uuid, lease.before_mw)


def limit_command(uuid: str, before_mw: int) -> str:
    """Sets a power limit by hand."""
    watts = f"{before_mw / 1000:.3f}".rstrip("0").rstrip(".")
    return f"sudo nvidia-smi -i {uuid} -pl {watts}"


class LeaseStore:
    """The lease files of one directory. Each write is fsynced with its directory before it returns."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or paths.limit_lease_dir()

    def path(self, uuid: str) -> Path:
        return self.directory / f"{uuid}.json"

    def read(self, uuid: str) -> LeaseRecord | None:
        """The lease of this GPU; None where there is none, or none that can be read (`damaged` tells which)."""
        try:
            lease = msgspec.json.decode(self.path(uuid).read_bytes(), type=LeaseRecord)
        except (OSError, msgspec.DecodeError):
            return None
        return lease if lease.uuid == uuid else None

    def damaged(self, uuid: str) -> bool:
        """Whether this GPU's lease file cannot be read: from another version, or cut short."""
        try:
            lease = msgspec.json.decode(self.path(uuid).read_bytes(), type=LeaseRecord)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, msgspec.DecodeError):
            return True
        return lease.uuid != uuid

    def write(self, lease: LeaseRecord) -> None:
        """Raises OSError; then nothing may be set."""
        paths.private_dir(self.directory)
        temporary = self.path(lease.uuid).with_suffix(f".{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(lease))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path(lease.uuid))
        except OSError:
            temporary.unlink(missing_ok=True)  # left by a full disk
            raise
        self._sync()

    def drop(self, uuid: str) -> None:
        self.path(uuid).unlink(missing_ok=True)
        self._sync()

    def uuids(self) -> list[str]:
        """The GPUs that have a lease here, readable or not; none in a directory that another user made: its limits,
        and the commands it would have root run, are not to be trusted."""
        try:
            if self.directory.lstat().st_uid != os.getuid():
                return []
            return sorted(path.stem for path in self.directory.glob("*.json"))
        except OSError:
            return []

    def all(self) -> list[LeaseRecord]:
        return [lease for uuid in self.uuids() if (lease := self.read(uuid)) is not None]

    def lock(self, uuid: str) -> int | None:
        """A descriptor holding this GPU's lock, or None while another process holds it."""
        paths.private_dir(self.directory)
        descriptor = os.open(self.directory / f"{uuid}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def _sync(self) -> None:
        if not self.directory.is_dir():
            return
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_stale(lease: LeaseRecord) -> bool:
    """Whether its owner is gone while the boot is the same (a reboot gives limits back by itself)."""
    return lease.boot_id == proc.boot_id() and not proc.same_process(lease.agent_pid, lease.agent_start)


def damaged_leases(directory: Path | None = None) -> tuple[str, ...]:
    """What to do about each lease that cannot be read, in words."""
    store = LeaseStore(directory)
    return tuple(
        f"{store.path(uuid)} is not a lease that this version can read; {DAMAGED}"
        for uuid in store.uuids()
        if store.damaged(uuid)
    )


def stale_leases(directory: Path | None = None) -> tuple[StaleLease, ...]:
    """The stale leases of this machine; starts and changes nothing."""
    return tuple(
        StaleLease(
            lease.uuid,
            lease.before_mw / 1000,
            lease.ours_mw[-1] / 1000,
            lease.job,
            command(lease),
            _text(lease),
        )
        for lease in LeaseStore(directory).all()
        if is_stale(lease)
    )


def _text(lease: LeaseRecord) -> str:
    left = f"job {lease.job} left {lease.uuid}"
    if lease.clocks_mhz is not None:
        return f"{left} with its clock locked at {lease.clocks_mhz} MHz"
    watts = " or ".join(f"{ours / 1000:.0f}" for ours in dict.fromkeys(lease.ours_mw))
    return f"{left} at {watts} W (found {lease.before_mw / 1000:.0f} W)"


def restore_stale(timeout_s: float = 20.0) -> tuple[Outcome, ...]:
    """Restore every stale limit, through an agent of its own (NVML is loaded nowhere else).

    Returns one outcome per lease; one that is not ok carries the command for a person to run.
    """
    stale = stale_leases()
    if not stale:
        return ()
    try:
        run = subprocess.run(
            [sys.executable, "-m", "carbontui.power.agent", "--mend"],
            capture_output=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",  # -m would import from the user's current directory
        )
        return msgspec.json.decode(run.stdout, type=tuple[Outcome, ...])
    except (subprocess.SubprocessError, OSError, msgspec.DecodeError, json.JSONDecodeError) as error:
        why = f"could not be restored ({type(error).__name__})"
        return tuple(Outcome(lease.uuid, False, "error", lease.ours_w, why, lease.fix) for lease in stale)


def new_record(
    uuid: str, epoch: int, before_mw: int, ours_mw: tuple[int, ...], job: str, clocks_mhz: int | None = None
) -> LeaseRecord:
    """A lease of this very process."""
    pid = os.getpid()
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
    )
