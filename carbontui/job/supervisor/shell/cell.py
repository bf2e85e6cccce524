"""Holds the current JobState for code that runs outside the tick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from carbontui.job.supervisor.core.state import JobState


class StateCell:
    """Holds one JobState. It is changed by replacing it, without an await between read and write."""

    def __init__(self, state: JobState) -> None:
        self.state = state

    def replace(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)
