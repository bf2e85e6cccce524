"""Power limits: set under a lock and a lease, read back, verified by their effect, always given back.

The order of a write: lock of this GPU -> lease with 'before' and the new value on disk -> epoch checked -> driver ->
read back. Giving back compares first: only a value of ours is replaced. A limit that someone else changed is adopted
as the new 'found' and never fought. Nothing here ever sets more than the limit found at the start, unless asked to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from carbontui.power import machine
from carbontui.power.devices import NO_PERMISSION, NOT_SUPPORTED, REASON_POWER_CAP, Backend, DeviceError, DeviceInfo
from carbontui.power.leases import Lease, LeaseStore, command, is_stale, mend, new_lease, stale_leases
from carbontui.power.messages import Cap, Code, Outcome

__all__ = ["Limiter", "mend", "stale_leases"]

TOLERANCE_MW = 1000
"""Drivers round; a limit within one watt of ours is ours."""
SETTLE_S = 3.0
"""Enforcement is a control loop and the reading a 1 s average: judge the effect only after this."""
JUDGE_S = 6.0
OVERSHOOT = 1.03
CLOCKS = "no power limit here; clocks are locked instead (a lock set before by an admin cannot be given back)"
FIX_ROOT = "run carbontui as root, or set the limit yourself: sudo nvidia-smi -i {uuid} -pl WATTS"
FIX_CONTAINER = "give the container --cap-add SYS_ADMIN, or set the limit on the host: nvidia-smi -i {uuid} -pl WATTS"


@dataclass
class _Held:
    """What this agent knows of one GPU's limit."""

    info: DeviceInfo
    found_mw: int | None = None
    """What is given back: the limit found, or the one someone else has set since."""
    ceiling_mw: int | None = None
    """Never above this without allow_raise: the lowest 'found' so far."""
    lock: int | None = None
    lease: Lease | None = None
    cap: Cap = field(default_factory=lambda: Cap("unknown", "not tried yet"))
    set_at_s: float | None = None
    binding: bool = False
    """The board drew more than the cap when it was set, so that the cap must show."""
    seen_over: int = 0
    by_clocks: bool = False
    """This board has no power limit: its clock is locked instead."""
    wanted_w: float = 0.0


