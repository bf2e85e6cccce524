"""What came of a try before the start: what the state remembers of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of the try; `text` is '' before one has ended."""

    text: str = ""
    under_way: bool = False
    stepped_s: float | None = None
    """When its first step was seen, the machine's monotonic clock."""
    ended_s: float = 0.0
    """When it ended, job clock: a plan made before that knew of a training that runs."""


NOT_TRIED = Tried()


def restored(kept: Any) -> Tried:
    """Raises msgspec.ValidationError where a field is not what it should be."""
    return msgspec.convert(kept or {}, Tried)
