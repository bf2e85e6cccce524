"""A long run day by day: time, energy, emissions and number of decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from carbontui import units
from carbontui.account.accounts import split
from carbontui.account.split import AT_WORK, EnergyBin, StateSpan
from carbontui.reports.epochs import GRAM_DIGITS, KWH_DIGITS, rounded

LEAST_S = 2 * 86400.0
"""A shorter run has no daily table."""


class DayPart(NamedTuple):
    """One local calendar day, from `at_s` on. Seconds at full speed, under caps, and standing still; kWh and grams are
    differences of rounded sums, so that they add up to the run's totals. `changes` counts decisions."""

    at_s: float
    flat_s: float
    capped_s: float
    still_s: float
    kwh: float
    gco2_g: float | None
    changes: int


class Dated(Protocol):
    @property
    def at_s(self) -> float: ...


def parts(
    cells: Iterable[EnergyBin],
    grams_of: Callable[[float], float] | None,
    spans: Sequence[StateSpan],
    decisions: Iterable[Dated],
    *,
    kwh: float,
    gco2_g: float | None,
) -> tuple[DayPart, ...]:
    """A part per day, if the run has lasted longer than LEAST_S."""
    if not spans or spans[-1].end_s - spans[0].start_s < LEAST_S:
        return ()
    first: dict[str, float] = {}
    sums: dict[str, list[float]] = {}

    def of(at_s: float) -> list[float]:
        day = datetime.fromtimestamp(at_s).date().isoformat()
        first[day] = min(at_s, first.get(day, at_s))
        return sums.setdefault(day, [0.0] * 6)

    for span in spans:
        length = span.end_s - span.start_s
        kind = 1 if span.state == "throttled" else 0 if span.state in AT_WORK else 2
        for at, share in split(span.start_s, span.end_s) if length > 0 else ():
            of(max(at, span.start_s))[kind] += share * length
    for cell in cells:
        drawn = units.joules_to_kwh(cell.joules)
        day = of(max(cell.bin_s, spans[0].start_s))
        day[3] += drawn
        day[4] += drawn * grams_of(cell.bin_s) if grams_of else 0.0
    for decision in decisions:
        of(max(decision.at_s, spans[0].start_s))[5] += 1
    days = sorted(sums)
    energy = rounded([sums[day][3] for day in days], kwh, KWH_DIGITS)
    grams = None if gco2_g is None else rounded([sums[day][4] for day in days], gco2_g, GRAM_DIGITS)
    return tuple(
        DayPart(first[day], flat_s, capped_s, still_s, energy[index], grams[index] if grams else None, int(changes))
        for index, (day, (flat_s, capped_s, still_s, _, _, changes)) in enumerate((day, sums[day]) for day in days)
    )
