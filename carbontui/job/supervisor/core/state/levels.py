"""The levels of a job, as they are on the wire too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from carbontui import protocol
from carbontui.protocol import HeldBy, Why

Level = protocol.Level
STILL = protocol.STILL
FULL = Level("full", "full", 0.0, 1.0)
OFF = Level("off", "off", 0.0, 0.0)
PAUSE = Level("pause", "pause", 0.0, 0.0)
UNLOAD = Level("unload", "unload", 0.0, 0.0)


class Chosen(NamedTuple):
    """A level decided, why and by whom, and when that ends (job clock); None where that is not known."""

    level: Level
    why: Why
    held_by: HeldBy = "plan"
    until_s: float | None = None


def cap_name(watts: float) -> str:
    """'cap 300 W': watts per GPU."""
    return f"cap {watts:g} W"


def cap(watts: float) -> Level:
    """A cap of `watts` per GPU whose speed has not been measured."""
    return Level(cap_name(watts), "cap", 0.0, 1.0, cap_w=watts)


def under(planned: Level, cap_w: float, known: Iterable[Level] = ()) -> Level:
    """The planned level, or the cap of `cap_w` if the planned level is faster."""
    faster = planned.kind == "full" or (planned.kind == "cap" and (planned.cap_w or 0.0) > cap_w)
    if not faster:
        return planned
    return next((level for level in known if level.kind == "cap" and level.cap_w == cap_w), cap(cap_w))
