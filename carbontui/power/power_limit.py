"""The power limit, the first actuator: read back after each write, judged by the watts that follow.

Giving back compares first: only a value of ours is replaced. A limit that someone else changed is adopted as the new
'found' and never fought. Nothing here ever sets more than the limit found at the start, unless asked to.
"""

from __future__ import annotations

from msgspec import Struct

from carbontui.power.devices import REASON_POWER_CAP, DeviceError, DeviceInfo, Look
from carbontui.power.held import OVERSHOOT, Held
from carbontui.power.messages import Cap, Outcome

TOLERANCE_MW = 1000
"""Drivers round; a limit within one watt of ours is ours."""
SETTLE_S = 3.0
"""Enforcement is a control loop and the reading a 1 s average: judge the effect only after this."""
JUDGE_S = 2.0
"""Settled and still above the limit for this long: it has no effect."""
NAMED = 1.3
"""A board that names a cap as the reason for its clock is believed up to here; above, it means another than ours."""
IDLE_SHARE = 0.5
"""Of the limit: a board that draws less is between two bursts, or parked."""
NO_RANGE = "this GPU names no range for its power limit"


class Ineffective(Struct, frozen=True):
    """The board draws more than the limit it accepted."""

    limit_w: float
    drawn_w: float


def apply(held: Held, watts: float, *, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
    """Set, and read back. Raises DeviceError where the driver refuses, OSError where no lease can be written."""
    info, tenure = held.info, held.tenure
    if info.limit_min_mw is None or info.limit_max_mw is None or held.ceiling_mw is None or held.found_mw is None:
        return held.outcome(False, "not_supported", NO_RANGE)
    current = held.backend.limit_mw(info.uuid)
    if tenure.lease is None and not _near(current, (held.found_mw,)):
        _adopt_aside(held, current)  # someone set it while nothing of ours stood there
    top = info.limit_max_mw if allow_raise else min(held.ceiling_mw, info.limit_max_mw)
    wanted = round(watts * 1000)
    if wanted < info.limit_min_mw:
        text = f"this GPU takes {info.limit_min_mw / 1000:.0f}-{top / 1000:.0f} W"
        return held.outcome(False, "out_of_range", text)
    wanted = min(wanted, top)
    if wanted == held.found_mw and tenure.lease is None:
        return held.outcome(True, "kept", _lower(watts, wanted) or "this is the limit that was found")
    # a dead agent may have got as far as its lease: then 'before' still stands, and nobody has changed anything
    unwritten = tenure.inherited() and tenure.lease is not None and _near(current, (tenure.lease.before_mw,))
    if tenure.lease is not None and not unwritten and not _near(current, tenure.lease.ours_mw):
        _adopt_aside(held, current)
        wanted = min(wanted, top if allow_raise else held.ceiling_mw)
    if tenure.lease is None:
        tenure.write(held.found_mw, (wanted,))
    elif abs(current - wanted) > TOLERANCE_MW:
        tenure.write(held.found_mw, (current, wanted))
    else:
        if tenure.inherited():
            tenure.write(held.found_mw, (current,))
            held.judge_from(current, power_w, now_s)
        return held.outcome(True, "kept", "", watts=current / 1000)
    held.backend.set_limit_mw(info.uuid, wanted)
    current = held.backend.limit_mw(info.uuid)
    try:
        tenure.write(held.found_mw, (current,))
    except OSError as error:
        # the one on disk names this value too, beside the one before it
        held.say(f"{info.uuid}: its lease cannot be shortened ({error})")
    held.notice = ""
    held.cap = Cap("yes", span(info))
    held.judge_from(current, power_w, now_s)
    held.say(f"limit of {info.uuid}: {current / 1000:.0f} W (found {held.found_mw / 1000:.0f} W)")
    return held.outcome(True, "applied", _lower(watts, current), watts=current / 1000)


def restore(held: Held) -> Outcome:
    """Give back what was found, where a value of ours still stands. Raises DeviceError."""
    uuid, lease = held.info.uuid, held.tenure.lease
    assert lease is not None
    current = held.backend.limit_mw(uuid)
    if _near(current, (lease.before_mw,)):
        return held.outcome(True, "given_back", "", watts=current / 1000)
    if not _near(current, lease.ours_mw):
        adopt(held, current)
        return held.outcome(True, "outside", "changed by someone else: left alone", watts=current / 1000)
    held.backend.set_limit_mw(uuid, lease.before_mw)
    back = held.backend.limit_mw(uuid)
    if not _near(back, (lease.before_mw,)):
        raise DeviceError(999, f"the board stays at {back / 1000:.0f} W")
    held.say(f"limit of {uuid}: given back, {back / 1000:.0f} W")
    return held.outcome(True, "given_back", "", watts=back / 1000)


def judge(held: Held, look: Look, now_s: float) -> Ineffective | Outcome | None:
    """Learn from a look: a changed limit is adopted; one that does not hold is for the caller to give up."""
    lease = held.tenure.lease
    if lease is None or held.set_at_s is None or look.limit_mw is None or now_s - held.set_at_s < 0.5:
        return None
    if not _near(look.limit_mw, lease.ours_mw):
        text = adopt(held, look.limit_mw)
        held.forget()
        held.notice = text
        return held.outcome(False, "outside", text, watts=look.limit_mw / 1000)
    if held.proven or now_s - held.set_at_s < SETTLE_S or look.power_w is None:
        return None
    named = bool((look.reasons or 0) & REASON_POWER_CAP)
    capped = named and look.power_w * 1000 <= look.limit_mw * NAMED
    if look.kind == "module" or (not capped and look.power_w * 1000 < IDLE_SHARE * look.limit_mw):
        # watts that hold a CPU's too judge no limit of a GPU; and between two bursts any limit seems to hold
        held.binding = held.binding and look.kind != "module"
        held.over_since_s = None
        return None
    if capped or look.power_w * 1000 <= look.limit_mw * OVERSHOOT:
        # watts below a limit that did not have to bind prove nothing: more may be drawn later
        held.proven = capped or held.binding
        held.binding, held.over_since_s = False, None
        return None
    if held.over_since_s is None:
        held.over_since_s = now_s
    if now_s - held.over_since_s < JUDGE_S:
        return None
    return Ineffective(look.limit_mw / 1000, look.power_w)


def adopt(held: Held, current_mw: int) -> str:
    """Someone else changed the limit: from now on that is what was found. Says so."""
    held.found_mw = current_mw
    held.tenure.lease = held.set_at_s = None
    held.notice = f"the limit was changed outside to {current_mw / 1000:.0f} W (nvidia-smi?): adopted"
    held.say(f"{held.info.uuid}: {held.notice}")
    return held.notice


def _adopt_aside(held: Held, current_mw: int) -> None:
    """Adopt on the way to something else, which has an outcome of its own."""
    held.tell(held.outcome(False, "outside", adopt(held, current_mw), watts=current_mw / 1000))


def _lower(asked_w: float, stands_mw: int) -> str:
    """What to say of a cap that is lower than what was asked for; '' of one that is not."""
    lower = asked_w * 1000 - stands_mw > TOLERANCE_MW
    return f"{asked_w:g} W is above the limit found: {stands_mw / 1000:g} W" if lower else ""


def span(info: DeviceInfo) -> str:
    """The range of limits, in words."""
    return f"{(info.limit_min_mw or 0) / 1000:.0f}-{(info.limit_max_mw or 0) / 1000:.0f} W"


def _near(value_mw: int, known_mw: tuple[int, ...]) -> bool:
    return any(abs(value_mw - known) <= TOLERANCE_MW for known in known_mw)
