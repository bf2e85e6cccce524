"""The clock lock, the second actuator: where a power limit is of no use, the clock is kept so low that watts follow.

A lock can be set and lifted but not read: one that an admin has set before cannot be given back, which is said with
every use. It stands under the same lock and lease as a limit would.
"""

from __future__ import annotations

from carbontui.power.devices import NO_PERMISSION, NOT_SUPPORTED, DeviceError, Look
from carbontui.power.held import CODES, Held
from carbontui.power.messages import Cap, Outcome
from carbontui.power.steering import Failure, Steering, clocks_for

WARNING = "clocks are locked instead (a lock set before by an admin cannot be given back)"


def lean_on(held: Held, because: str, limit: Cap) -> None:
    """From now on this board is capped by its clock; `limit` says what its power limit is good for."""
    held.because, held.limit = because, limit
    held.cap = Cap("unknown", f"{because}; {WARNING}")


def apply(held: Held, watts: float, power_w: float | None, now_s: float) -> Outcome:
    """Lock the clock so that the board draws about `watts`; `steer` moves it from there. Raises OSError: no lease."""
    if held.steering is not None and held.steering.wanted_w == watts:
        return held.outcome(True, "kept", held.cap.why, watts=watts)
    if held.module:
        text = "clocks are steered by watts, and here only those of the whole module can be read"
        return held.outcome(False, "not_supported", f"{held.because}; {text}")
    top, lease = held.info.clock_max_mhz or 0, held.tenure.lease
    standing = lease.clocks_mhz if lease is not None and lease.clocks_mhz is not None else top
    mhz = standing
    if power_w is not None and power_w > watts:
        runs = min(standing, held.sm_mhz or standing)  # it may run below its lock already
        mhz = clocks_for(watts, power_w, runs, top)
    ran = held.steering.ran_mhz if held.steering else held.sm_mhz
    return _lock(held, Steering(watts, mhz, top, ran, now_s))


def steer(held: Held, look: Look, now_s: float) -> Failure | Outcome | None:
    """Move the lock towards the wanted watts; a Failure is for the caller, who gives the lock up."""
    assert held.steering is not None
    held.steering = held.steering.look(look.power_w, look.sm_mhz, now_s)
    failure = held.steering.failure()
    if failure is not None:
        return failure
    mhz = held.steering.next_mhz(look.power_w, now_s)
    if mhz is None:
        return None
    try:
        outcome = _lock(held, held.steering.at(mhz, now_s))
    except OSError as error:
        held.say(f"{held.info.uuid}: no lease can be written ({error}): clocks are left as they are")
        return None
    return None if outcome.ok else outcome


def lift(held: Held) -> Outcome:
    """Raises DeviceError."""
    held.backend.lock_clocks(held.info.uuid, None)
    held.say(f"clocks of {held.info.uuid}: lock lifted")
    return held.outcome(True, "given_back", "clock lock lifted")


def _lock(held: Held, steering: Steering) -> Outcome:
    """Lease, then driver. Refused at the first lock, the lease goes at once; a later one stays, to be lifted."""
    uuid, mhz = held.info.uuid, steering.mhz
    first = held.tenure.lease is None
    held.tenure.write(held.found_mw or 0, (round(steering.wanted_w * 1000),), mhz)
    try:
        held.backend.lock_clocks(uuid, mhz)
    except DeviceError as error:
        held.clocks = _refusal(held, error, mhz)
        held.cap = Cap(held.clocks.support, f"{held.because}, and {held.clocks.why}", held.clocks.fix)
        if first and error.code in (NO_PERMISSION, NOT_SUPPORTED):
            held.forget()
        return held.outcome(False, CODES.get(error.code, "error"), held.cap.why, held.cap.fix)
    why = f"{held.because}; {WARNING}"
    held.steering, held.cap = steering, Cap("yes", why)
    held.clocks = Cap("yes", f"up to {steering.top_mhz} MHz; a lock set before by an admin cannot be given back")
    held.notice = f"{why}: now at most {mhz} MHz"
    held.say(f"clocks of {uuid}: at most {mhz} MHz for {steering.wanted_w:.0f} W ({held.because})")
    return held.outcome(True, "applied", f"{why}: at most {mhz} MHz", watts=steering.wanted_w)


def _refusal(held: Held, error: DeviceError, mhz: int) -> Cap:
    if error.code == NO_PERMISSION:
        return Cap("no_permission", "the driver lets only root lock clocks", held.by_hand(f"-lgc 0,{mhz}"))
    if error.code == NOT_SUPPORTED:
        return Cap("not_supported", "its clocks cannot be locked")
    return held.refusal(error)
