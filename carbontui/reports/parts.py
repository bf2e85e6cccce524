"""A run's time, energy and emissions by state, device, day, epoch, and column of a chart."""

from __future__ import annotations

import json
import math
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

from carbontui import units
from carbontui.account import accounts
from carbontui.account.accounts import BIN_S, RunNow, kept, split
from carbontui.account.boundary import IDLE
from carbontui.account.split import EnergyBin, StateSpan
from carbontui.job.files import journal
from carbontui.units import joules_to_kwh

Key = TypeVar("Key", bound=Hashable)
GramsOf = Callable[[float], float]
"""g/kWh of a bin."""


def summed(amounts: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """The sum by key."""
    found: dict[Key, float] = {}
    for key, amount in amounts:
        found[key] = found.get(key, 0.0) + amount
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """The totals of one state, device or day."""

    name: str
    seconds: float
    kwh: float
    gco2_g: float | None


def kind_of(device: str) -> str:
    """cpu (with all else of a host), ram or gpu, of 'cpu@n2', 'host', 'dram', 'GPU-a', and 'idle@GPU-a'."""
    name = device.removeprefix(f"{IDLE}@").partition("@")[0]
    return {"cpu": "cpu", "host": "cpu", "dram": "ram"}.get(name, "gpu")


def cells(rows: list[EnergyRow], pue: float) -> list[EnergyBin]:
    drawn = summed(((row.bin_s, row.state), row.joules * pue) for row in rows)
    return [EnergyBin(at, state, joules) for (at, state), joules in sorted(drawn.items())]


def by_name(
    drawn: Sequence[tuple[str, float, float]], seconds: Mapping[str, float], grams_of: GramsOf | None
) -> tuple[Part, ...]:
    """A part per state or device, most energy first, of what was `drawn`: its name, its bin, and joules at the wall."""
    joules = summed((name, amount) for name, _, amount in drawn)
    grams = summed((name, _grams(at, amount, grams_of)) for name, at, amount in drawn)
    names = sorted(dict.fromkeys((*joules, *seconds)), key=lambda name: -joules.get(name, 0.0))
    return tuple(
        Part(n, seconds.get(n, 0.0), joules_to_kwh(joules.get(n, 0.0)), grams.get(n, 0.0) if grams_of else None)
        for n in names
        if seconds.get(n, 0.0) > 0 or joules.get(n, 0.0) > 0
    )


def _grams(at_s: float, joules: float, grams_of: GramsOf | None) -> float:
    return joules_to_kwh(joules) * grams_of(at_s) if grams_of else 0.0


LEAST_S = 2 * 86400.0
"""A shorter run has no daily table."""


def by_day(cells: Sequence[EnergyBin], spans: Sequence[StateSpan], grams_of: GramsOf | None) -> tuple[Part, ...]:
    """A part per local calendar day, if the run has lasted longer than LEAST_S."""
    if not spans or spans[-1].end_s - spans[0].start_s < LEAST_S:
        return ()
    lived = (
        (at, share * (span.end_s - span.start_s)) for span in spans for at, share in split(span.start_s, span.end_s)
    )
    drawn = [(_day(cell.bin_s), cell.bin_s, cell.joules) for cell in cells]
    found = by_name(drawn, summed((_day(at), seconds) for at, seconds in lived), grams_of)
    return tuple(sorted(found, key=lambda part: part.name))


def _day(at_s: float) -> str:
    return units.iso(at_s + units.local_offset_s(at_s))[:10]


KWH_DIGITS, GRAM_DIGITS = 9, 6
"""As `status --json` rounds them."""


class EpochPart(NamedTuple):
    """One epoch, or (number None) the time before the first. kWh and grams are the differences of rounded sums, so that
    they add up to the run's totals to the last digit. `loss` is the last one reported before its end."""

    number: int | None
    start_s: float
    end_s: float
    steps: int
    kwh: float
    gco2_g: float | None
    loss: float | None
    last: int | None = None
    """The last epoch in it, where several began too close together to be separated."""


def begins(db: sqlite3.Connection) -> list[tuple[float, int, int]]:
    """(at, number, steps done) of every epoch started; one that was started again counts from its last start."""
    found: dict[int, tuple[float, int, int]] = {}
    for at, text in db.execute(f"select at, data from event where kind='epoch' and {journal.AT_SOUND} order by rowid"):
        try:
            facts: dict[str, Any] = json.loads(text)
            number, step = int(facts["number"]), int(facts["step"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        # a run that resumes from an older checkpoint repeats its later epochs
        found = {known: entry for known, entry in found.items() if known < number}
        found[number] = (at, number, step)
    return list(found.values())


def by_epoch(
    marks: Sequence[tuple[float, int, int]],
    cells: Iterable[EnergyBin],
    grams_of: GramsOf | None,
    losses: Sequence[tuple[float, float, float | None]],
    *,
    start_s: float,
    end_s: float,
    steps: int,
    kwh: float,
    gco2_g: float | None,
) -> tuple[EpochPart, ...]:
    """A part per epoch in `marks`. Energy is known in bins of five minutes and shared within one by time."""
    if not marks:
        return ()
    edges: list[tuple[float, int | None, int]] = [(start_s, None, 0), *marks]
    begun = [at for at, _, _ in edges]
    drawn, emitted = [0.0] * len(edges), [0.0] * len(edges)
    for cell in cells:
        # bins begin and end with the run
        for index, share in _shares(max(cell.bin_s, start_s), min(cell.bin_s + BIN_S, end_s), begun):
            drawn[index] += share * joules_to_kwh(cell.joules)
            emitted[index] += share * _grams(cell.bin_s, cell.joules, grams_of)
    energy = rounded(drawn, kwh, KWH_DIGITS)
    grams = None if gco2_g is None else rounded(emitted, gco2_g, GRAM_DIGITS)
    found = []
    following = [*marks, (end_s, None, steps)]
    for index, ((at, number, step), (until, after, done)) in enumerate(zip(edges, following, strict=True)):
        loss = next((loss for when, _, loss in reversed(losses) if when <= until and loss is not None), None)
        through = None if number is None or after is None or after <= number + 1 else after - 1
        part_g = grams[index] if grams else None
        part = EpochPart(number, at, max(at, until), max(0, done - step), energy[index], part_g, loss, through)
        if number is not None or part.kwh > 0 or part.end_s > part.start_s:
            found.append(part)
    return tuple(found)


def _shares(since_s: float, until_s: float, begun: Sequence[float]) -> list[tuple[int, float]]:
    """(index, share) of the epochs that a time falls into; `begun` are their rising begins."""
    first = max(0, bisect_right(begun, since_s) - 1)
    if until_s <= since_s:
        return [(first, 1.0)]
    cuts = [since_s, *begun[first + 1 : bisect_left(begun, until_s)], until_s]
    return [(first + n, (b - a) / (until_s - since_s)) for n, (a, b) in enumerate(pairwise(cuts))]


def rounded(values: Sequence[float], total: float, digits: int) -> list[float]:
    """Parts of a total as differences of rounded sums: printed, they add up to the printed total."""
    sums = [0.0, *(round(min(running, total), digits) for running in accumulate(values))]
    if values:
        sums[-1] = round(total, digits)
    return [round(b - a, digits) for a, b in pairwise(sums)]


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


class PlaceRows(NamedTuple):
    """A time at one machine, [since, until) on the job's clock, and the basis that the journal kept of it."""

    since_s: float
    until_s: float
    basis: Mapping[str, Any]
    before_g: float = 0.0
    """What was emitted at the machines before it."""

    @property
    def start_s(self) -> float:
        return max(self.since_s, float(self.basis["start_s"]))

    @property
    def run_now(self) -> RunNow | None:
        """None where it is not known."""
        return kept(self.basis)

    def of_here(self, grams_of: GramsOf) -> GramsOf:
        """By the grid of this place, also for the parts of bins that its begin and end cut."""
        return lambda at: grams_of(max(self.since_s, min(at, self.until_s - 1.0)))


def draw(
    rows: list[EnergyRow],
    pue: float,
    bins: Mapping[float, float],
    grams_of: Any,
    steps: list[tuple[float, float, float | None]],
    start_s: float,
    end_s: float,
    at_full_speed: Iterable[PlaceRows],
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
        emitted[index] += _grams(row.bin_s, row.joules * pue, grams_of)
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
        emitted_g=tuple(accumulate(emitted)),
        run_now_g=tuple(accumulate(run_now)) if any(run_now) else (),
        loss=tuple(losses[::thin]),
    )
