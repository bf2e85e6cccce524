"""A run's energy and time by state and by device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from carbontui import units
from carbontui.account.split import EnergyBin, StateSpan
from carbontui.reports.curves import EnergyRow


@dataclass(frozen=True, slots=True)
class Part:
    """The totals of one state or device."""

    name: str
    seconds: float
    kwh: float
    gco2_g: float | None


def cells(rows: list[EnergyRow], pue: float) -> list[EnergyBin]:
    found: dict[tuple[float, str], float] = {}
    for row in rows:
        key = (row.bin_s, row.state)
        found[key] = found.get(key, 0.0) + row.joules * pue
    return [EnergyBin(at, state, joules) for (at, state), joules in sorted(found.items())]


def seconds(spans: list[StateSpan]) -> dict[str, float]:
    found: dict[str, float] = {}
    for span in spans:
        found[span.state] = found.get(span.state, 0.0) + span.end_s - span.start_s
    return found


def by_state(cells: list[EnergyBin], seconds: dict[str, float], grams_of: Any) -> tuple[Part, ...]:
    joules: dict[str, float] = {}
    grams: dict[str, float] = {}
    for cell in cells:
        joules[cell.state] = joules.get(cell.state, 0.0) + cell.joules
        if grams_of is not None:
            grams[cell.state] = grams.get(cell.state, 0.0) + units.joules_to_kwh(cell.joules) * grams_of(cell.bin_s)
    names = sorted({*seconds, *joules}, key=lambda name: -joules.get(name, 0.0))
    return tuple(
        Part(n, seconds.get(n, 0.0), units.joules_to_kwh(joules.get(n, 0.0)), grams.get(n, 0.0) if grams_of else None)
        for n in names
        if seconds.get(n, 0.0) > 0 or joules.get(n, 0.0) > 0
    )


def by_device(rows: list[EnergyRow], pue: float, grams_of: Any) -> tuple[Part, ...]:
    """Per device at the wall: its share of the PUE is in its own line, so that the lines add up."""
    found: dict[str, list[float]] = {}
    for row in rows:
        sums = found.setdefault(row.device, [0.0, 0.0, 0.0])
        sums[0] += row.seconds
        sums[1] += row.joules * pue
        sums[2] += units.joules_to_kwh(row.joules * pue) * grams_of(row.bin_s) if grams_of else 0.0
    ordered = sorted(found.items(), key=lambda item: -item[1][1])
    return tuple(
        Part(name, seconds, units.joules_to_kwh(joules), grams if grams_of else None)
        for name, (seconds, joules, grams) in ordered
    )
