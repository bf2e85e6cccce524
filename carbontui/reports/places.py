"""The books of a run by place: its energy and grid rows, and run-now, at each machine that it was on.

A job that never moved has one stay, from minus to plus infinity. What falls into a bin of the accounts that a move cuts
is kept apart by giving the later part the moment of the arrival as its bin.
"""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from carbontui.account import accounts
from carbontui.account.accounts import BIN_S, RunNow, kept
from carbontui.account.places import LeftPlace
from carbontui.account.split import EnergyBin, HalfWidths, Split, StateSpan, Uncertainty, intensity_of, split_avoided
from carbontui.job.files import journal
from carbontui.reports.curves import EnergyRow, GramsOf
from carbontui.reports.uncertainty import GridRow

FOREVER = math.inf


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


def of_books(basis: Mapping[str, Any], books: Mapping[str, Any]) -> list[PlaceRows]:
    """Oldest first; one whose books were lost has no rows, and is left out."""
    found, since_s, before_g = [], -FOREVER, 0.0
    for left in (LeftPlace(*one) for one in books.get("left", ())):
        if left.basis:
            found.append(PlaceRows(since_s, left.until_s, left.basis, before_g))
        since_s, before_g = left.until_s, before_g + (left.gco2_g or 0.0)
    return [*found, PlaceRows(since_s, FOREVER, basis, before_g)]


def energy(
    db: sqlite3.Connection, place_rows: Sequence[PlaceRows], books: Mapping[str, Any], pue: float
) -> list[EnergyRow]:
    """Sums per bin, device, state and metering method, in row order; a journal row never crosses a bin. Joules of
    earlier places are weighed so that `pue` gives those at their wall. Last is what is in no row yet: of a live job, at
    most ten seconds."""
    query = (
        f"select cast(t0 / {BIN_S:.0f} as integer) * {BIN_S}, device, state, how, sum(joules), sum(t1 - t0)"
        f" from energy where {journal.ENERGY_SOUND} and t0 >= ? and t0 < ? group by 1, 2, 3, 4"
    )
    found = []
    for stay in place_rows:
        weight = float(stay.basis.get("pue", pue)) / pue if stay.until_s < FOREVER else 1.0
        rows = db.execute(query, (stay.since_s, stay.until_s))
        found += [
            EnergyRow(max(at, stay.since_s), device, state, how, joules * weight, seconds)
            for at, device, state, how, joules, seconds in rows
        ]
    still_open = (books.get("ledger") or {}).get("open") or {}
    return found + [
        EnergyRow(max(t0 // BIN_S * BIN_S, place_rows[-1].since_s), device, state, how, joules, t1 - t0)
        for device, (t0, t1, joules, how, state) in still_open.items()
    ]


def grams_per_kwh(place_rows: Sequence[PlaceRows], rows: Sequence[GridRow]) -> GramsOf | None:
    """g/kWh of a bin, by the grid of its place; None where nothing is known of a place's."""
    tables = []
    for stay in place_rows:
        own = [(r.start_s, min(r.dur_s, stay.until_s - r.start_s), r.value) for r in rows if of(stay, r.start_s)]
        bins, nowcast = accounts.mean_per_bin(own), stay.basis.get("nowcast_g")
        if not bins and nowcast is None:
            return None
        tables.append(intensity_of(bins, nowcast))
    if len(tables) == 1:
        return tables[0]
    begins = [stay.since_s for stay in place_rows[1:]]
    return lambda at: tables[bisect_right(begins, at)](at)


def of(stay: PlaceRows, at_s: float) -> bool:
    return stay.since_s <= at_s < stay.until_s


def run_now(place_rows: Sequence[PlaceRows]) -> RunNow | None:
    """Of all places; None where that of one is not known."""
    parts = [stay.run_now for stay in place_rows]
    known = [part for part in parts if part is not None]
    if len(parts) != len(known):
        return None
    if len(known) == 1:
        return known[0]
    seconds = math.fsum(part.seconds for part in known)
    joules = math.fsum(part.seconds * part.watts for part in known)
    return RunNow(seconds, joules / seconds if seconds > 0 else 0.0)


def split(
    place_rows: Sequence[PlaceRows],
    cells: Sequence[EnergyBin],
    spans: Sequence[StateSpan],
    steps: Sequence[tuple[float, float]],
    grams_of: GramsOf,
    parked_w: float | None,
    doubt: Uncertainty | None,
) -> Split | None:
    """Avoided CO2 by lever: the sum of the places'; None where run-now of one is not known. `parked_w` is of the last;
    halves of bands of different places are added as independent errors."""
    found = []
    for stay in place_rows:
        flat = stay.run_now
        if flat is None:
            return None
        before = max((count for at, count in steps if at < stay.since_s), default=0.0)
        found.append(
            split_avoided(
                [cell for cell in cells if of(stay, cell.bin_s)],
                [
                    StateSpan(max(span.start_s, stay.since_s), min(span.end_s, stay.until_s), span.state)
                    for span in spans
                    if span.start_s < stay.until_s and span.end_s >= stay.since_s
                ],
                [(at, count - before) for at, count in steps if of(stay, at)],
                stay.of_here(grams_of),
                start_s=stay.start_s,
                done_s=flat.seconds,
                full_w=flat.watts,
                parked_w=parked_w if stay is place_rows[-1] else stay.basis.get("parked_wall_w"),
                before_g=float(stay.basis.get("before_g") or 0.0) - stay.before_g,
                doubt=doubt,
            )
        )
    if len(found) == 1:
        return found[0]
    sums = {one.name: math.fsum(getattr(part, one.name) for part in found) for one in fields(Split)[:-1]}
    halves = [part.halves for part in found if part.halves is not None]
    band = HalfWidths(*(math.hypot(*each) for each in zip(*halves, strict=True))) if len(halves) == len(found) else None
    return Split(**sums, halves=band)
