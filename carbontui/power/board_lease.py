"""Who may change one GPU's limit: its lock and its lease, as this agent holds them.

The order of a write: lock of this GPU -> epoch on disk still ours -> lease with 'before' and the new value on disk ->
driver. Without a store (simulated boards) no other process is involved, and nothing outlives the agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from carbontui.power.leases import DAMAGED, LeaseRecord, LeaseStore, is_orphaned, new_record
from carbontui.system import proc

LEAVING_S = 0.5
"""An agent that has lost its supervisor restores and exits within this, unless it hangs."""
DYING_S = 1.0
"""A killed process is gone within this, unless it is stuck in the driver."""


class BoardLease:
    """One GPU's lock and lease in this process. `say` takes lines for the log."""

    def __init__(self, store: LeaseStore | None, uuid: str, job: str, say: Callable[[str], None]) -> None:
        self.record: LeaseRecord | None = None
        """The limit set by us, or by a dead agent that we took over from; None: none."""
        self._store = store
        self._uuid = uuid
        self._job = job
        self._say = say
        self._lock: int | None = None

    def on_disk(self) -> LeaseRecord | None:
        """The lease of this boot, whoever owns it; one from an earlier boot no longer applies."""
        lease = self._store.read(self._uuid) if self._store else None
        return lease if lease is not None and lease.boot_id == proc.boot_id() else None

    def inherited(self) -> bool:
        """Whether the lease is still that of the dead agent it was taken over from."""
        return self.record is not None and self.record.agent_pid != os.getpid()

    def take(self) -> bool:
        """Take the GPU's lock, and with it the lease of a dead owner; False while another agent holds it.

        Raises OSError if no lock can be kept, or if the lease on disk is no longer ours.
        """
        if self._store is None:
            return True
        if self._store.damaged(self._uuid):
            raise OSError(f"{self._store.path(self._uuid)} cannot be read; {DAMAGED}")
        if self._lock is None:
            self._lock = self._store.lock(self._uuid)
            if self._lock is None:
                self._lock = self._lock_of_an_orphan(self._store)
            if self._lock is None:
                return False
            self.record = self.on_disk()
        elif self.record is not None:
            found = self._store.read(self._uuid)
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
            self._say(f"{self._uuid}: the agent of job {lease.job} (pid {lease.agent_pid}) has no supervisor: killed")
            with contextlib.suppress(ProcessLookupError):
                os.kill(lease.agent_pid, signal.SIGKILL)
            lock = self._lock_within(store, DYING_S)
        return lock

    def _lock_within(self, store: LeaseStore, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        while (lock := store.lock(self._uuid)) is None and time.monotonic() < until:
            time.sleep(0.01)
        return lock

    def write(self, before_mw: int, ours_mw: tuple[int, ...], clocks_mhz: int | None = None) -> None:
        """Record on disk which limits may be in force from now on. Raises OSError; then nothing may be set."""
        epoch = 1
        if self.record is not None:
            epoch = self.record.epoch + self.inherited()
        lease = new_record(self._uuid, epoch, before_mw, ours_mw, self._job, clocks_mhz)
        if self._store is not None:
            self._store.write(lease)
        self.record = lease

    def end(self) -> None:
        """Our limit is gone: forget the lease and free the lock."""
        if self._lock is not None:
            self.drop()
        self.let_go()

    def drop(self) -> None:
        """Remove the lease from disk; if that fails, the next agent finds a limit that is already restored."""
        try:
            if self._store is not None:
                self._store.drop(self._uuid)
        except OSError as error:
            self._say(f"{self._uuid}: its lease cannot be removed ({error})")

    def let_go(self) -> None:
        """Free the lock; the lease on disk stays."""
        self.record = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
