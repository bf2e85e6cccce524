"""The clock lock, the fallback actuator: where a power limit does not work, the clock is locked low enough.

A lock can be set and lifted but not read: one set before by an admin cannot be restored, which is stated at every
use. It needs the same file lock and lease as a limit.
"""

from __future__ import annotations

from carbontui.power.backends import base
from carbontui.power.backends.base import DeviceError, RawReading
from carbontui.power.limit.board import CODES, BoardLimit
from carbontui.power.limit.steering import LockGivenUp, Steering, clocks_for
from carbontui.power.messages import Capability, Outcome

WARNING = "clocks are locked instead (a lock set before by an admin cannot be restored)"


def switch_to(board: BoardLimit, because: str, limit: Capability) -> None:
    """Cap this board by its clock from now on; `limit` says whether its power limit works."""
    board.because, board.limit = because, limit
    board.cap = Capability("unknown", f"{because}; {WARNING}")


def apply(board: BoardLimit, watts: float, power_w: float | None, now_s: float) -> Outcome:
    """Lock the clock so that the board draws about `watts`; `steer` adjusts it later. Raises OSError: no lease."""
    if board.steering is not None and board.steering.wanted_w == watts:
        return board.outcome(True, "kept", board.cap.why, watts=watts)
    if board.module:
        text = "clocks are steered by watts, and here only those of the whole module can be read"
        return board.outcome(False, "not_supported", f"{board.because}; {text}")
    top, lease = board.info.clock_max_mhz or 0, board.lease.record
    standing = lease.clocks_mhz if lease is not None and lease.clocks_mhz is not None else top
    mhz = standing
    if power_w is not None and power_w > watts:
        runs = min(standing, board.sm_mhz or standing)  # it may run below its lock already
        mhz = clocks_for(watts, power_w, runs, top)
    ran = board.steering.ran_mhz if board.steering else board.sm_mhz
    return _lock(board, Steering(watts, mhz, top, ran, now_s))


def steer(board: BoardLimit, raw: RawReading, now_s: float) -> LockGivenUp | Outcome | None:
    """Move the lock towards the wanted watts; on LockGivenUp the caller gives the lock up."""
    assert board.steering is not None
    board.steering = board.steering.sample(raw.power_w, raw.sm_mhz, now_s)
    failure = board.steering.failure()
    if failure is not None:
        return failure
    mhz = board.steering.next_mhz(raw.power_w, now_s)
    if mhz is None:
        return None
    try:
        outcome = _lock(board, board.steering.at(mhz, now_s))
    except OSError as error:
        board.say(f"{board.info.uuid}: no lease can be written ({error}): clocks are left as they are")
        return None
    return None if outcome.ok else outcome


def lock_at(board: BoardLimit, mhz: int) -> None:
    """Lock the clock at a value chosen and steered by the caller. Raises DeviceError, OSError: no lease."""
    board.lease.write(board.found_mw or 0, (board.found_mw or 0,), mhz)
    try:
        board.backend.lock_clocks(board.info.uuid, mhz)
    except DeviceError:
        board.forget()
        raise


def lift(board: BoardLimit) -> Outcome:
    """Raises DeviceError."""
    board.backend.lock_clocks(board.info.uuid, None)
    board.say(f"clocks of {board.info.uuid}: lock lifted")
    return board.outcome(True, "given_back", "clock lock lifted")


def _lock(board: BoardLimit, steering: Steering) -> Outcome:
    """Write the lease, then lock. If the driver refuses the first lock the lease is dropped at once; later it stays."""
    uuid, mhz = board.info.uuid, steering.mhz
    first = board.lease.record is None
    board.lease.write(board.found_mw or 0, (round(steering.wanted_w * 1000),), mhz)
    try:
        board.backend.lock_clocks(uuid, mhz)
    except DeviceError as error:
        board.clocks = _refusal(board, error, mhz)
        board.cap = Capability(board.clocks.support, f"{board.because}, and {board.clocks.why}", board.clocks.fix)
        if first and error.code in (base.NO_PERMISSION, base.NOT_SUPPORTED):
            board.forget()
        return board.outcome(False, CODES.get(error.code, "error"), board.cap.why, board.cap.fix)
    why = f"{board.because}; {WARNING}"
    board.steering, board.cap = steering, Capability("yes", why)
    board.clocks = Capability("yes", f"up to {steering.top_mhz} MHz; a lock set before by an admin cannot be restored")
    board.notice = f"{why}: now at most {mhz} MHz"
    board.say(f"clocks of {uuid}: at most {mhz} MHz for {steering.wanted_w:.0f} W ({board.because})")
    return board.outcome(True, "applied", f"{why}: at most {mhz} MHz", watts=steering.wanted_w)


def _refusal(board: BoardLimit, error: DeviceError, mhz: int) -> Capability:
    if error.code == base.NO_PERMISSION:
        return Capability("no_permission", "the driver lets only root lock clocks", board.by_hand(mhz=mhz))
    if error.code == base.NOT_SUPPORTED:
        return Capability("not_supported", "its clocks cannot be locked")
    return board.refusal(error)
