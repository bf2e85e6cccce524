"""Revisions by a grid source of values already booked as realised, and their effect on the account."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carbontui import units
from carbontui.account.accounts import BIN_S
from carbontui.text import figures

LEAST_SHARE = 0.005
"""A smaller change of the values is booked without a notice, unless it changes the printed grams."""


class Revision(NamedTuple):
    """Values of `seconds` of the job, from `since_s` to `until_s`: their means before and after in gCO2/kWh, and what
    that changes in the grams emitted so far."""

    since_s: float
    until_s: float
    seconds: float
    before_g_per_kwh: float
    after_g_per_kwh: float
    gco2_g: float
    source: str

    @property
    def words(self) -> str:
        """'312 → 298 g/kWh over 2 h 00 by Energy-Charts: −1.20 g'."""
        values = f"{self.before_g_per_kwh:.0f} → {self.after_g_per_kwh:.0f} g/kWh"
        return f"{values} over {figures.duration(self.seconds)} by {self.source}: {figures.change(self.gco2_g)}"


def revision(
    bins: Iterable[float],
    before: Mapping[float, float],
    after: Mapping[float, float],
    wall_j: Mapping[float, float],
    source: str,
) -> Revision | None:
    """From the `bins` that a source has revised: their values in gCO2/kWh before and after, and the joules at the wall
    in them. None where the change is negligible."""
    changed = sorted(at for at in bins if at in before and at in after and before[at] != after[at])
    if not changed:
        return None
    old = math.fsum(before[at] for at in changed) / len(changed)
    new = math.fsum(after[at] for at in changed) / len(changed)
    grams = math.fsum(units.joules_to_kwh(wall_j.get(at, 0.0)) * (after[at] - before[at]) for at in changed)
    if abs(new - old) < LEAST_SHARE * abs(old) and abs(grams) < figures.LEAST_G:
        return None
    return Revision(changed[0], changed[-1] + BIN_S, len(changed) * BIN_S, old, new, grams, source)
