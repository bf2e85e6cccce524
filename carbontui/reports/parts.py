"""A run's time, energy and emissions by state, device, day and epoch."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from carbontui import units
from carbontui.account.accounts import BIN_S, split
from carbontui.account.split import AT_WORK, EnergyBin, StateSpan
from carbontui.job import journal
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


def by_day(
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
    cells: Sequence[EnergyBin],
    grams_of: Callable[[float], float] | None,
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
    sums = _sums_at([at for at, _, _ in edges[1:]], cells, grams_of, start_s, end_s)
    energy = [0.0, *[round(min(value, kwh), KWH_DIGITS) for value, _ in sums], round(kwh, KWH_DIGITS)]
    total_g = None if gco2_g is None else round(gco2_g, GRAM_DIGITS)
    grams = [0.0, *[round(min(value, gco2_g or 0.0), GRAM_DIGITS) for _, value in sums], total_g or 0.0]
    ends = [(at, step) for at, _, step in edges[1:]] + [(end_s, steps)]
    found = []
    for index, ((at, number, step), (until, done)) in enumerate(zip(edges, ends, strict=True)):
        last = next((loss for when, _, loss in reversed(losses) if when <= until and loss is not None), None)
        emitted = None if total_g is None else round(grams[index + 1] - grams[index], GRAM_DIGITS)
        used = round(energy[index + 1] - energy[index], KWH_DIGITS)
        following = marks[index][1] if index < len(marks) else None
        through = None if number is None or following is None or following <= number + 1 else following - 1
        part = EpochPart(number, at, max(at, until), max(0, done - step), used, emitted, last, through)
        if number is not None or used > 0 or part.end_s > part.start_s:
            found.append(part)
    return tuple(found)


def _sums_at(
    times: Sequence[float],
    cells: Sequence[EnergyBin],
    grams_of: Callable[[float], float] | None,
    start_s: float,
    end_s: float,
) -> list[tuple[float, float]]:
    """(kWh, grams) from the run's start to each of the rising `times`; bins end with the run."""
    joules: dict[float, float] = {}
    for cell in cells:
        joules[cell.bin_s] = joules.get(cell.bin_s, 0.0) + cell.joules
    bins = sorted(joules.items())
    found, index, kwh, grams = [], 0, 0.0, 0.0
    for at in times:
        while index < len(bins) and bins[index][0] + BIN_S <= at:
            begin, amount = bins[index]
            kwh += units.joules_to_kwh(amount)
            grams += units.joules_to_kwh(amount) * (grams_of(begin) if grams_of else 0.0)
            index += 1
        share_kwh = 0.0
        if index < len(bins) and bins[index][0] < at:
            begin, amount = bins[index]
            first = max(begin, start_s)
            share_kwh = units.joules_to_kwh(amount) * min(
                1.0, max(0.0, (at - first) / max(1e-9, min(begin + BIN_S, end_s) - first))
            )
        more_g = share_kwh * (grams_of(bins[index][0]) if grams_of and share_kwh else 0.0)
        found.append((kwh + share_kwh, grams + more_g))
    return found


def rounded(values: Sequence[float], total: float, digits: int) -> list[float]:
    """Parts of a total as differences of rounded sums: printed, they add up to the printed total."""
    sums, running = [0.0], 0.0
    for value in values:
        running += value
        sums.append(round(running, digits))
    if values:
        sums[-1] = round(total, digits)
    return [round(b - a, digits) for a, b in pairwise(sums)]
