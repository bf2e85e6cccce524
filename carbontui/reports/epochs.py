"""Time, energy and emissions per epoch: the run split where the script reported a new epoch."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from carbontui import units
from carbontui.account.accounts import BIN_S
from carbontui.account.split import EnergyBin
from carbontui.job import journal

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


def parts(
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
    sums = _sums([at for at, _, _ in edges[1:]], cells, grams_of, start_s, end_s)
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


def _sums(
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
