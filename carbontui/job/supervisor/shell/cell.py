"""Where the state of the job stands, for everything that runs beside the tick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from carbontui.job.supervisor.core.state import JobState


class StateCell:
    """Holds one JobState. Whoever changes it puts a new one in its place, without an await in between."""

    def __init__(self, state: JobState) -> None:
        self.state = state

    def replace(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)
