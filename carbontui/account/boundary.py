"""What the account counts of a machine, by who else would pay for it: one rule for plan, account and run-now.

- held: the job keeps boards and host from others until it releases them (a scheduler's allocation, a rented machine):
  all that they draw counts, before the start and in every pause
- always-on: the machine is on with or without the job (a workstation): what it draws idle is nobody's, so full speed
  costs its watts less the idle ones, a pause parked less idle, waiting nothing
- given-back: before its start and while it is unloaded the job has no machine, and nothing counts; all does otherwise

`gives_back`: an unload releases what is held (`--resubmit`). Where nothing counts, no rent is due either.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["held", "always-on", "given-back"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Place = Literal["off", "unload", "here"]
"""Not started, unloaded, or on the boards (running, paused, switching)."""
Counted = Literal["whole", "above_idle", "nothing"]
IDLE = "idle"
"""The device under which what is nobody's is booked, in negative joules."""


class Draw(NamedTuple):
    """Watts of the job at one moment, before PUE: its boards, its part of CPU and memory, and of all else in the
    machine."""

    boards: float
    rest: float = 0.0
    host: float = 0.0


def counted(kind: Kind, place: Place, *, gives_back: bool = False) -> Counted:
    """What counts of the watts drawn at a place."""
    if kind == "always-on":
        return "above_idle" if place == "here" else "nothing"
    away = place == "unload" and gives_back if kind == "held" else place != "here"
    return "nothing" if away else "whole"


def charged_w(how: Counted, drawn: Draw, idle: Draw) -> float:
    """The watts that count. What idles belongs to the host's watts, which an always-on machine draws anyway."""
    if how == "nothing":
        return 0.0
    if how == "above_idle":
        return max(0.0, drawn.boards + drawn.rest - idle.boards - idle.rest)
    return sum(drawn)


def place_of(state: str) -> Place:
    """Where a job is in a state, as the account books it."""
    return "off" if state == "waiting" else "unload" if state == "unloaded" else "here"


def waits_count(facts: Mapping[str, Any]) -> bool:
    """Whether waiting before the start counts, by what the journal keeps of a job."""
    return facts.get("boundary") == "held" or bool(facts.get("count_idle"))


def without_device(booked: str) -> str:
    """'idle' of 'idle@GPU-a': what is nobody's is one part of an account."""
    return IDLE if booked[: len(IDLE) + 1] == f"{IDLE}@" else booked
