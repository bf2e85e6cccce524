"""What the account has from elsewhere: sums of rows that are not here, and the intensity rows of the journal."""

from __future__ import annotations

from typing import NamedTuple


class CarriedOver(NamedTuple):
    """Sums of the rows of a lost journal, or of the places before this one; None: unknown. `energy_cost` is without
    rent."""

    gco2_g: float | None = 0.0
    energy_cost: float | None = 0.0
    run_now_g: float | None = 0.0
    """Of the places before this one."""


class BookedRow(NamedTuple):
    """An intensity row of the journal without its start: seconds, gCO2/kWh, kind and source."""

    dur_s: float
    value: float
    kind: str
    source: str
