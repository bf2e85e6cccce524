"""Binds a replay's clock to the steps of its training: a busy machine slows the day down, and nothing is late."""

from __future__ import annotations

from carbontui import paths, protocol
from carbontui.job.supervisor.core.state.job import JobState

SILENT_S = 1.8
"""Steps are reported every second: a training not heard for longer waits for a core."""


def due(state: JobState, unheard_s: float | None) -> bool:
    """Whether the clock stands: the command has not come to its first step, has made its last one, or is not heard."""
    total, step = state.progress.steps_total, state.progress.step
    if (
        state.decision.state not in ("starting", "running", "throttled", "pausing")
        or state.decision.state not in protocol.LIVE_STATES
    ):
        return False
    if step == 0 or (total is not None and step >= total):
        return True
    return state.decision.state != "pausing" and (unheard_s is None or unheard_s > SILENT_S)


def bind(state: JobState, unheard_s: float | None, wall_s: float) -> None:
    """`unheard_s` since the training's last message; None where none is connected."""
    if state.clock.stood is not None:
        state.clock.stood.stand(due(state, unheard_s), wall_s, paths.write_whole)
