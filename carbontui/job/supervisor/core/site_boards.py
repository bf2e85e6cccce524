"""The job's boards as the machine's power budget counts them: the most they can draw, not their average."""

from __future__ import annotations

from typing import NamedTuple

from carbontui.job.supervisor.core import machine
from carbontui.job.supervisor.core.levels import Level
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.problem import DEFAULT_FULL_W
from carbontui.job.supervisor.core.state import JobState
from carbontui.power.messages import Reading

PARKED_MOST_W = 130.0
"""Upper end of the parked watts measured on data-centre boards with a model in memory, 60 to 130 W."""


class SiteBoards(NamedTuple):
    """A job's boards in this machine: their number, and their total watts at full speed, at the lowest limits and
    parked."""

    number: int
    full_w: float
    least_w: float
    parked_w: float


def site_boards(state: JobState, seen: Inputs) -> SiteBoards | None:
    """None if the job has no boards in this machine."""
    devices = here(state, seen)
    if not devices:
        return None
    least = _least_w(state, devices)
    return SiteBoards(len(devices), _full_w(state, devices), least, min(_parked_w(state, seen, devices), least))


def here(state: JobState, seen: Inputs) -> tuple[Reading, ...]:
    """The job's boards in this machine. Those that no driver shows (simulated, replayed, declared) draw nothing there:
    they spend no budget, and none holds them."""
    nodes = state.spec.nodes
    if state.spec.simulated is not None or state.clock.replay or seen.readings.backend == "declared":
        return ()
    return tuple(device for device in seen.devices if nodes is None or device.node == nodes.own)


def _most_w(state: JobState, device: Reading) -> float:
    """Watts of a board at its own limit; at most what the user declares for one whose power cannot be read."""
    most = device.limit_found_w or device.limit_max_w or device.limit_w
    if state.spec.declared is None or device.power_kind != "model":
        return most or DEFAULT_FULL_W
    return min(most or state.spec.declared.tdp_w, state.spec.declared.tdp_w)


def _full_w(state: JobState, devices: tuple[Reading, ...]) -> float:
    return sum(_most_w(state, device) for device in devices)


def _least_w(state: JobState, devices: tuple[Reading, ...]) -> float:
    """Running at the lowest limit that every board takes; at full speed if none can be set."""
    lowest = [device.limit_min_w for device in devices]
    if not state.caps_hold or None in lowest:
        return _full_w(state, devices)
    return len(lowest) * max(watts for watts in lowest if watts is not None)


def _parked_w(state: JobState, seen: Inputs, devices: tuple[Reading, ...]) -> float:
    """Paused with the model in memory: as measured, as read now if it is paused, else the most that any board is known
    to draw parked."""
    known = machine.machine(state, seen)
    parked = known.parked_w * len(devices) / len(seen.devices)
    if not known.parked_measured:
        parked = max(parked, PARKED_MOST_W * len(devices))
    watts = [device.power_w for device in devices]
    if state.decision.state == "paused" and None not in watts:
        parked = max(parked if known.parked_measured else 0.0, sum(w for w in watts if w is not None))
    return parked


def bound_w(state: JobState, devices: tuple[Reading, ...]) -> float:
    """The most the boards can draw under the limits in force."""
    limits = [(device.limit_w, _most_w(state, device)) for device in devices]
    return sum(full if limit is None else min(limit, full) for limit, full in limits)


def watts_at(level: Level, boards: int, full_w: float, parked_w: float, *, absent: bool = False) -> float:
    """Watts of all `boards` at a level."""
    if level.still:
        return 0.0 if absent or level.kind in ("off", "unload") else parked_w
    return min(full_w, level.cap_w * boards) if level.kind == "cap" and level.cap_w is not None else full_w
