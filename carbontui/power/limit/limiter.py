"""GPU limits: the power limit first, a clock lock where that does not work; verified by effect, always restored.

Chooses between the actuators (a board's limit, `clocks`), takes a GPU's lock and lease before setting anything, and
restores it: when the wish ends, when this agent exits, and after an agent that died.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from carbontui.power.backends import base
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading
from carbontui.power.limit import clocks
from carbontui.power.limit.board import CODES, BoardLimit, Ineffective, no_range, span
from carbontui.power.limit.leases import BoardLease, LeaseStore, is_stale
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
            if known.info == info or (known.lease.record is not None and not known.because):
                known.info = info
                return
            self.release(info.uuid)  # a clock lock in the place of a limit, which may be possible now
        lease = self._board_lease(info) if known is None else known.lease
        board = BoardLimit(info, self.backend, lease, self.say, self.tell)
        self.boards[info.uuid] = board
        try:
            current: int | None = self.backend.limit_mw(info.uuid)
        except DeviceError as error:
            current = None
            board.cap = board.refusal(error)
        if current is not None:
            self._note_low(board, current, again=True)
        left = board.lease.on_disk()
        board.found_mw = board.start_mw = current if left is None else left.before_mw
        asking = not self.monitor or self.probing
        why = no_range(info)
        if info.mig:
            board.cap = Capability("not_supported", "MIG slices share this board and its limit")
        elif (why or current is None) and info.clock_max_mhz and asking:
            why = why or "its power limit cannot be read"
            clocks.switch_to(board, why, Capability("not_supported", why))
        elif why:
            board.cap = Capability("not_supported", why)
        elif not asking:
            board.cap = Capability("not_supported", "limits are switched off for this job (--no-cap)")

    def probe(self, uuid: str, *, write: bool = True) -> None:
        """Whether limits can be set: by whose permission we have, or, with `write`, by writing back the limit in force,
        which changes nothing. Only on a GPU of the child."""
        board = self.boards[uuid]
        if board.cap.support == "unknown" and board.lease.record is None and not board.because:
            board.cap = self._probe(board, write)
            if board.cap.support == "not_supported" and board.info.clock_max_mhz:
                clocks.switch_to(board, "its power limit cannot be set", board.cap)

    def _probe(self, board: BoardLimit, write: bool) -> Capability:
        uuid = board.info.uuid
        try:
            if not board.lease.take():
                # its owner has the same permissions as we do, and sets it
                holder = board.lease.holder()
                board.passing = Capability("yes", f"{span(board.info)}; {holder}")
                return Capability("unknown", holder)
        except OSError as error:
            fix = (
                f"repair {self.store.directory}, or export CARBONTUI_LEASE_DIR=/a/local/directory" if self.store else ""
            )
            board.passing = Capability(
                "no_permission", f"no lease can be kept, without which nothing is set ({error})", fix
            )
            return Capability("unknown", board.passing.why)
        try:
            if self.store is not None and write:
                self.backend.set_limit_mw(uuid, self.backend.limit_mw(uuid))
                self.store.note_refused(uuid, None)
        except DeviceError as error:
            return self._refused(board, error)
        finally:
            board.lease.let_go()
        through = self.backend.through if write else self.backend.setter(uuid)
        before = None if write or self.store is None or through else self.store.refused(uuid)
        if through is None or before is not None:
            return board.refusal(DeviceError(base.NO_PERMISSION if before is None else before, "refused before"))
        found = Capability("yes", span(board.info) + (f"; through {through}" if through else ""))
        if write or self.store is None:
            return found
        board.passing = found
        return Capability("unknown", "not tried yet")

    def _refused(self, board: BoardLimit, error: DeviceError, watts: float | None = None) -> Capability:
        """What a refusal means; one that lasts is noted for those who look without writing."""
        if self.store is not None and error.code in (base.NO_PERMISSION, base.NOT_SUPPORTED):
            self.store.note_refused(board.info.uuid, error.code)
        return board.refusal(error, watts)

    def _board_lease(self, info: DeviceInfo) -> BoardLease:
        return BoardLease(self.store, info.uuid, self.job, self.say, info.maker, info.address)

    def active(self) -> tuple[str, ...]:
        """GPUs on which a limit of ours is in force."""
        return tuple(uuid for uuid, board in self.boards.items() if board.lease.record is not None)

    @property
    def notices(self) -> dict[str, str]:
        """Notices for the user, per GPU."""
        return {uuid: board.warning for uuid, board in self.boards.items() if board.warning}

    def check_low(self, uuid: str) -> None:
        """Detect a limit below the driver's default without any lease."""
        board = self.boards[uuid]
        try:
            current_mw = self.backend.limit_mw(uuid)
        except DeviceError:
            return
        self._note_low(board, current_mw)

    def _note_low(self, board: BoardLimit, current_mw: int, *, again: bool = False) -> None:
        if self.store is None:
            return
        low = board.low(current_mw) if board.lease.record is None else None
        if again or low != board.left_low:
            self.store.note_low(board.info.uuid, low)
        board.left_low = low

    # --- setting ----------------------------------------------------------------------------------------------

    def apply(self, uuid: str, watts: float, *, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
        """Cap one GPU. Idempotent; `power_w` is its present draw, used later to judge the effect."""
        board = self.boards[uuid]
        if self.monitor:
            return board.outcome(False, "not_supported", board.cap.why)
        if board.cap.support not in ("yes", "unknown"):
            return board.outcome(False, board.cap.support, board.cap.why, board.cap.fix)  # type: ignore[arg-type]
        return self._owning(board, "the limit is", lambda: self._set(board, watts, allow_raise, power_w, now_s))

    def _owning(self, board: BoardLimit, what: str, act: Callable[[], Outcome]) -> Outcome:
        """Act while the board's lock is ours; it is kept as long as a limit of ours is in force."""
        try:
            return act() if board.own() else board.outcome(False, "held", board.lease.holder())
        except OSError as error:
            return board.outcome(False, "error", f"no lease can be written ({error}): {what} left alone")
        finally:
            board.lease.let_go_unless_in_force()

    def _set(self, board: BoardLimit, watts: float, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
        lease = board.lease.record
        if lease is not None and lease.clocks_mhz is not None and not board.because:
            # the agent that left this lease had found that its power limit does not work
            clocks.switch_to(board, "its power limit did not work", Capability("no_effect", "it did not work before"))
        if board.because:
            return self._by_clocks(board, watts, power_w, now_s)
        try:
            return board.set_limit(watts, allow_raise=allow_raise, power_w=power_w, now_s=now_s)
        except DeviceError as error:
            refused, code = self._refused(board, error, watts), CODES.get(error.code, "error")
        back = self.release(board.info.uuid)
        if back.ok and code in ("no_permission", "not_supported"):
            outcome = self._switch_to_clocks(board, "its power limit cannot be set", refused, watts, power_w, now_s)
            if outcome is not None and outcome.ok:
                return outcome
        board.cap = refused
        return board.outcome(False, code, refused.why, refused.fix)

    def _switch_to_clocks(
        self, board: BoardLimit, because: str, limit: Capability, watts: float, power_w: float | None, now_s: float
    ) -> Outcome | None:
        """Switch from the limit, already restored, to a clock lock with its own lease. None: no clock lock here."""
        if not board.info.clock_max_mhz:
            return None
        clocks.switch_to(board, because, limit)
        return self._owning(board, "clocks are", lambda: self._by_clocks(board, watts, power_w, now_s))

    def _by_clocks(self, board: BoardLimit, watts: float, power_w: float | None, now_s: float) -> Outcome:
        outcome = clocks.apply(board, watts, power_w, now_s)
        if not outcome.ok:
            self.release(board.info.uuid)
        return outcome

    def begin(self, uuid: str) -> None:
        """No process has set a limit here: take the limit in force as the original. Raises DeviceError."""
        board = self.boards[uuid]
        if board.lease.record is None and board.lease.on_disk() is None:
            board.found_mw = board.start_mw = self.backend.limit_mw(uuid)

    def lock(self, uuid: str, mhz: int) -> None:
        """Lock one GPU's clock at a given value, in place of any limit of ours. Raises DeviceError, OSError."""
        board = self.boards[uuid]
        record = board.lease.record
        if record is not None and record.clocks_mhz is None and not self.release(uuid).ok:
            raise DeviceError(base.NOT_SUPPORTED, "its limit could not be restored first")
        if not board.info.clock_max_mhz or mhz > board.info.clock_max_mhz:
            raise DeviceError(2, "no clock of this GPU")
        if not board.own():
            raise DeviceError(base.NO_PERMISSION, board.lease.holder())
        try:
            clocks.lock_at(board, mhz)
        finally:
            board.lease.let_go_unless_in_force()

    # --- restoring ------------------------------------------------------------------------------------------

    def release(self, uuid: str) -> Outcome:
        """Restore one GPU's limit; compare first. Without permission the lease stays and the command is printed."""
        board = self.boards[uuid]
        lease = board.lease.record
        if lease is None:
            board.lease.let_go()
            return board.outcome(True, "kept", "no limit of ours is in force")
        try:
            outcome = clocks.lift(board) if lease.clocks_mhz is not None else board.restore_limit()
        except DeviceError as error:
            fix = "" if error.code == base.GPU_IS_LOST else lease.fix
            repair = f"run: {fix}" if fix else "a reset of the GPU or a reboot does that"
            notice = f"limit not restored ({error}); {repair}"
            if notice != board.notice:  # a stale lease is retried repeatedly
                self.say(f"{uuid}: {notice}")
            board.notice = notice
            return board.outcome(False, CODES.get(error.code, "error"), board.notice, fix)
        board.forget()
        return outcome

    def leave(self, uuid: str) -> Outcome:
        """Another program has changed this limit since our request: leave it."""
        self.release(uuid)
        board = self.boards[uuid]
        return board.outcome(False, "outside", board.notice or "the limit was changed outside: left alone")

    def release_all(self) -> tuple[Outcome, ...]:
        return tuple(self.release(uuid) for uuid in self.active())

    def restore_stale(self, keep: frozenset[str] = frozenset()) -> tuple[Outcome, ...]:
        """Restore what dead agents left behind, except on the GPUs in `keep`, which are about to be taken over."""
        if self.store is None:
            return ()
        outcomes = []
        for lease in self.store.all():
            uuid = lease.uuid
            if lease.boot_id != proc.boot_id():
                self.store.drop(uuid)
                continue
            if uuid in keep or not is_stale(lease, self.store):
                continue
            board = self.boards.get(uuid)
            if board is None:
                text = f"{uuid} is not here now; when it is: {lease.fix}"
                outcomes.append(Outcome(uuid, False, "lost", None, text, lease.fix))
                continue
            try:
                owned = not self.monitor and board.own()
            except OSError as error:
                self.say(f"{uuid}: its stale lease cannot be taken over ({error})")
                continue
            if owned:
                outcomes.append(self.release(uuid))
        return tuple(outcomes)

    def returned(self, uuid: str) -> None:
        """A lost board is back. Its reset has lifted any limit or lock of ours."""
        board = self.boards[uuid]
        if board.cap.support == "lost":
            board.cap = Capability("unknown", "not tried yet")
        board.passing, board.notice = None, ""
        record = board.lease.record
        try:
            if record is not None and record.clocks_mhz is None and board.is_before():
                board.forget()
            elif record is not None and record.clocks_mhz is not None:
                clocks.lift(board)
                board.forget()
        except DeviceError as error:
            self.say(f"{uuid}: {error}")

    # --- watching ---------------------------------------------------------------------------------------------

    def observe(self, uuid: str, raw: RawReading, now_s: float) -> Outcome | None:
        """Evaluate a look: adopt a changed limit, give up a cap without effect. Returns the outcome, if any."""
        board = self.boards[uuid]
        board.sm_mhz, board.module = raw.sm_mhz, raw.kind == "module"
        if board.steering is not None:
            return self._steer(board, raw, now_s)
        found = board.judge(raw, now_s)
        return self._no_effect(board, found, now_s) if isinstance(found, Ineffective) else found

    def _no_effect(self, board: BoardLimit, ineffective: Ineffective, now_s: float) -> Outcome:
        """Restore the power limit, then try the clock. If that is refused too, report no effect."""
        back = self.release(board.info.uuid)
        why = f"accepted, but the board still drew {ineffective.drawn_w:.0f} W under {ineffective.limit_w:.0f} W"
        self.say(f"{board.info.uuid}: {why}")
        fix = back.fix
        if back.ok:
            because, limit = "its power limit has no effect", Capability("no_effect", why)
            outcome = self._switch_to_clocks(board, because, limit, ineffective.limit_w, ineffective.drawn_w, now_s)
            if outcome is not None and outcome.ok:
                return outcome
            if outcome is not None:
                why, fix = f"{why}; {outcome.text}", outcome.fix
        board.cap = Capability("no_effect", why, fix)
        return board.outcome(False, "no_effect", why, fix)

    def _steer(self, board: BoardLimit, raw: RawReading, now_s: float) -> Outcome | None:
        """Keep a clock lock at its watts; give it up if it does not work."""
        happened = clocks.steer(board, raw, now_s)
        if isinstance(happened, Outcome):
            self.release(board.info.uuid)
            return happened
        if happened is None:
            return None
        if happened.code == "outside":
            # the lock in force belongs to another program: not ours to lift
            board.forget()
            board.notice = why = f"{happened.why}: adopted"
        else:
            self.release(board.info.uuid)
            why = f"{board.because}, and {happened.why}"
            if happened.code == "no_effect":
                board.cap, board.clocks = Capability("no_effect", why), Capability("no_effect", happened.why)
        self.say(f"{board.info.uuid}: {why}")
        return board.outcome(False, happened.code, why)
