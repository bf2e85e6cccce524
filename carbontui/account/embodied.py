"""What making the hardware emitted, per hour that a job holds it: beside the account, never within it.

M of ISO/IEC 21031: the embodied emissions of a board and of its part of the server, by the share of their hours of use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Manufactured(NamedTuple):
    """Published embodied emissions: of a board, or of a server besides its `boards`, over its hours of use."""

    kind: str
    name: str
    kgco2e: float
    boards: int
    hours: float
    source: str

    @property
    def g_per_board_hour(self) -> float:
        return 1000.0 * self.kgco2e / self.boards / self.hours


class Embodied(NamedTuple):
    """Grams of the hours held, and the rows that they come from."""

    grams: float
    g_per_hour: float
    rows: tuple[Manufactured, ...]


def embodied(boards: Sequence[str], held_s: float, table: Iterable[Manufactured]) -> Embodied | None:
    """Of boards by their driver's names, each with its part of a server; None where any of them is not published."""
    known = list(table)
    servers = [row for row in known if row.kind == "server"]
    rows: list[Manufactured] = []
    for name in boards:
        parts = name.upper().replace("-", " ").split()
        rows += [row for row in known if row.kind == "board" and row.name.upper() in parts][:1]
    if not boards or len(rows) < len(boards):
        return None
    rate = sum(row.g_per_board_hour for row in rows) + len(boards) * sum(row.g_per_board_hour for row in servers)
    return Embodied(rate * held_s / 3600.0, rate, tuple(dict.fromkeys((*rows, *servers))))
