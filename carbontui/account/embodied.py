"""What making the hardware emitted, per hour that a job holds it: beside the account, never within it.

M of ISO/IEC 21031: the embodied emissions of a board and of its part of the server, by the share of their hours of use.
A plan may weigh it (`run --embodied`) in the hours that count (`boundary.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

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
    Manufactured("A100", 150.0, "Luccioni et al. 2022, arXiv 2211.02001: 150 kg per board"),
    Manufactured(
        "H100", 164.0, "NVIDIA, HGX-H100-PCF-Summary.pdf (2025, ISO 14067): 1,312 kg from cradle to gate per 8 boards"
    ),
    Manufactured(
        "B200", 284.0, "NVIDIA, HGX-B200-PCF-Summary.pdf (2025, ISO 14067): 2,274 kg from cradle to gate per 8 boards"
    ),
)
SERVER = Manufactured("server", 2500.0, "Luccioni et al. 2022, arXiv 2211.02001: 2,500 kg besides its 8 boards", 8)


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
