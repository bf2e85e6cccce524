"""One GPU's limit: what its agent knows of it, and how it is set, judged and restored.

The order of a write: lock of this GPU -> epoch on disk still ours -> lease with 'before' and the new value on disk ->
driver, and read back. Without a store (simulated boards) no other process is involved, and nothing outlives the agent.
A limit is judged by the watts that follow. Restoring compares first: only a value of ours is replaced; a limit changed
by another program is adopted as the new original and never overwritten. Nothing here sets more than the limit at the
start, unless asked to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from carbontui.power.backends import base
from carbontui.power.backends.base import REASON_POWER_CAP, Backend, DeviceError, DeviceInfo, RawReading
from carbontui.power.limit.leases import BoardLease, LowLimit
from carbontui.power.limit.steering import SETTLE_S, Steering
from carbontui.power.messages import Capability, Code, Outcome
from carbontui.system import proc
from carbontui.text import boards

TOLERANCE_MW = 1000
"""Drivers round; a limit within one watt of ours counts as ours."""
EXAMPLE_SHARE = 0.8
"""Of the default limit: the cap in an example command. Training keeps most of its speed there."""
LIMIT_OVERSHOOT = 1.03
"""A board that draws more than this multiple of its limit is not held by it."""
CODES: dict[int, Code] = {
    base.NO_PERMISSION: "no_permission",
    base.NOT_SUPPORTED: "not_supported",
    base.GPU_IS_LOST: "lost",
    base.REFUSED: "foreign",
    base.HELD: "held",
    base.NOT_YET: "held",
}
JUDGE_S = 2.0
"""Settled and still above the limit for this long: it has no effect."""
NAMED = 1.3
"""A board that reports a power cap as clock reason is trusted up to this multiple; above, it means another cap."""
AT_WORK_SHARE = 0.5
"""Share of the limit: a board that draws less is between two bursts, or parked."""


class Ineffective(Struct, frozen=True):
    """The board draws more than the limit it accepted."""

    limit_w: float
    drawn_w: float


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
    rounded_mw: tuple[int, int] | None = None
    """The limit last set, and what the board made of it: some take whole steps alone."""
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
        return LowLimit(self.info.uuid, proc.boot_id(), current_mw, default_mw, self.info.maker, self.info.address)

    def refusal(self, error: DeviceError, watts: float | None = None) -> Capability:
        """What a driver error means for limits on this board; `watts` is the requested limit."""
        if error.code == base.NO_PERMISSION:
            known_mw = self.info.limit_default_mw or self.info.limit_max_mw or 0
            wanted = watts if watts is not None else EXAMPLE_SHARE * known_mw / 1000
            fix = self.by_hand(watts=wanted)
            return Capability("no_permission", "the driver lets only root set limits", fix)
        if error.code == base.NOT_SUPPORTED:
            return Capability("not_supported", "this GPU has no power limit that can be set")
        if error.code == base.GPU_IS_LOST:
            return Capability("lost", str(error))
        if error.code in (base.REFUSED, base.HELD):
            self.passing = Capability("no_permission", f"capd: {error}; it is asked again")
        elif error.code == base.NOT_YET:
            self.passing = Capability("yes", f"through capd, as soon as a process of yours uses this GPU ({error})")
        else:
            self.passing = Capability("not_supported", f"the driver refuses it now ({error}); it is asked again")
        return Capability("unknown", str(error))

    def by_hand(self, *, watts: float | None = None, mhz: int | None = None) -> str:
        """How to get the permission, or work without it."""
        board = self.info.address or self.info.uuid
        return boards.permission(self.info.maker, board, watts=watts, mhz=mhz, root=os.geteuid() == 0)

    def outcome(self, ok: bool, code: Code, text: str = "", fix: str = "", watts: float | None = None) -> Outcome:
        """For the supervisor; without `watts` the device is asked for the limit in force."""
        if watts is None:
            try:
                watts = self.backend.limit_mw(self.info.uuid) / 1000
            except DeviceError:
                watts = None
        return Outcome(self.info.uuid, ok, code, watts, text, fix)

    # --- the power limit ---

    def set_limit(self, watts: float, *, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
        """Set, and read back. Raises DeviceError if the driver refuses, OSError if no lease can be written."""
        info, lease = self.info, self.lease
        if info.limit_min_mw is None or info.limit_max_mw is None or self.ceiling_mw is None or self.found_mw is None:
            return self.outcome(False, "not_supported", no_range(info) or "its power limit cannot be read")
        current = self.backend.limit_mw(info.uuid)
        if lease.record is None and not _near(current, (self.found_mw,)):
            self._adopt_aside(current)  # set by another program while no limit of ours was in force
        top = info.limit_max_mw if allow_raise else min(self.ceiling_mw, info.limit_max_mw)
        wanted = round(watts * 1000)
        if wanted < info.limit_min_mw:
            text = f"this GPU takes {info.limit_min_mw / 1000:.0f}-{top / 1000:.0f} W"
            return self.outcome(False, "out_of_range", text)
        wanted = min(wanted, top)
        if wanted == self.found_mw and lease.record is None:
            return self.outcome(True, "kept", _lower(watts, wanted, wanted) or "this is the limit that was found")
        # a dead agent may have written its lease but no limit: then 'before' is still in force, unchanged
        unwritten = lease.inherited() and lease.record is not None and _near(current, (lease.record.before_mw,))
        if lease.record is not None and not unwritten and not _near(current, lease.record.ours_mw):
            self._adopt_aside(current)
            wanted = min(wanted, top if allow_raise else self.ceiling_mw)
        if lease.record is None:
            lease.write(self.found_mw, (wanted,))
        elif abs(current - wanted) > TOLERANCE_MW and self.rounded_mw != (wanted, current):
            lease.write(self.found_mw, (current, wanted))
        else:
            if lease.inherited():
                lease.write(self.found_mw, (current,))
                self.judge_from(current, power_w, now_s)
            return self.outcome(True, "kept", "", watts=current / 1000)
        self.backend.set_limit_mw(info.uuid, wanted)
        current = self.backend.limit_mw(info.uuid)
        try:
            lease.write(self.found_mw, (current,))
        except OSError as error:
            # the lease on disk already names this value, along with the previous one
            self.say(f"{info.uuid}: its lease cannot be shortened ({error})")
        self.notice, self.rounded_mw = "", (wanted, current)
        self.cap = Capability("yes", span(info))
        self.judge_from(current, power_w, now_s)
        self.say(f"limit of {info.uuid}: {current / 1000:.0f} W (found {self.found_mw / 1000:.0f} W)")
        return self.outcome(True, "applied", _lower(watts, wanted, current), watts=current / 1000)

    def restore_limit(self) -> Outcome:
        """Restore the original limit if a value of ours is still in force. Raises DeviceError."""
        uuid, lease = self.info.uuid, self.lease.record
        assert lease is not None
        current = self.backend.limit_mw(uuid)
        if _near(current, (lease.before_mw,)):
            return self.outcome(True, "given_back", "", watts=current / 1000)
        if not _near(current, lease.ours_mw):
            self.say(f"{uuid}: {self.adopt(current)}")  # an outcome that is ok is not logged
            return self.outcome(True, "outside", "changed by someone else: left alone", watts=current / 1000)
        self.backend.set_limit_mw(uuid, lease.before_mw)
        back = self.backend.limit_mw(uuid)
        if not _near(back, (lease.before_mw,)):
            raise DeviceError(999, f"the board stays at {back / 1000:.0f} W")
        self.say(f"limit of {uuid}: restored, {back / 1000:.0f} W")
        return self.outcome(True, "given_back", "", watts=back / 1000)

    def is_before(self) -> bool:
        """Whether the limit in force is the one to restore. Raises DeviceError."""
        record = self.lease.record
        return record is not None and _near(self.backend.limit_mw(self.info.uuid), (record.before_mw,))

    def judge(self, raw: RawReading, now_s: float) -> Ineffective | Outcome | None:
        """Evaluate a look: adopt a changed limit; one that does not hold is given up by the caller."""
        lease = self.lease.record
        if lease is None or self.set_at_s is None or raw.limit_mw is None or now_s - self.set_at_s < 0.5:
            return None
        if not _near(raw.limit_mw, lease.ours_mw):
            text = self.adopt(raw.limit_mw)
            self.forget()
            self.notice = text
            return self.outcome(False, "outside", text, watts=raw.limit_mw / 1000)
        if self.proven or now_s - self.set_at_s < SETTLE_S or raw.power_w is None:
            return None
        named = bool((raw.reasons or 0) & REASON_POWER_CAP)
        capped = named and raw.power_w * 1000 <= raw.limit_mw * NAMED
        if raw.kind == "module" or (not capped and raw.power_w * 1000 < AT_WORK_SHARE * raw.limit_mw):
            # watts that include a CPU cannot judge a GPU limit; and between two bursts any limit seems to hold
            self.binding = self.binding and raw.kind != "module"
            self.over_since_s = None
            return None
        if capped or raw.power_w * 1000 <= raw.limit_mw * LIMIT_OVERSHOOT:
            # watts below a limit that did not bind prove nothing: more may be drawn later
            self.proven = capped or self.binding
            self.binding, self.over_since_s = False, None
            return None
        if self.over_since_s is None:
            self.over_since_s = now_s
        if now_s - self.over_since_s < JUDGE_S:
            return None
        return Ineffective(raw.limit_mw / 1000, raw.power_w)

    def adopt(self, current_mw: int) -> str:
        """Another program changed the limit: adopt it as the original. Returns the notice."""
        self.found_mw = current_mw
        self.lease.record = self.set_at_s = None
        tool = boards.of(self.info.maker).tool
        self.notice = f"the limit was changed outside to {current_mw / 1000:.0f} W ({tool}?): adopted"
        return self.notice

    def _adopt_aside(self, current_mw: int) -> None:
        """Adopt as part of an action that has its own outcome."""
        self.tell(self.outcome(False, "outside", self.adopt(current_mw), watts=current_mw / 1000))


def _lower(asked_w: float, wanted_mw: int, set_mw: int) -> str:
    """The note for a cap that is not what was requested; '' otherwise."""
    if abs(wanted_mw - set_mw) > TOLERANCE_MW:
        return f"this board takes {set_mw / 1000:g} W, not {wanted_mw / 1000:g} W"
    lower = asked_w * 1000 - set_mw > TOLERANCE_MW
    return f"{asked_w:g} W is above the limit found: {set_mw / 1000:g} W" if lower else ""


def no_range(info: DeviceInfo) -> str:
    """Why this board has no power limit to set; "" if it has one."""
    low, high = info.limit_min_mw, info.limit_max_mw
    if low is None or high is None:
        return "this GPU names no range for its power limit"
    return f"its power limit is fixed at {high / 1000:.0f} W" if low >= high else ""


def span(info: DeviceInfo) -> str:
    """The range of limits, as text."""
    return f"{(info.limit_min_mw or 0) / 1000:.0f}-{(info.limit_max_mw or 0) / 1000:.0f} W"


def _near(value_mw: int, known_mw: tuple[int, ...]) -> bool:
    return any(abs(value_mw - known) <= TOLERANCE_MW for known in known_mw)
