"""What the whole work takes flat out, with an interval that shrinks as steps are made."""

from __future__ import annotations

from carbontui import protocol, units
from carbontui.job.supervisor.core import machine
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState


def estimate(state: JobState, seen: Inputs) -> protocol.Estimate | None:
    """None while the number of steps is not known, too few were timed, or once the job is over."""
    work = state.progress
    steps = None if work.steps_total is None else work.steps_total - work.before
    found = None if steps is None or not state.live else work.blocks.whole(steps)
    if found is None:
        return None
    full_w = machine.full_wall_w(state, seen)

    def kwh(seconds: float) -> float | None:
        return None if full_w is None else round(units.joules_to_kwh(seconds * full_w), 9)

    return protocol.Estimate(
        work_s=round(found.value, 3),
        work_lo_s=round(found.lo, 3),
        work_hi_s=round(found.hi, 3),
        energy_wall_kwh=kwh(found.value),
        energy_lo_kwh=kwh(found.lo),
        energy_hi_kwh=kwh(found.hi),
        drifting=found.drifting,
        drift=round(found.drift, 4),
        steps_seen=len(work.blocks.times) * work.blocks.size,
    )


def provenance(state: JobState) -> protocol.Provenance:
    """Where the estimate comes from."""
    work = state.progress.blocks
    return protocol.Provenance("estimated", f"{len(work.times)} timings of {work.size} steps flat out; 95 % interval")
