"""Holds the current JobState for code that runs outside the tick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from carbontui.job.supervisor.core.state import JobState
from carbontui.job.supervisor.record import events_file


class StateCell:
    """Holds one JobState. It is changed by replacing it, without an await between read and write."""

    def __init__(self, state: JobState) -> None:
        self.state = state
        self._events = events_file.opened(state.spec.job)

    def replace(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)

    def become(self, state: JobState, event: str, /, **facts: object) -> None:
        """Replace it by what one event has made of it; `facts`: what that depended on, and its outcome."""
        if self._events is not None:
            self._events.add(event, self.state, state, facts)
        self.state = state
