"""What the account books the present time and joules under: the state, or what it is excluded for."""

from __future__ import annotations

from carbontui.account.elapsed import SWITCHING, as_booked
from carbontui.job.supervisor.core.state import unloading
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState

MOVED = "moved"
"""The reason of an unload for another machine."""


def booked_as(state: JobState, inputs: Inputs) -> str:
    """The name of a state, SWITCHING, or the reason of an exclusion (account/elapsed.py)."""
    known, decided = state.unloading, state.decision
    if state.spec.estimate:
        return "estimate"
    if (
        inputs.child.trying
        or state.tried.under_way
        or (known.by == unloading.TRY and known.phase in ("asked", "leaving"))
    ):
        return "try"
    if state.calibrating.level is not None or decided.why.code == "calibrating":
        return "calibration"
    # a second start reloads what an unload has put away; after a try it is the first of the job itself
    reloading = inputs.starts > state.progress.starts > 0 and known.by != unloading.TRY
    if decided.state == "running" and (reloading or state.resume_asked_mono_s is not None):
        return SWITCHING
    if decided.state == "unloaded" and decided.why.code == MOVED:
        return SWITCHING
    return as_booked(decided.state, decided.why.code)


def of_a_move(state: JobState, inputs: Inputs, *, arriving: bool) -> bool:
    """Whether what is drawn now is the cost of a move: leaving for another machine, or on it before the first step."""
    decided = state.decision
    leaving = decided.why.code == MOVED and decided.state in ("pausing", "unloaded")
    return leaving or (arriving and booked_as(state, inputs) in ("starting", SWITCHING))


def held_back(state: JobState) -> bool:
    """Whether the start is held back by a decision, not just not made yet."""
    return state.decision.state == "waiting" and state.decision.level.still
