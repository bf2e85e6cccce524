"""A scheduler's time limit: a training that can save unloads before it, to continue in a successor job."""

from __future__ import annotations

from carbontui.job.supervisor.core import levels
from carbontui.job.supervisor.core.levels import Chosen
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.problem import DEFAULT_UNLOAD_S
from carbontui.job.supervisor.core.state import JobState
from carbontui.protocol import Why, statement

LEAD_S = 60.0
"""Time reserved to submit the successor, besides the time for a checkpoint."""


def holds(state: JobState, seen: Inputs) -> Chosen | None:
    """The unload required by the approaching end of the scheduler's job, and why; None if not required."""
    ends_s, leader = state.spec.ends_s, seen.leader
    if ends_s is None or state.clock.replay or leader is None or not leader.can_unload:
        return None
    measured = state.measured.unload_s.value
    takes_s = DEFAULT_UNLOAD_S if measured is None else measured
    # a long step must end first
    if seen.now_s < ends_s - LEAD_S - takes_s - 2.0 * leader.quiet_s:
        return None
    return Chosen(levels.UNLOAD, Why("plan", statement("time_limit", ends_s=ends_s)))
