"""The next stretches of a plan in words, the same for a plan just made and for one as of now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StretchWords(NamedTuple):
    """Consecutive slots at one level: 'pausing' or 'running at full', and when it ends as text."""

    doing: str
    still: bool
    end: str


def course(stretches: Sequence[StretchWords]) -> str:
    """'pausing until 02:15', 'running at full until 18:00, then pausing until 02:15', 'running at cap300 to the end
    (15:29)'; '' for none. A stretch that stands still is the whole answer unless it comes second."""
    parts = [f"{one.doing} until {one.end}" for one in stretches[:2]]
    if 0 < len(stretches) <= 2:
        parts[-1] = f"{stretches[-1].doing} to the end ({stretches[-1].end})"
    return parts[0] if len(stretches) > 1 and stretches[0].still else ", then ".join(parts)
