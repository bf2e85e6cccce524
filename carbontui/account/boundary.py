"""What the account counts of a machine, by who else would pay for it: one rule for plan, account and run-now.

- held: the job keeps boards and host from others until it releases them (a scheduler's allocation, a rented machine):
  all that they draw counts, before the start and in every pause
- always-on: the machine is on with or without the job (a workstation): what it draws idle is nobody's, so full speed
  costs its watts less the idle ones, a pause parked less idle, waiting nothing
- given-back: before its start and while it is unloaded the job has no machine, and nothing counts; all does otherwise

`gives_back`: an unload releases what is held (`--resubmit`). Where nothing counts, no rent is due either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

HOURS = 44_676.0
"""In which a board or server is in use: 6 years for 85 % of the time (Luccioni et al. 2022, arXiv 2211.02001)."""
Published = Literal["published"]


class Manufactured(NamedTuple):
    """Embodied emissions of a board, or of a server besides its `boards`, and where the figure is published."""

    name: str
    kgco2e: float
    source: str
    boards: int = 1

    @property
    def g_per_board_hour(self) -> float:
        return 1000.0 * self.kgco2e / self.boards / HOURS


BOARDS = (
    Manufactured("A100", 150.0, "Luccioni et al. 2022, arXiv 2211.02001: 150 kg per GPU"),
    Manufactured(
        "H100", 164.0, "NVIDIA, HGX-H100-PCF-Summary.pdf (2025, ISO 14067): 1,312 kg from cradle to gate per 8 GPUs"
    ),
    Manufactured(
        "B200", 284.0, "NVIDIA, HGX-B200-PCF-Summary.pdf (2025, ISO 14067): 2,274 kg from cradle to gate per 8 GPUs"
    ),
)
SERVER = Manufactured("server", 2500.0, "Luccioni et al. 2022, arXiv 2211.02001: 2,500 kg besides its 8 GPUs", 8)


class Embodied(NamedTuple):
    """Grams, their rate, and the published figures they come from; none where they are a user's."""

    grams: float
    g_per_hour: float
    sources: tuple[str, ...] = ()


def embodied(boards: Sequence[str], given: float | Published | None, held_s: float = 3600.0) -> Embodied | None:
    """Of boards by their driver's names, each with its part of a server, or as `given` per board and hour; None where a
    board is not published."""
    if isinstance(given, float):
        rate = given * max(1, len(boards))
        return Embodied(rate * held_s / 3600.0, rate)
    parts = [name.upper().replace("-", " ").split() for name in boards]
    rows = [row for name in parts for row in BOARDS if row.name in name]
    if not boards or len(rows) < len(boards):
        return None
    rate = sum(row.g_per_board_hour + SERVER.g_per_board_hour for row in rows)
    return Embodied(rate * held_s / 3600.0, rate, tuple(dict.fromkeys(row.source for row in (*rows, SERVER))))


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
