"""The levels of a job, and their form on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from carbontui import protocol
from carbontui.protocol import HeldBy, LevelKind, Why

STILL: frozenset[str] = frozenset({"off", "unload", "pause"})
"""Kinds of level without training steps."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the plan and what it means for the process: watts of all boards, speed against full speed, watts per
    GPU of a cap, share of time of a duty cycle."""

    name: str
    kind: LevelKind
    power_w: float = 0.0
    speed: float = 1.0
    cap_w: float | None = None
    duty: float | None = None
    assumed: bool = False
    """Its watts and speed are worked out from those of measured levels."""

    @property
    def still(self) -> bool:
        return self.kind in STILL


FULL = Level("full", "full")
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
    return Level(cap_name(watts), "cap", cap_w=watts)


def under(planned: Level, cap_w: float, known: Iterable[Level] = ()) -> Level:
    """The planned level, or the cap of `cap_w` if the planned level is faster."""
    faster = planned.kind == "full" or (planned.kind == "cap" and (planned.cap_w or 0.0) > cap_w)
    if not faster:
        return planned
    return next((level for level in known if level.kind == "cap" and level.cap_w == cap_w), cap(cap_w))


def to_wire(level: Level) -> protocol.LevelInfo:
    return protocol.LevelInfo(level.name, level.kind, level.power_w, level.speed, level.cap_w, level.assumed)
