"""A job at several machines: the account is the sum of its places, each by the grid of its own zone.

What was used at a machine that the job has left stays as it was booked there: neither the rows of another zone nor a
later revision change it. Run-now runs where the job ran: at each place the work done there, at the speed and watts
measured there, without a break from the arrival; so what a move itself saves is not counted as avoided.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from carbontui.protocol import MovesCost, PlaceUse


class LeftPlace(NamedTuple):
    """What a job used at a machine that it has left, at the wall; None: not known, it was lost with that machine."""

    host: str
    zone: str | None
    until_s: float
    """When it counts no longer, and the next place does (job clock)."""
    steps: int | None = None
    wall_kwh: float | None = None
    gco2_g: float | None = None
    basis: dict[str, Any] = {}
    """What the journal kept for an independent reader, as of then."""


class Moves(NamedTuple):
    """What the moves into the present place and before took."""

    wall_kwh: float = 0.0
    gco2_g: float | None = 0.0
    bytes: int = 0
    took_s: float = 0.0

    @property
    def cost(self) -> MovesCost:
        grams = None if self.gco2_g is None else round(self.gco2_g, 6)
        return MovesCost(energy_wall_kwh=round(self.wall_kwh, 9), gco2_g=grams, bytes=self.bytes, s=self.took_s)


NO_MOVES = Moves()


def uses(
    left: Sequence[LeftPlace], host: str, zone: str | None, *, steps: int, wall_kwh: float, gco2_g: float | None
) -> tuple[PlaceUse, ...]:
    """By place, from the figures of the whole job so far; the present one at `host` is what the others leave."""
    unknown_g = gco2_g is None or any(one.gco2_g is None for one in left if one.wall_kwh is not None)
    here = LeftPlace(
        host,
        zone,
        0.0,
        steps - sum(one.steps or 0 for one in left),
        wall_kwh - sum(one.wall_kwh or 0.0 for one in left),
        None if unknown_g or gco2_g is None else gco2_g - sum(one.gco2_g or 0.0 for one in left),
    )
    return tuple(
        PlaceUse(
            host=one.host,
            zone=one.zone,
            steps=one.steps,
            energy_wall_kwh=None if one.wall_kwh is None else round(one.wall_kwh, 9),
            gco2_g=None if one.gco2_g is None else round(one.gco2_g, 6),
        )
        for one in (*left, here)
    )
