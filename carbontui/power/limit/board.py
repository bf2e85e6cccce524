"""One GPU's limit as its agent knows it: the original limit, our own, why the driver refuses, and its lock and lease.

The order of a write: lock of this GPU -> epoch on disk still ours -> lease with 'before' and the new value on disk ->
driver. Without a store (simulated boards) no other process is involved, and nothing outlives the agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from carbontui.power.backends import codes
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo
from carbontui.power.limit.leases import DAMAGED, LeaseRecord, LeaseStore, LowLimit, is_orphaned, new_record
from carbontui.power.limit.steering import Steering
from carbontui.power.messages import Capability, Code, Outcome
from carbontui.system import proc

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
        epoch = 1
        if self.record is not None:
            epoch = self.record.epoch + self.inherited()
        lease = new_record(self.uuid, epoch, before_mw, ours_mw, self.job, clocks_mhz)
        if self.store is not None:
            self.store.write(lease)
        self.record = lease

    def end(self) -> None:
        """Our limit is gone: forget the lease and free the lock."""
        if self._lock is not None:
            self.drop()
        self.let_go()

    def drop(self) -> None:
        """Remove the lease from disk; if that fails, the next agent finds a limit that is already restored."""
        try:
            if self.store is not None:
                self.store.drop(self.uuid)
        except OSError as error:
            self.say(f"{self.uuid}: its lease cannot be removed ({error})")

    def let_go_unless_in_force(self) -> None:
        """Free the lock unless a limit of ours is in force."""
        if self.record is None:
            self.let_go()

    def let_go(self) -> None:
        """Free the lock; the lease on disk stays."""
        self.record = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


FIX_ROOT = (
    "ask your administrator for 'sudo carbontui capd install' (it lowers limits on GPUs that only you use, restores "
    "them, and does nothing else), run carbontui as root, or set the limit yourself: sudo nvidia-smi -i {uuid} {option}"
)
FIX_CONTAINER = "give the container --cap-add SYS_ADMIN, or set the limit on the host: nvidia-smi -i {uuid} {option}"
TOLERANCE_MW = 1000
"""Drivers round; a limit within one watt of ours counts as ours."""
EXAMPLE_SHARE = 0.8
"""Of the default limit: the cap in an example command. Training keeps most of its speed there."""
LIMIT_OVERSHOOT = 1.03
"""A board that draws more than this multiple of its limit is not held by it."""
CODES: dict[int, Code] = {
    codes.NO_PERMISSION: "no_permission",
    codes.NOT_SUPPORTED: "not_supported",
    codes.GPU_IS_LOST: "lost",
    codes.REFUSED: "foreign",
    codes.HELD: "held",
    codes.NOT_YET: "held",
}


@dataclass
class BoardLimit:
    """The state that both actuators share; `say` takes lines for the log."""

    info: DeviceInfo
    backend: Backend
    lease: BoardLease
    say: Callable[[str], None]
    tell: Callable[[Outcome], None]
    """Receives unsolicited outcomes, such as a limit changed from outside."""
    cap: Capability = field(default_factory=lambda: Capability("unknown", "not tried yet"))
    """Whether watts can be capped here, by any actuator. "unknown" is probed again."""
    passing: Capability | None = None
    """Why `cap` is not known yet, as text: another job, a full disk, a driver that timed out."""
    limit: Capability | None = None
    """Whether the power limit itself works, on a board where clocks are locked instead."""
    notice: str = ""
    """A notice for the user while the condition lasts."""

    left_low: LowLimit | None = None
    """A limit that was already low before us, without a lease that explains it."""

    found_mw: int | None = None
    """The limit to restore: the original one, or one set since by another program. 0: the board has none."""
    start_mw: int | None = None
    """The limit at the start."""
    set_at_s: float | None = None
    binding: bool = False
    """The board drew more than the limit when it was set, and has not yet been seen to comply."""
    proven: bool = False
    """The limit has been seen to hold."""
    over_since_s: float | None = None

    because: str = ""
    """Why clocks are locked here instead; "": the power limit is used."""
    clocks: Capability | None = None
    """The result of using a clock lock on this board; None: not tried."""
    steering: Steering | None = None
    sm_mhz: float | None = None
    """The clock at the last look."""
    module: bool = False
    """Only the watts of a whole module can be read, its CPU included."""

    @property
    def ceiling_mw(self) -> int | None:
        """Upper bound without allow_raise: the limit at the start, or less if another program has lowered it."""
        known = [limit for limit in (self.start_mw, self.found_mw) if limit]
        return min(known, default=None)

    @property
    def found_w(self) -> float | None:
        return self.found_mw / 1000 if self.found_mw else None

    @property
    def top_w(self) -> float | None:
        """The highest limit that is set here without an explicit request to raise it."""
        return self.ceiling_mw / 1000 if self.ceiling_mw else None

    @property
    def clocks_w(self) -> float | None:
        """Watts that a clock lock of ours is steered to."""
        return self.steering.wanted_w if self.steering else None

    @property
    def proving(self) -> bool:
        """Whether a cap is in force whose effect has not been seen yet."""
        return self.steering.proving if self.steering else self.binding

    @property
    def warning(self) -> str:
        """The notice, or that its limit was low before us; "" without either."""
        return self.notice or (self.left_low.text if self.left_low else "")

    def shown(self) -> Capability:
        """`cap`, or why it is not known yet."""
        return self.passing if self.cap.support == "unknown" and self.passing is not None else self.cap

    def clocks_cap(self) -> Capability:
        """Whether a clock lock can replace the limit; never probed, since an earlier lock could not be restored."""
        top = self.info.clock_max_mhz
        if self.info.mig or not top:
            return Capability(
                "not_supported", "MIG slices share this board" if self.info.mig else "no clock range is named"
            )
        if self.clocks is not None:
            return self.clocks
        if self.because:
            return Capability(
                "yes", f"up to {top} MHz, not tried yet; a lock set before by an admin cannot be restored"
            )
        if self.cap.support == "yes":
            return Capability("yes", f"up to {top} MHz; used only where the power limit does not work")
        return Capability(self.shown().support, "it takes the permission of the power limit", self.shown().fix)

    def own(self) -> bool:
        """Take the GPU's lock, and with it any lease of a dead owner. Raises OSError."""
        if not self.lease.take():
            return False
        lease = self.lease.record
        if lease is not None and self.lease.inherited():
            self.found_mw = lease.before_mw
            self.start_mw = min(lease.before_mw, self.start_mw or lease.before_mw)
        return True

    def judge_from(self, limit_mw: int, power_w: float | None, now_s: float) -> None:
        """A limit was set: judge its effect from now on."""
        self.set_at_s, self.over_since_s, self.proven = now_s, None, False
        self.binding = power_w is not None and power_w * 1000 > limit_mw * LIMIT_OVERSHOOT

    def forget(self) -> None:
        """Clear the state of our limit, which is gone."""
        self.lease.end()
        self.set_at_s = self.steering = self.over_since_s = None
        self.binding, self.notice = False, ""

    def low(self, current_mw: int) -> LowLimit | None:
        """A limit below the driver's default that no lease explains; None: explained, or not low."""
        default_mw = self.info.limit_default_mw
        if not default_mw or current_mw >= default_mw - TOLERANCE_MW or self.lease.on_disk() is not None:
            return None
        return LowLimit(self.info.uuid, proc.boot_id(), current_mw, default_mw)

    def refusal(self, error: DeviceError, watts: float | None = None) -> Capability:
        """What a driver error means for limits on this board; `watts` is the requested limit."""
        if error.code == codes.NO_PERMISSION:
            known_mw = self.info.limit_default_mw or self.info.limit_max_mw or 0
            wanted = watts if watts is not None else EXAMPLE_SHARE * known_mw / 1000
            fix = self.by_hand(f"-pl {wanted:.0f}")
            return Capability("no_permission", "the driver lets only root set limits", fix)
        if error.code == codes.NOT_SUPPORTED:
            return Capability("not_supported", "this GPU has no power limit that can be set")
        if error.code == codes.GPU_IS_LOST:
            return Capability("lost", str(error))
        if error.code in (codes.REFUSED, codes.HELD):
            self.passing = Capability("no_permission", f"capd: {error}; it is asked again")
        elif error.code == codes.NOT_YET:
            self.passing = Capability("yes", f"through capd, as soon as a process of yours uses this GPU ({error})")
        else:
            self.passing = Capability("not_supported", f"the driver refuses it now ({error}); it is asked again")
        return Capability("unknown", str(error))

    def by_hand(self, option: str) -> str:
        """How to get the permission, or work without it."""
        fix = FIX_ROOT if os.geteuid() != 0 else FIX_CONTAINER
        return fix.format(uuid=self.info.uuid, option=option)

    def outcome(self, ok: bool, code: Code, text: str = "", fix: str = "", watts: float | None = None) -> Outcome:
        """For the supervisor; without `watts` the device is asked for the limit in force."""
        if watts is None:
            try:
                watts = self.backend.limit_mw(self.info.uuid) / 1000
            except DeviceError:
                watts = None
        return Outcome(self.info.uuid, ok, code, watts, text, fix)
