"""The one truth about a job, for a living supervisor and for readers of a job without one."""

from __future__ import annotations

from carbontui import protocol
from carbontui.protocol import Situation


def over(ended: protocol.Time | None) -> Situation:
    """Of a job that has ended: nothing runs, nothing is held."""
    return Situation(decided="off", applied="off", held_by="end", since=ended)


def unsteered(was: Situation | None) -> Situation:
    """Of a training whose supervisor is gone: leases have run out, so it trains at full speed, whatever was decided."""
    held = "plan" if was is None else was.held_by
    return Situation(decided="full" if was is None else was.decided, applied="full", held_by=held)
