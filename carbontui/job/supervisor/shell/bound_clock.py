"""Binds a replay's clock to the steps of its training: a busy machine slows the day down, and nothing is late."""

from __future__ import annotations

from carbontui import paths
from carbontui.job.supervisor.core.planning.course import in_force
from carbontui.job.supervisor.core.state.job import JobState

REPORTED_S = 1.2
"""Steps are reported every second: for as long a training that was heard is taken to go on at its pace."""
LAG_S = 0.3
"""The training may be this far behind the clock, in seconds of the machine."""


class BoundClock:
    """`observe()` at every tick; keeps how many steps the clock's time has asked for so far."""

    def __init__(self) -> None:
        self._asked: float | None = None
        self._last_s = 0.0
        self._ran_at = 0.0
        """Steps per second of the job, at the last look."""

    def observe(self, state: JobState, silent_s: float | None, wall_s: float) -> None:
        """`silent_s` since the training's last message; None where none is connected."""
        clock = state.clock
        if clock.stood is None:
            return
        step, now_s = state.progress.step, clock.at_wall(wall_s)
        asked = step if self._asked is None else self._asked + max(0.0, now_s - self._last_s) * self._ran_at
        runs = state.decision.state in ("running", "throttled")
        pace = (state.spec.ref_rate or 0.0) * in_force(state).speed if runs else 0.0
        self._asked, self._last_s, self._ran_at = asked, now_s, pace
        made = step + (0.0 if silent_s is None else min(silent_s, REPORTED_S)) * pace * clock.speed
        behind = runs and asked - made > LAG_S * pace * clock.speed
        clock.stood.stand(behind or between_ends(state), wall_s, paths.write_whole)


def between_ends(state: JobState) -> bool:
    """Whether the command runs, but has not come to its first step, or has made its last one."""
    total, step = state.progress.steps_total, state.progress.step
    alive = state.decision.state in ("starting", "running", "throttled", "pausing")
    return alive and (step == 0 or (total is not None and step >= total))
