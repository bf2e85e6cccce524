"""The result of a try before the start, as kept in the state."""

from __future__ import annotations

from dataclasses import dataclass

from carbontui.protocol import Statement


@dataclass(frozen=True, slots=True)
class Tried:
    """The try; `result` is None until one has ended."""

    result: Statement | None = None
    under_way: bool = False
    stepped_s: float | None = None
    """When its first step was seen, on the machine's monotonic clock."""
    ended_s: float = 0.0
    """When it ended, job clock: a plan made before that assumed a running training."""


NOT_TRIED = Tried()
