"""GPU limits: carries out what the steps of each board ask for, and always restores.

The order of a write: lock of this GPU -> epoch on disk still ours -> lease with 'before' and the new value on disk ->
driver, and read back. Without a store (simulated boards) no other process is involved, and nothing outlives the agent.
Limits are restored when the wish ends, when this agent exits, and after an agent that died.
"""

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

import msgspec
from msgspec.structs import replace as replaced

from carbontui.power.backends import base
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading
from carbontui.power.limit import board as steps
from carbontui.power.limit.board import UNTRIED, BoardLimit, Step, by_clocks, no_range, span
from carbontui.power.limit.leases import BoardLease, LeaseStore, LowLimit, Now, Write, is_stale
from carbontui.power.messages import Capability, Outcome
from carbontui.system import proc


@dataclass(eq=False)
class Limiter:
    """All limits of one agent. `say` takes lines for the log, `tell` unsolicited outcomes;
    `store` is None for simulated boards.

    `monitor` changes nothing, `probing` (with it) still asks the driver what it would permit.
    """

    backend: Backend
    store: LeaseStore | None
    job: str
    say: Callable[[str], None]
    _: KW_ONLY
    tell: Callable[[Outcome], None] = lambda _outcome: None
    monitor: bool = False
    probing: bool = False

    def __post_init__(self) -> None:
        self.boards: dict[str, BoardLimit] = {}
        self._leases: dict[str, BoardLease] = {}

    # --- probing ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the driver and know its boards. Raises DeviceError."""
        self.backend.open()
        for info in self.backend.devices():
            self.know(info)

    def know(self, info: DeviceInfo) -> None:
        """A device appeared, or is described anew: its limit is the original one, unless a lease records an earlier."""
        known = self.boards.get(info.uuid)
        if known is not None:
            if known.info == info or (known.lease is not None and not known.because):
                self.boards[info.uuid] = replace(known, info=info)
                return
            self.release(info.uuid)  # a clock lock in the place of a limit, which may be possible now
        lease = BoardLease(self.store, info.uuid, self.job, self.say, info.maker, info.address)
        lease = self._leases.setdefault(info.uuid, lease)
        now, left = self._now(info.uuid), lease.on_disk()
        before_mw = now.limit_mw if left is None else left.before_mw
        board = BoardLimit(info, os.geteuid() == 0, lease=lease.record, found_mw=before_mw, start_mw=before_mw)
        if isinstance(now.error, DeviceError):
            board, refused = steps.refusal(board, now.error)
            board = replace(board, cap=refused)
        asking, why = not self.monitor or self.probing, no_range(info)
        if info.mig:
            why = "MIG slices share this GPU and its limit"
        elif (why or now.limit_mw is None) and info.clock_max_mhz and asking:
            because = why or "its power limit cannot be read"
            board, why = by_clocks(board, because, Capability("not_supported", because)), ""
        elif not why and not asking:
            why = "limits are switched off for this job (--no-cap)"
        if why:
            board = replace(board, cap=Capability("not_supported", why))
        self.boards[info.uuid] = board
        if now.limit_mw is not None:
            self._note_low(info.uuid, now.limit_mw, again=True)

    def probe(self, uuid: str, *, write: bool = True) -> None:
        """Whether limits can be set: by whose permission we have, or, with `write`, by writing back the limit in force,
        which changes nothing. Only on a GPU of the child."""
        board = self.boards[uuid]
        if board.cap.support == "unknown" and board.lease is None and not board.because:
            cap = self._probe(board, write)
            board = replace(self.boards[uuid], cap=cap)
            if cap.support == "not_supported" and board.info.clock_max_mhz:
                board = by_clocks(board, "its power limit cannot be set", cap)
            self.boards[uuid] = board

    def _probe(self, board: BoardLimit, write: bool) -> Capability:
        uuid, lease = board.info.uuid, self._leases[board.info.uuid]
        try:
            if not lease.take():
                # its owner has the same permissions as we do, and sets it
                holder = lease.holder()
                return self._passing(board, Capability("yes", f"{span(board.info)}; {holder}"))
        except OSError as error:
            where = self.store.directory if self.store else ""
            fix = f"repair {where}, or export CARBONTUI_LEASE_DIR=/a/local/directory" if where else ""
            why = f"no lease can be kept, without which nothing is set ({error})"
            return self._passing(board, Capability("no_permission", why, fix))
        try:
            if self.store is not None and write:
                self.backend.set_limit_mw(uuid, self.backend.limit_mw(uuid))
                self.store.note(uuid, "refused", None)
        except DeviceError as error:
            self._note_refused(uuid, error)
            self.boards[uuid], refused = steps.refusal(board, error)
            return refused
        finally:
            lease.let_go()
        through = self.backend.through if write else self.backend.setter(uuid)
        before = None if write or self.store is None or through else self.store.refused(uuid)
        if through is None or before is not None:
            code = base.NO_PERMISSION if before is None else before
            return steps.refusal(board, DeviceError(code, "refused before"))[1]
        possible = Capability("yes", span(board.info) + (f"; through {through}" if through else ""))
        return possible if write or self.store is None else self._passing(board, possible)

    def _passing(self, board: BoardLimit, why: Capability) -> Capability:
        """It is not known yet, and asked again; `why` is shown meanwhile."""
        self.boards[board.info.uuid] = replace(board, passing=why)
        return Capability("unknown", why.why)

    def _note_refused(self, uuid: str, error: Exception | None) -> None:
        """A refusal that lasts is noted for those who ask without writing."""
        if self.store is not None and isinstance(error, DeviceError) and error.code in steps.LASTING:
            self.store.note(uuid, "refused", f"{error.code} {proc.boot_id()}".encode())

    def active(self) -> tuple[str, ...]:
        """GPUs on which a limit of ours is in force."""
        return tuple(uuid for uuid, board in self.boards.items() if board.lease is not None)

    @property
    def notices(self) -> dict[str, str]:
        """Notices for the user, per GPU."""
        return {uuid: board.warning for uuid, board in self.boards.items() if board.warning}

    def check_low(self, uuid: str) -> None:
        """Detect a limit below the driver's default without any lease."""
        now = self._now(uuid)
        if now.limit_mw is not None:
            self._note_low(uuid, now.limit_mw)

    def _note_low(self, uuid: str, current_mw: int, *, again: bool = False) -> None:
        board, low = self.boards[uuid], None
        if self.store is None:
            return
        info, default_mw = board.info, board.info.limit_default_mw
        if default_mw and current_mw < default_mw - steps.TOLERANCE_MW and self._leases[uuid].on_disk() is None:
            low = LowLimit(uuid, proc.boot_id(), current_mw, default_mw, info.maker, info.address)
        if again or low != board.left_low:
            self.store.note(uuid, "low", None if low is None else msgspec.json.encode(low))
        self.boards[uuid] = replace(board, left_low=low)

    # --- setting ----------------------------------------------------------------------------------------------

    def apply(self, uuid: str, watts: float, *, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
        """Cap one GPU. Idempotent; `power_w` is its present draw, used later to judge the effect."""
        board, now = self.boards[uuid], self._now(uuid, now_s, power_w)
        if self.monitor:
            step: Step = board, board.outcome(False, "not_supported", board.cap.why)
        elif board.cap.support not in ("yes", "unknown"):
            why, fix = board.cap.why, board.cap.fix
            step = board, board.outcome(False, board.cap.support, why, fix)  # type: ignore[arg-type]
        else:
            step = self._cap(uuid, watts, allow_raise, now)
        outcome = self._carry_out(step, now)
        assert outcome is not None
        return outcome

    def _cap(self, uuid: str, watts: float, allow_raise: bool, now: Now) -> Step:
        board = self.boards[uuid]
        try:
            if not self._own(uuid):
                return board, board.outcome(False, "held", self._leases[uuid].holder())
        except OSError as error:
            return board, board.outcome(False, "error", f"{steps.no_lease(error)}: the limit is left alone")
        changed = steps.changed_outside(self.boards[uuid], now.limit_mw)
        if changed is not None and not board.because:
            self.tell(self._adopt(changed))
        return steps.cap(self.boards[uuid], watts, now, allow_raise=allow_raise)

    def begin(self, uuid: str) -> None:
        """No process has set a limit here: take the limit in force as the original. Raises DeviceError."""
        if self.boards[uuid].lease is None and self._leases[uuid].on_disk() is None:
            limit_mw = self.backend.limit_mw(uuid)
            self.boards[uuid] = replace(self.boards[uuid], found_mw=limit_mw, start_mw=limit_mw)

    # --- restoring ------------------------------------------------------------------------------------------

    def release(self, uuid: str) -> Outcome:
        """Restore one GPU's limit; compare first. Without permission the lease stays and the command is printed."""
        now = self._now(uuid)
        board = self.boards[uuid]
        if board.lease is not None and (changed := steps.changed_outside(board, now.limit_mw, restoring=True)):
            self.say(f"{uuid}: {changed.notice}")  # an outcome that is ok is not logged
            adopted = self._adopt(replace(changed, notice=""))
            return replaced(adopted, ok=True, text="changed by someone else: left alone")
        outcome = self._carry_out(steps.restore(board, now), now)
        assert outcome is not None
        return outcome

    def leave(self, uuid: str) -> Outcome:
        """Another program has changed this limit since our request: leave it."""
        outcome = self.release(uuid)
        text = self.boards[uuid].notice or "the limit was changed outside: left alone"
        return replaced(outcome, ok=False, code="outside", text=text, fix="")

    def release_all(self) -> tuple[Outcome, ...]:
        return tuple(self.release(uuid) for uuid in self.active())

    def restore_stale(self, keep: frozenset[str] = frozenset()) -> tuple[Outcome, ...]:
        """Restore what dead agents left behind, except on the GPUs in `keep`, which are about to be taken over."""
        outcomes: list[Outcome] = []
        if self.store is None:
            return ()
        for lease in self.store.all():
            uuid = lease.uuid
            if lease.boot_id != proc.boot_id():
                self.store.drop(uuid)
                continue
            if uuid in keep or not is_stale(lease, self.store):
                continue
            if uuid not in self.boards:
                text = f"{uuid} is not here now; when it is: {lease.fix}"
                outcomes.append(Outcome(uuid, False, "lost", None, text, lease.fix))
                continue
            try:
                if not self.monitor and self._own(uuid):
                    outcomes.append(self.release(uuid))
            except OSError as error:
                self.say(f"{uuid}: its stale lease cannot be taken over ({error})")
        return tuple(outcomes)

    def returned(self, uuid: str) -> None:
        """A lost board is back. Its reset has lifted any limit or lock of ours."""
        board = self.boards[uuid]
        cap = UNTRIED if board.cap.support == "lost" else board.cap
        self.boards[uuid] = replace(board, cap=cap, passing=None, notice="")
        lease = board.lease
        if lease and (lease.clocks_mhz is not None or steps.near(self._now(uuid).limit_mw, lease.before_mw)):
            self.release(uuid)

    # --- watching ---------------------------------------------------------------------------------------------

    def observe(self, uuid: str, raw: RawReading, now_s: float) -> Outcome | None:
        """Evaluate a reading: adopt a changed limit, give up a cap without effect. Returns the outcome, if any."""
        board = self.boards[uuid]
        settled = board.set_at_s is not None and now_s - board.set_at_s >= steps.ADOPT_S
        if settled and (changed := steps.changed_outside(board, raw.limit_mw)) is not None:
            return self._adopt(changed)
        board, act = steps.observe(board, raw, now_s)
        if board.abandoned is not None:
            self.say(f"{uuid}: {board.abandoned.outcome.text}")
        return self._carry_out((board, act), Now(now_s, raw.limit_mw, raw.power_w))

    # --- carrying out -----------------------------------------------------------------------------------------

    def _carry_out(self, step: Step, now: Now) -> Outcome | None:
        """Write what a step asks for, and step on with what came of it, until it ends."""
        board, act = step
        uuid = board.info.uuid
        self._keep(board)
        while isinstance(act, Write):
            now = self._write(uuid, act, now)
            board, act = steps.wrote(self.boards[uuid], act, now)
            self._keep(board)
        if act is not None and act.watts is None and now.limit_mw is not None:
            act = replaced(act, watts=now.limit_mw / 1000)
        if act is not None and act.ok and act.code in ("applied", "given_back"):
            self.say(f"limit of {uuid}: {act.code.replace('_', ' ')}, {act.watts or 0:.0f} W (found {board.found_w} W)")
        return act

    def _write(self, uuid: str, act: Write, now: Now) -> Now:
        """Carry out one write; what is read then has its error."""
        error: DeviceError | OSError | None = None
        try:
            if act.ours_mw:
                self._lease(uuid, act.ours_mw, act.mhz)
            if act.mhz is not None:
                self.backend.lock_clocks(uuid, act.mhz or None)
            elif act.limit_mw is not None:
                self.backend.set_limit_mw(uuid, act.limit_mw)
        except (DeviceError, OSError) as refused:
            error = refused
        now = self._now(uuid, now.at_s, now.power_w)
        if error is not None or act.limit_mw is None:
            self._note_refused(uuid, error if act.limit_mw is not None and act.ours_mw else None)
            return replaced(now, error=error)
        if act.ours_mw and now.limit_mw is not None:
            try:
                self._lease(uuid, (now.limit_mw,))
            except OSError as failed:
                # the lease on disk already names this value, along with the previous one
                self.say(f"{uuid}: its lease cannot be shortened ({failed})")
        return now

    def _now(self, uuid: str, now_s: float = 0.0, power_w: float | None = None) -> Now:
        try:
            return Now(now_s, self.backend.limit_mw(uuid), power_w)
        except DeviceError as error:
            return Now(now_s, None, power_w, error)

    def _own(self, uuid: str) -> bool:
        """Take the GPU's lock, and with it any lease of a dead owner. Raises OSError."""
        lease, board = self._leases[uuid], self.boards[uuid]
        if not lease.take():
            return False
        before_mw = lease.record.before_mw if lease.record is not None else 0
        if lease.inherited():
            start_mw = min(before_mw, board.start_mw or before_mw)
            board = replace(board, found_mw=before_mw, start_mw=start_mw)
        self.boards[uuid] = replace(board, lease=lease.record, inherited=lease.inherited())
        return True

    def _lease(self, uuid: str, ours_mw: tuple[int, ...], clocks_mhz: int | None = None) -> None:
        """Put on disk what may be in force from now on. Raises OSError; then nothing may be set."""
        lease, board = self._leases[uuid], self.boards[uuid]
        if not lease.take():
            raise OSError(lease.holder())
        lease.write(board.found_mw or 0, ours_mw, clocks_mhz)
        self.boards[uuid] = replace(board, lease=lease.record, inherited=False)

    def _adopt(self, board: BoardLimit) -> Outcome:
        """Keep a board whose limit another program has changed; what is to be said of it."""
        self._keep(board)
        return board.outcome(False, "outside", board.notice, watts=board.found_w)

    def _keep(self, board: BoardLimit) -> None:
        """The board as it is from now on; a lease that it no longer has ends."""
        uuid = board.info.uuid
        before, self.boards[uuid] = self.boards[uuid], board
        if board.lease is None:
            self._leases[uuid].end()
        if board.notice not in ("", before.notice) and board.lease is not None:  # the others are outcomes, and logged
            self.say(f"{uuid}: {board.notice}")