class Limiter:
    """All limits of one agent. `say` takes lines for the log; `store` is None for simulated boards.

    `monitor` changes nothing, `probing` (with it) still asks the driver what it would permit.
    """

    def __init__(
        self,
        backend: Backend,
        store: LeaseStore | None,
        job: str,
        say: Callable[[str], None],
        *,
        monitor: bool = False,
        probing: bool = False,
    ) -> None:
        self._backend = backend
        self._store = store
        self._job = job
        self._say = say
        self._monitor = monitor
        self._probing = probing
        self._held: dict[str, _Held] = {}
        self.notices: dict[str, str] = {}

    # --- knowing ----------------------------------------------------------------------------------------------

    def know(self, info: DeviceInfo) -> None:
        """A device appeared: what stands there is 'found', unless a lease says what stood there before."""
        if info.uuid in self._held:
            self._held[info.uuid].info = info
            return
        held = _Held(info)
        self._held[info.uuid] = held
        lease = self._store.read(info.uuid) if self._store else None
        try:
            current: int | None = self._backend.limit_mw(info.uuid)
        except DeviceError as error:
            current = None
            held.cap = self._refusal(info, error)
        if lease is not None and lease.boot_id == machine.boot_id():
            held.found_mw = lease.before_mw
        else:
            held.found_mw = current
        held.ceiling_mw = held.found_mw
        if info.mig:
            held.cap = Cap("not_supported", "MIG slices share this board and its limit")
        elif (info.limit_min_mw is None or current is None) and info.clock_max_mhz and not self._monitor:
            held.by_clocks, held.found_mw = True, 0
            held.cap = Cap("unknown", CLOCKS)
        elif info.limit_min_mw is None or info.limit_max_mw is None:
            held.cap = Cap("not_supported", "this GPU names no range for its power limit")
        elif self._monitor and not self._probing:
            held.cap = Cap("not_supported", "limits are switched off for this job (--no-cap)")

    def probe(self, uuid: str) -> None:
        """Ask the driver by writing the value that is there already: only on a GPU of the child, nothing changes."""
        held = self._held[uuid]
        if held.cap.support == "unknown" and held.lease is None and not held.by_clocks:
            held.cap = self._probe(held.info)

    def _probe(self, info: DeviceInfo) -> Cap:
        assert info.limit_min_mw is not None and info.limit_max_mw is not None
        span = f"{info.limit_min_mw / 1000:.0f}-{info.limit_max_mw / 1000:.0f} W"
        if self._store is None:
            return Cap("yes", span)
        try:
            lock = self._store.lock(info.uuid)
        except OSError as error:
            return Cap("unknown", f"no lease can be kept ({error})")
        if lock is None:
            return Cap("unknown", "another carbontui job holds this GPU's limit")
        try:
            self._backend.set_limit_mw(info.uuid, self._backend.limit_mw(info.uuid))
        except DeviceError as error:
            return self._refusal(info, error)
        finally:
            os.close(lock)
        return Cap("yes", span)

    def _refusal(self, info: DeviceInfo, error: DeviceError) -> Cap:
        if error.code == NO_PERMISSION:
            fix = FIX_ROOT if os.geteuid() != 0 else FIX_CONTAINER
            return Cap("no_permission", "the driver lets only root set limits", fix.format(uuid=info.uuid))
        if error.code == NOT_SUPPORTED:
            return Cap("not_supported", "this GPU has no power limit that can be set")
        return Cap("lost" if error.code == 15 else "unknown", str(error))

    def cap(self, uuid: str) -> Cap:
        held = self._held.get(uuid)
        return held.cap if held else Cap("unknown", "not seen")

    def found_w(self, uuid: str) -> float | None:
        held = self._held.get(uuid)
        return held.found_mw / 1000 if held and held.found_mw else None

    def active(self) -> tuple[str, ...]:
        """GPUs on which a limit of ours stands."""
        return tuple(uuid for uuid, held in self._held.items() if held.lease is not None)

    # --- setting ----------------------------------------------------------------------------------------------

    def apply(self, uuid: str, watts: float, *, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
        """Cap one GPU. Idempotent; `power_w` is what it draws now, by which the effect is judged later."""
        held = self._held[uuid]
        info = held.info
        if self._monitor:
            return self._outcome(held, False, "not_supported", held.cap.why)
        if held.cap.support not in ("yes", "unknown"):
            code: Code = {"no_permission": "no_permission", "no_effect": "no_effect", "lost": "lost"}.get(
                held.cap.support, "not_supported"
            )  # type: ignore[assignment]
            return self._outcome(held, False, code, held.cap.why, held.cap.fix)
        if held.by_clocks:
            return self._apply_clocks(held, watts, power_w, now_s)
        if info.limit_min_mw is None or info.limit_max_mw is None or held.ceiling_mw is None:
            return self._outcome(held, False, "not_supported", "this GPU names no range for its power limit")
        top = info.limit_max_mw if allow_raise else min(held.ceiling_mw, info.limit_max_mw)
        wanted = round(watts * 1000)
        if wanted < info.limit_min_mw:
            span = f"{info.limit_min_mw / 1000:.0f}-{top / 1000:.0f} W"
            return self._outcome(held, False, "out_of_range", f"this GPU takes {span}")
        wanted = min(wanted, top)
        if held.found_mw is not None and wanted == held.found_mw and held.lease is None:
            return self._outcome(held, True, "kept", "this is the limit that was found")
        try:
            if self._store is not None and not self._own(held):
                held.cap = Cap("unknown", "another carbontui job holds this GPU's limit")
                return self._outcome(held, False, "held", "another carbontui job holds this GPU's limit")
            current = self._backend.limit_mw(uuid)
            if held.lease is None or not _near(current, held.lease.ours_mw):
                if held.lease is not None:
                    self._adopt(held, current)
                    wanted = min(wanted, top if allow_raise else held.ceiling_mw)
                self._lease(held, (wanted,))
            elif abs(current - wanted) <= TOLERANCE_MW:
                if held.lease.agent_pid != os.getpid():
                    self._lease(held, (current,))
                    held.set_at_s = now_s
                return self._outcome(held, True, "kept", "", watts=current / 1000)
            else:
                self._lease(held, (current, wanted))
            self._backend.set_limit_mw(uuid, wanted)
            current = self._backend.limit_mw(uuid)
        except DeviceError as error:
            held.cap = self._refusal(info, error)
            self.release(uuid)
            code = {NO_PERMISSION: "no_permission", NOT_SUPPORTED: "not_supported", 15: "lost"}.get(error.code, "error")  # type: ignore[assignment]
            return self._outcome(held, False, code, str(error), held.cap.fix)
        except OSError as error:
            return self._outcome(held, False, "error", f"no lease can be written ({error}): the limit is left alone")
        try:
            self._lease(held, (current,))
        except OSError as error:
            # the one on disk names this value too, beside the one before it
            self._say(f"{uuid}: its lease cannot be shortened ({error})")
        self.notices.pop(uuid, None)
        held.cap = Cap("yes", f"{info.limit_min_mw / 1000:.0f}-{info.limit_max_mw / 1000:.0f} W")
        held.set_at_s, held.seen_over = now_s, 0
        held.binding = power_w is not None and power_w * 1000 > current * OVERSHOOT
        self._say(f"limit of {uuid}: {current / 1000:.0f} W (found {(held.found_mw or 0) / 1000:.0f} W)")
        return self._outcome(held, True, "applied", "", watts=current / 1000)

    def _apply_clocks(self, held: _Held, watts: float, power_w: float | None, now_s: float) -> Outcome:
        """Lock the clock so that the board draws about `watts`; `observe` steers it from there."""
        top = held.info.clock_max_mhz or 0
        start = held.lease.clocks_mhz if held.lease and held.lease.clocks_mhz else top
        if power_w is not None and power_w > watts:
            start = clocks_for(watts, power_w, start, top)
        held.wanted_w = watts
        return self._lock_clocks(held, start, now_s)

    def _lock_clocks(self, held: _Held, mhz: int, now_s: float) -> Outcome:
        try:
            if self._store is not None and not self._own(held):
                return self._outcome(held, False, "held", "another carbontui job holds this GPU's clocks")
            self._lease(held, (round(held.wanted_w * 1000),), mhz)
            self._backend.lock_clocks(held.info.uuid, mhz)
        except DeviceError as error:
            held.cap = self._refusal(held.info, error)
            self.release(held.info.uuid)
            code: Code = "no_permission" if error.code == NO_PERMISSION else "not_supported"
            return self._outcome(held, False, code, str(error), held.cap.fix)
        except OSError as error:
            return self._outcome(held, False, "error", f"no lease can be written ({error}): clocks are left alone")
        held.set_at_s, held.cap = now_s, Cap("yes", CLOCKS)
        self.notices[held.info.uuid] = f"{CLOCKS}: now at most {mhz} MHz"
        return self._outcome(held, True, "applied", f"{CLOCKS}: at most {mhz} MHz", watts=held.wanted_w)

    def _own(self, held: _Held) -> bool:
        """Take the GPU's lock, and with it whatever lease a dead owner left."""
        assert self._store is not None
        uuid = held.info.uuid
        if held.lock is None:
            held.lock = self._store.lock(uuid)
            if held.lock is None:
                return False
            lease = self._store.read(uuid)
            if lease is not None and lease.boot_id == machine.boot_id():
                held.found_mw, held.lease = lease.before_mw, lease
                held.ceiling_mw = min(lease.before_mw, held.ceiling_mw or lease.before_mw)
        elif held.lease is not None:
            on_disk = self._store.read(uuid)
            if on_disk is None or on_disk.epoch != held.lease.epoch:
                raise OSError("the lease is not ours any more")
        return True

    def _lease(self, held: _Held, ours_mw: tuple[int, ...], clocks_mhz: int | None = None) -> None:
        assert held.found_mw is not None
        epoch = held.lease.epoch if held.lease and held.lease.agent_pid == os.getpid() else 0
        if epoch == 0:
            epoch = (held.lease.epoch if held.lease else 0) + 1
        lease = new_lease(held.info.uuid, epoch, held.found_mw, ours_mw, self._job, clocks_mhz)
        if self._store is not None:
            self._store.write(lease)
        held.lease = lease

    # --- giving back ------------------------------------------------------------------------------------------

    def release(self, uuid: str) -> Outcome:
        """Give one GPU's limit back; compare first. Without permission the lease stays and the command is printed."""
        held = self._held[uuid]
        lease = held.lease
        if lease is None:
            self._unlock(held)
            return self._outcome(held, True, "given_back", "nothing of ours stands there")
        try:
            current = 0 if lease.clocks_mhz is not None else self._backend.limit_mw(uuid)
            if lease.clocks_mhz is not None:
                self._backend.lock_clocks(uuid, None)
                self._say(f"clocks of {uuid}: lock lifted")
                outcome = self._outcome(held, True, "given_back", "clock lock lifted")
            elif _near(current, (lease.before_mw,)):
                outcome = self._outcome(held, True, "given_back", "", watts=current / 1000)
            elif not _near(current, lease.ours_mw):
                self._adopt(held, current)
                outcome = self._outcome(
                    held, True, "outside", "changed by someone else: left alone", watts=current / 1000
                )
            else:
                self._backend.set_limit_mw(uuid, lease.before_mw)
                back = self._backend.limit_mw(uuid)
                if not _near(back, (lease.before_mw,)):
                    raise DeviceError(999, f"the board stays at {back / 1000:.0f} W")
                self._say(f"limit of {uuid}: given back, {back / 1000:.0f} W")
                outcome = self._outcome(held, True, "given_back", "", watts=back / 1000)
        except DeviceError as error:
            fix = command(lease)
            text = f"limit not given back ({error}); run: {fix}"
            self.notices[uuid] = text
            self._say(f"{uuid}: {text}")
            code: Code = {NO_PERMISSION: "no_permission", 15: "lost"}.get(error.code, "error")  # type: ignore[assignment]
            return self._outcome(held, False, code, text, fix)
        self._drop(uuid)
        held.lease = held.set_at_s = None
        self.notices.pop(uuid, None)
        self._unlock(held)
        return outcome

    def release_all(self) -> tuple[Outcome, ...]:
        return tuple(self.release(uuid) for uuid in self.active())

    def mend_stale(self, keep: frozenset[str] = frozenset()) -> tuple[Outcome, ...]:
        """Give back what dead agents left behind, except on the GPUs in `keep`, which are about to be taken over."""
        if self._store is None:
            return ()
        outcomes = []
        for lease in self._store.all():
            uuid = lease.uuid
            if lease.boot_id != machine.boot_id():
                self._drop(uuid)
                continue
            if uuid in keep or not is_stale(lease):
                continue
            held = self._held.get(uuid)
            if held is None:
                text = f"{uuid} is not here now; when it is: {command(lease)}"
                outcomes.append(Outcome(uuid, False, "lost", None, text, command(lease)))
                continue
            try:
                owned = not self._monitor and self._own(held)
            except OSError as error:
                self._say(f"{uuid}: its stale lease cannot be taken over ({error})")
                continue
            if owned:
                outcomes.append(self.release(uuid))
        return tuple(outcomes)

    def _drop(self, uuid: str) -> None:
        """Forget a lease; where the disk refuses, the next agent finds nothing left to give back and tries again."""
        if self._store is None:
            return
        try:
            self._store.drop(uuid)
        except OSError as error:
            self._say(f"{uuid}: its lease cannot be removed ({error})")

    def _unlock(self, held: _Held) -> None:
        if held.lock is not None:
            os.close(held.lock)
            held.lock = None

    # --- watching ---------------------------------------------------------------------------------------------

    def observe(self, uuid: str, limit_mw: int | None, power_w: float | None, reasons: int | None, now_s: float) -> str:
        """Learn from a sample: a changed limit is adopted, a cap without effect is given up.

        Returns "" or what happened: "outside", "no_effect".
        """
        held = self._held[uuid]
        if held.lease is not None and held.lease.clocks_mhz is not None:
            self._steer(held, held.lease.clocks_mhz, power_w, now_s)
            return ""
        if held.lease is None or held.set_at_s is None or limit_mw is None:
            return ""
        if now_s - held.set_at_s < 0.5:
            return ""
        if not _near(limit_mw, held.lease.ours_mw):
            self._adopt(held, limit_mw)
            self._drop(uuid)
            self._unlock(held)
            return "outside"
        since = now_s - held.set_at_s
        if not held.binding or since < SETTLE_S or power_w is None:
            return ""
        if power_w * 1000 <= limit_mw * OVERSHOOT or (reasons or 0) & REASON_POWER_CAP:
            held.binding = False
            return ""
        held.seen_over += 1
        if since < JUDGE_S or held.seen_over < 3:
            return ""
        self.release(uuid)
        held.cap = Cap("no_effect", f"accepted, but the board still drew {power_w:.0f} W under {limit_mw / 1000:.0f} W")
        self._say(f"{uuid}: {held.cap.why}")
        return "no_effect"

    def _steer(self, held: _Held, mhz: int, power_w: float | None, now_s: float) -> None:
        """Move the clock lock towards the watts that are wanted, no more often than their effect can be seen."""
        if power_w is None or held.set_at_s is None or now_s - held.set_at_s < SETTLE_S:
            return
        target = clocks_for(held.wanted_w, power_w, mhz, held.info.clock_max_mhz or mhz)
        idle = power_w < 0.5 * held.wanted_w
        if power_w > held.wanted_w * OVERSHOOT or (power_w < 0.95 * held.wanted_w and target > mhz and not idle):
            self._lock_clocks(held, target, now_s)

    def _adopt(self, held: _Held, current_mw: int) -> None:
        """Someone else changed the limit: from now on that is what was found."""
        held.ceiling_mw = min(held.ceiling_mw or current_mw, current_mw)
        held.found_mw = current_mw
        held.lease = held.set_at_s = None
        text = f"the limit was changed outside to {current_mw / 1000:.0f} W (nvidia-smi?): adopted"
        self.notices[held.info.uuid] = text
        self._say(f"{held.info.uuid}: {text}")

    def _outcome(
        self, held: _Held, ok: bool, code: Code, text: str = "", fix: str = "", watts: float | None = None
    ) -> Outcome:
        if watts is None:
            try:
                watts = self._backend.limit_mw(held.info.uuid) / 1000
            except DeviceError:
                watts = None
        return Outcome(held.info.uuid, ok, code, watts, text, fix)


def clocks_for(wanted_w: float, power_w: float, mhz: int, top_mhz: int) -> int:
    """The clock that should give `wanted_w` where `mhz` gives `power_w`.

    Board power lies between linear and cubic in the clock: the square root is a careful middle, in bounded steps.
    """
    share = min(1.25, max(0.6, (wanted_w / max(1.0, power_w)) ** 0.5))
    return int(min(top_mhz, max(0.15 * top_mhz, share * mhz)))


def _near(value_mw: int, known_mw: tuple[int, ...]) -> bool:
    return any(abs(value_mw - known) <= TOLERANCE_MW for known in known_mw)
