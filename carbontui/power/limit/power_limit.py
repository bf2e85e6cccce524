"""The power limit, the primary actuator: read back after each write, judged by the watts that follow.

Restoring compares first: only a value of ours is replaced. A limit changed by another program is adopted as the new
original and never overwritten. Nothing here sets more than the limit at the start, unless asked to.
"""

from __future__ import annotations

from msgspec import Struct

from carbontui.power.backends.base import REASON_POWER_CAP, DeviceError, DeviceInfo, Look
from carbontui.power.limit.board import OVERSHOOT, TOLERANCE_MW, BoardLimit
from carbontui.power.messages import Capability, Outcome

SETTLE_S = 3.0
"""Enforcement is a control loop and the reading a 1 s average: judge the effect only after this."""
JUDGE_S = 2.0
"""Settled and still above the limit for this long: it has no effect."""
NAMED = 1.3
"""A board that reports a power cap as clock reason is trusted up to this multiple; above, it means another cap."""
IDLE_SHARE = 0.5
"""Share of the limit: a board that draws less is between two bursts, or parked."""
NO_RANGE = "this GPU names no range for its power limit"


class Ineffective(Struct, frozen=True):
    """The board draws more than the limit it accepted."""

    limit_w: float
    drawn_w: float


def apply(board: BoardLimit, watts: float, *, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
    """Set, and read back. Raises DeviceError if the driver refuses, OSError if no lease can be written."""
    info, lease = board.info, board.lease
    if info.limit_min_mw is None or info.limit_max_mw is None or board.ceiling_mw is None or board.found_mw is None:
        return board.outcome(False, "not_supported", NO_RANGE)
    current = board.backend.limit_mw(info.uuid)
    if lease.record is None and not _near(current, (board.found_mw,)):
        _adopt_aside(board, current)  # set by another program while no limit of ours was in force
    top = info.limit_max_mw if allow_raise else min(board.ceiling_mw, info.limit_max_mw)
    wanted = round(watts * 1000)
    if wanted < info.limit_min_mw:
        text = f"this GPU takes {info.limit_min_mw / 1000:.0f}-{top / 1000:.0f} W"
        return board.outcome(False, "out_of_range", text)
    wanted = min(wanted, top)
    if wanted == board.found_mw and lease.record is None:
        return board.outcome(True, "kept", _lower(watts, wanted) or "this is the limit that was found")
    # a dead agent may have written its lease but no limit: then 'before' is still in force, unchanged
    unwritten = lease.inherited() and lease.record is not None and _near(current, (lease.record.before_mw,))
    if lease.record is not None and not unwritten and not _near(current, lease.record.ours_mw):
        _adopt_aside(board, current)
        wanted = min(wanted, top if allow_raise else board.ceiling_mw)
    if lease.record is None:
        lease.write(board.found_mw, (wanted,))
    elif abs(current - wanted) > TOLERANCE_MW:
        lease.write(board.found_mw, (current, wanted))
    else:
        if lease.inherited():
            lease.write(board.found_mw, (current,))
            board.judge_from(current, power_w, now_s)
        return board.outcome(True, "kept", "", watts=current / 1000)
    board.backend.set_limit_mw(info.uuid, wanted)
    current = board.backend.limit_mw(info.uuid)
    try:
        lease.write(board.found_mw, (current,))
    except OSError as error:
        # the lease on disk already names this value, along with the previous one
        board.say(f"{info.uuid}: its lease cannot be shortened ({error})")
    board.notice = ""
    board.cap = Capability("yes", span(info))
    board.judge_from(current, power_w, now_s)
    board.say(f"limit of {info.uuid}: {current / 1000:.0f} W (found {board.found_mw / 1000:.0f} W)")
    return board.outcome(True, "applied", _lower(watts, current), watts=current / 1000)


def restore(board: BoardLimit) -> Outcome:
    """Restore the original limit if a value of ours is still in force. Raises DeviceError."""
    uuid, lease = board.info.uuid, board.lease.record
    assert lease is not None
    current = board.backend.limit_mw(uuid)
    if _near(current, (lease.before_mw,)):
        return board.outcome(True, "given_back", "", watts=current / 1000)
    if not _near(current, lease.ours_mw):
        board.say(f"{uuid}: {adopt(board, current)}")  # an outcome that is ok is not logged
        return board.outcome(True, "outside", "changed by someone else: left alone", watts=current / 1000)
    board.backend.set_limit_mw(uuid, lease.before_mw)
    back = board.backend.limit_mw(uuid)
    if not _near(back, (lease.before_mw,)):
        raise DeviceError(999, f"the board stays at {back / 1000:.0f} W")
    board.say(f"limit of {uuid}: restored, {back / 1000:.0f} W")
    return board.outcome(True, "given_back", "", watts=back / 1000)


def is_before(board: BoardLimit) -> bool:
    """Whether the limit in force is the one to restore. Raises DeviceError."""
    record = board.lease.record
    return record is not None and _near(board.backend.limit_mw(board.info.uuid), (record.before_mw,))


def judge(board: BoardLimit, look: Look, now_s: float) -> Ineffective | Outcome | None:
    """Evaluate a look: adopt a changed limit; one that does not hold is given up by the caller."""
    lease = board.lease.record
    if lease is None or board.set_at_s is None or look.limit_mw is None or now_s - board.set_at_s < 0.5:
        return None
    if not _near(look.limit_mw, lease.ours_mw):
        text = adopt(board, look.limit_mw)
        board.forget()
        board.notice = text
        return board.outcome(False, "outside", text, watts=look.limit_mw / 1000)
    if board.proven or now_s - board.set_at_s < SETTLE_S or look.power_w is None:
        return None
    named = bool((look.reasons or 0) & REASON_POWER_CAP)
    capped = named and look.power_w * 1000 <= look.limit_mw * NAMED
    if look.kind == "module" or (not capped and look.power_w * 1000 < IDLE_SHARE * look.limit_mw):
        # watts that include a CPU cannot judge a GPU limit; and between two bursts any limit seems to hold
        board.binding = board.binding and look.kind != "module"
        board.over_since_s = None
        return None
    if capped or look.power_w * 1000 <= look.limit_mw * OVERSHOOT:
        # watts below a limit that did not bind prove nothing: more may be drawn later
        board.proven = capped or board.binding
        board.binding, board.over_since_s = False, None
        return None
    if board.over_since_s is None:
        board.over_since_s = now_s
    if now_s - board.over_since_s < JUDGE_S:
        return None
    return Ineffective(look.limit_mw / 1000, look.power_w)


def adopt(board: BoardLimit, current_mw: int) -> str:
    """Another program changed the limit: adopt it as the original. Returns the notice."""
    board.found_mw = current_mw
    board.lease.record = board.set_at_s = None
    board.notice = f"the limit was changed outside to {current_mw / 1000:.0f} W (nvidia-smi?): adopted"
    return board.notice


def _adopt_aside(board: BoardLimit, current_mw: int) -> None:
    """Adopt as part of an action that has its own outcome."""
    board.tell(board.outcome(False, "outside", adopt(board, current_mw), watts=current_mw / 1000))


def _lower(asked_w: float, set_mw: int) -> str:
    """The note for a cap lower than requested; '' otherwise."""
    lower = asked_w * 1000 - set_mw > TOLERANCE_MW
    return f"{asked_w:g} W is above the limit found: {set_mw / 1000:g} W" if lower else ""


def span(info: DeviceInfo) -> str:
    """The range of limits, as text."""
    return f"{(info.limit_min_mw or 0) / 1000:.0f}-{(info.limit_max_mw or 0) / 1000:.0f} W"


def _near(value_mw: int, known_mw: tuple[int, ...]) -> bool:
    return any(abs(value_mw - known) <= TOLERANCE_MW for known in known_mw)
