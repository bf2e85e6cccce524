"""The curves of a run: watts, intensity and grams per column of equal time, and the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from carbontui import units
from carbontui.account import accounts
from carbontui.account.accounts import BIN_S, RunNow

GramsOf = Callable[[float], float]
"""g/kWh of a bin."""
COLUMNS = 480
"""Columns of a chart, whatever the length of the run."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Columns of equal time: mean metered watts (None: no reading), kWh at the wall, g/kWh, and cumulated grams,
    emitted and by run-now."""

    start_s: float
    step_s: float
    kwh: tuple[float, ...]
    watts: tuple[float | None, ...]
    intensity: tuple[float | None, ...]
    emitted_g: tuple[float, ...]
    run_now_g: tuple[float, ...]
    loss: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class EnergyRow:
    bin_s: float
    device: str
    state: str
    how: str
    joules: float
    seconds: float


class AtFullSpeed(Protocol):
    """Run-now at one place, from its start there."""

    @property
    def start_s(self) -> float: ...
    @property
    def run_now(self) -> RunNow | None: ...
    def of_here(self, grams_of: GramsOf) -> GramsOf: ...


def draw(
    rows: list[EnergyRow],
    pue: float,
    bins: Mapping[float, float],
    grams_of: Any,
    steps: list[tuple[float, float, float | None]],
    start_s: float,
    end_s: float,
    at_full_speed: Iterable[AtFullSpeed],
) -> Chart:
    """Whole bins per column; energy booked before the start or after the end goes into the first or last one.
    `at_full_speed`: run-now by place; none where no lever acted."""
    begin = math.floor(start_s / BIN_S) * BIN_S
    step = BIN_S * max(1, math.ceil((end_s - begin) / BIN_S / COLUMNS))
    columns = max(1, math.ceil((end_s - begin) / step))

    def column(at_s: float) -> int:
        return min(columns - 1, max(0, int((at_s - begin) // step)))

    joules, emitted, run_now = [0.0] * columns, [0.0] * columns, [0.0] * columns
    read: list[dict[str, float]] = [{} for _ in range(columns)]
    for row in rows:
        index = column(row.bin_s)
        joules[index] += row.joules * pue
        read[index][row.device] = read[index].get(row.device, 0.0) + row.seconds
        if grams_of is not None:
            emitted[index] += units.joules_to_kwh(row.joules * pue) * grams_of(row.bin_s)
    values: list[list[float]] = [[] for _ in range(columns)]
    for at, value in bins.items():
        if begin <= at < begin + columns * step:
            values[column(at)].append(value)
    for part in at_full_speed:
        flat = part.run_now
        if grams_of is not None and flat is not None and flat.seconds > 0:
            of_here, joules_at_wall = part.of_here(grams_of), flat.watts * flat.seconds
            for at, share in accounts.split(part.start_s, part.start_s + flat.seconds):
                run_now[column(at)] += units.joules_to_kwh(joules_at_wall * share) * of_here(at)
    seconds = [max(found.values(), default=0.0) for found in read]
    losses = [(at, loss) for at, _, loss in steps if loss is not None and math.isfinite(loss)]
    thin = max(1, -(-len(losses) // COLUMNS))
    return Chart(
        start_s=begin,
        step_s=step,
        kwh=tuple(units.joules_to_kwh(amount) for amount in joules),
        watts=tuple(joules[k] / seconds[k] if seconds[k] > 0 else None for k in range(columns)),
        intensity=tuple(math.fsum(found) / len(found) if found else None for found in values),
        emitted_g=tuple(_running(emitted)),
        run_now_g=tuple(_running(run_now)) if any(run_now) else (),
        loss=tuple(losses[::thin]),
    )


def _running(parts: list[float]) -> list[float]:
    total, sums = 0.0, []
    for part in parts:
        total += part
        sums.append(total)
    return sums
