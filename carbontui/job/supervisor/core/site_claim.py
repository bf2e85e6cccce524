"""The job's claim on the machine's power budget: what its boards can draw, what it wants, and what it holds."""

from __future__ import annotations

from carbontui import units
from carbontui.job.supervisor.core import finish, machine
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.problem import DEFAULT_FULL_W
from carbontui.job.supervisor.core.site_room import Room, watts_at
from carbontui.job.supervisor.core.state import JobState
from carbontui.power.messages import Reading
from carbontui.site.core import TOLERANCE_W, Claim

PARKED_MOST_W = 130.0
"""Of a data-centre board with a model in its memory: the upper end of what was measured, 60 to 130 W."""


def claim(state: JobState, seen: Inputs) -> Claim | None:
    """What is claimed now; None of a job without boards, which draws nothing that a limit governs."""
    devices = _here(state, seen)
    boards = len(devices)
    if not boards or seen.child.state in ("exited", "vanished"):
        return None
    full, least = _full_w(devices), _least_w(state, devices)
    parked = min(_parked_w(state, seen, devices), least)
    absent = seen.child.state in ("waiting", "unloaded")
    floor = 0.0 if absent else parked if can_pause(state, seen) else least
    wants = min(full, max(0.0, watts_at(state.decision.wanted, boards, full, parked, absent=absent)))
    drawing = 0.0 if absent else parked if state.decision.state == "paused" else _bound_w(devices)
    given = 0.0 if seen.site is None else seen.site.allowed_w
    boost = state.override.current is not None and state.override.current.mode == "boost"
    left, deadline = state.progress.left_s, state.deadline_s
    return Claim(
        job=state.spec.job,
        name=state.spec.name,
        boards=boards,
        full_w=full,
        least_w=least,
        floor_w=floor,
        wants_w=wants,
        # a rise that was given and has not reached the boards yet is still held
        held_w=max(drawing, min(given, wants)),
        boost_s=0.0 if boost else None,
        slack_s=None if left is None or deadline is None else deadline - seen.now_s - left,
    )


def can_pause(state: JobState, seen: Inputs) -> bool:
    """Whether this training may be held for want of watts: not while its work is unknown, nor where none is seen."""
    return state.progress.total_s is not None and bool(seen.ranks) and not finish.why_deaf(seen)


def room(state: JobState, seen: Inputs) -> Room | None:
    """For the decision; None where there is no budget, or nothing of this job is in it."""
    devices = _here(state, seen)
    if seen.site is None or not devices:
        return None
    absent = seen.child.state in ("waiting", "unloaded")
    held = absent or can_pause(state, seen)
    return Room(seen.site, len(devices), _full_w(devices), _least_w(state, devices), held)


def why_no_boost(state: JobState, seen: Inputs) -> str:
    """Why a boost has no room even if all others are brought to their least; '' where it has."""
    given = room(state, seen)
    if given is None or given.full_w <= given.share.boost_w + TOLERANCE_W:
        return ""
    left = units.fmt_watts(max(0.0, given.share.boost_w))
    needs, cap = units.fmt_watts(given.full_w), units.fmt_watts(given.share.cap_w)
    return f"a boost takes {needs}; the site budget of {cap} leaves it {left} with every other job at its least"


def _here(state: JobState, seen: Inputs) -> tuple[Reading, ...]:
    """The job's boards in this machine."""
    nodes = state.spec.nodes
    return tuple(device for device in seen.devices if nodes is None or device.node == nodes.own)


def _full_w(devices: tuple[Reading, ...]) -> float:
    return sum(d.limit_found_w or d.limit_max_w or d.limit_w or DEFAULT_FULL_W for d in devices)


def _least_w(state: JobState, devices: tuple[Reading, ...]) -> float:
    """Running at the lowest limit that every board takes; flat out where none can be set."""
    lowest = [device.limit_min_w for device in devices]
    if not state.caps_hold or None in lowest:
        return _full_w(devices)
    return len(lowest) * max(watts for watts in lowest if watts is not None)


def _parked_w(state: JobState, seen: Inputs, devices: tuple[Reading, ...]) -> float:
    """Standing with the model in memory: as measured, as seen now where it stands, or as much as any board is known
    to draw so."""
    known = machine.machine(state, seen)
    parked = known.parked_w * len(devices) / len(seen.devices)
    if not known.parked_measured:
        parked = max(parked, PARKED_MOST_W * len(devices))
    watts = [device.power_w for device in devices]
    if state.decision.state == "paused" and None not in watts:
        parked = max(parked if known.parked_measured else 0.0, sum(w for w in watts if w is not None))
    return parked


def _bound_w(devices: tuple[Reading, ...]) -> float:
    """What the boards can be drawing under the limits in force."""
    limits = [(d.limit_w, d.limit_found_w or d.limit_max_w or DEFAULT_FULL_W) for d in devices]
    return sum(full if limit is None else min(limit, full) for limit, full in limits)
