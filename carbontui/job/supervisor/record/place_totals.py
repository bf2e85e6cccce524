"""The machines of a job as its account knows them: what it used at each, and what the moves between them took."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from carbontui import protocol, units
from carbontui.account import accounts
from carbontui.account.places import NO_MOVES, LeftPlace, Moves, uses
from carbontui.grid.types import Row
from carbontui.job.files import places


@dataclass
class PlaceTotals:
    """Empty for a job that never moved."""

    left: list[LeftPlace] = field(default_factory=list)
    """The machines before this one, oldest first."""
    known: tuple[places.Stay, ...] = ()
    """All of them, this one last."""
    arrived: bool = False
    """The books are of the machine before, still: this process is the first one here."""
    moving: bool = False
    """What is booked now belongs to the cost of a move."""
    _moves: Moves = NO_MOVES
    """Of the moves into places before this one, with what this last one took there."""
    _moving_j: dict[float, float] = field(default_factory=dict)
    """Joules of moves at this machine, by bin."""

    @classmethod
    def restored(cls, kept: Mapping[str, Any], directory: str) -> PlaceTotals:
        """From the books of a predecessor and places.json."""
        now, left = places.read(directory), [LeftPlace(*one) for one in kept.get("left", ())]
        moving_j = {float(at): float(joules) for at, joules in kept.get("moving_j", ())}
        arrived = now.holder and len(now.places) - 1 > len(left)
        return cls(left, now.places, arrived, _moves=Moves(*kept.get("moves", ())), _moving_j=moving_j)

    def to_kept(self) -> dict[str, Any]:
        """For the books."""
        if not self.left and not self._moving_j:
            return {}
        return {"left": self.left, "moves": self._moves, "moving_j": list(self._moving_j.items())}

    @property
    def since_s(self) -> float:
        """From when on this machine counts, on the job's clock: rows of before belong to the places left."""
        return self.left[-1].until_s if self.left else -math.inf

    def arriving(self, steps: int) -> bool:
        """Whether none of the job's `steps` was made here, where it has moved to."""
        return bool(self.left) and steps <= sum(one.steps or 0 for one in self.left)

    def from_here(self, row: Row) -> Row | None:
        """What of a grid row is of the time at this machine, whose zone's it is; None: nothing."""
        late_s = self.since_s - row.start_s
        if late_s <= 0.0:
            return row
        return row._replace(start_s=self.since_s, dur_s=row.dur_s - late_s) if late_s < row.dur_s else None

    def drew(self, t0: float, t1: float, joules: float) -> None:
        """Joules that count, over [t0, t1)."""
        for at, share in accounts.split(t0, t1) if self.moving else ():
            self._moving_j[at] = self._moving_j.get(at, 0.0) + joules * share

    def used(self, steps: int, wall_kwh: float, gco2_g: float | None) -> tuple[protocol.PlaceUse, ...]:
        """By place, from the figures of the whole job so far; the last one is that which the books are of."""
        if not self.left and not self.arrived:
            return ()
        here = self.known[len(self.left)] if self.arrived else self.known[-1]
        return uses(self.left, here.host, here.zone or None, steps=steps, wall_kwh=wall_kwh, gco2_g=gco2_g)

    def cost(self, intensity: Mapping[float, float], nowcast: float | None, pue: float) -> protocol.MovesCost | None:
        """Of a job that has moved; `intensity` by bin, `nowcast` where that is not known."""
        return self.moves(intensity, nowcast, pue).cost if self.left else None

    def moves(self, intensity: Mapping[float, float], nowcast: float | None, pue: float) -> Moves:
        """What all of them took, likewise."""
        kwh = {at: units.joules_to_kwh(joules * pue) for at, joules in self._moving_j.items()}
        values = [(amount, intensity.get(at, nowcast)) for at, amount in kwh.items()]
        grams = [amount * value for amount, value in values if value is not None]
        known = self._moves.gco2_g is not None and len(grams) == len(kwh)
        return Moves(
            self._moves.wall_kwh + math.fsum(kwh.values()),
            (self._moves.gco2_g or 0.0) + math.fsum(grams) if known else None,
            sum(one.bytes for one in self.known),
            math.fsum(one.took_s for one in self.known),
        )

    def leave(self, at_s: float, use: protocol.PlaceUse, moves: Moves, basis: Mapping[str, Any]) -> None:
        """Close the place before this one, where the job counted up to `at_s`; others that it was at since are unknown:
        what they had booked was lost with them."""
        _, *lost = self.known[len(self.left) : -1]
        self.left.append(LeftPlace(use.host, use.zone, at_s, use.steps, use.energy_wall_kwh, use.gco2_g, {**basis}))
        self.left += [LeftPlace(one.host, one.zone or None, at_s) for one in lost]
        self._moves, self._moving_j, self.arrived = moves, {}, False
