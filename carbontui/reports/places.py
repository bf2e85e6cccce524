"""The books of a run by place: its energy and grid rows, and run-now, at each machine that it was on.

A job that never moved has one stay, from minus to plus infinity. What falls into a bin of the accounts that a move cuts
is kept apart by giving the later part the moment of the arrival as its bin.

The error of the split, too: what its band covers.

- the grid: what a source published as realised is taken as it is; a forecast that stands in for it has the error that
  this machine's forecasts had, else DEFAULT_ERROR; typical days have their own 10th to 90th percentile
- the curve: the mean of the watts at full speed, and of the time a step takes, from how they vary in the journal

The accuracy of sensors (about 5 %) scales energy, grams and avoided CO2 alike, and is reported separately.
"""

import math
import sqlite3
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from carbontui import protocol
from carbontui.account import accounts
from carbontui.account.accounts import BIN_S, RunNow
from carbontui.account.estimate import error_of_mean
from carbontui.account.expected_end import BAND_SIGMAS
from carbontui.account.places import LeftPlace
from carbontui.account.split import EnergyBin, HalfWidths, Split, StateSpan, Uncertainty, intensity_of, split_avoided
from carbontui.grid import typical
from carbontui.grid.truth import SIGMA_PER_MEAN
from carbontui.job.files import journal
from carbontui.reports.parts import EnergyRow, GramsOf, PlaceRows


class GridRow(NamedTuple):
    """A grid value of the account: its interval, gCO2/kWh, and its source."""

    start_s: float
    dur_s: float
    value: float
    kind: str
    source: str


def of_books(basis: Mapping[str, Any], books: Mapping[str, Any]) -> list[PlaceRows]:
    """Oldest first; one whose books were lost has no rows, and is left out."""
    found, since_s, before_g = [], -math.inf, 0.0
    for left in (LeftPlace(*one) for one in books.get("left", ())):
        if left.basis:
            found.append(PlaceRows(since_s, left.until_s, left.basis, before_g))
        since_s, before_g = left.until_s, before_g + (left.gco2_g or 0.0)
    return [*found, PlaceRows(since_s, math.inf, basis, before_g)]


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
        weight = float(stay.basis.get("pue", pue)) / pue if stay.until_s < math.inf else 1.0
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


DEFAULT_ERROR = 0.09
"""Mean absolute error of a published forecast one hour ahead, as a share of the level: Germany 2021, the larger of the
two zones measured (tests/bench/results/forecast.json, "published_as_is")."""
ROWS = 2000
"""The error of the full-speed watts is estimated from this many of the newest rows of full-speed energy."""


def uncertainty(
    db: sqlite3.Connection, status: protocol.Status, rows: Iterable[GridRow], progress: dict[str, Any], steps: int
) -> Uncertainty | None:
    """None where full-speed watts or step times were seen too few times to estimate their error."""
    flat_out_w = _watts_error(db)
    times = [float(time) for time in (progress.get("blocks") or {}).get("times", ())]
    rate = error_of_mean(times) if steps else None
    if flat_out_w is None or rate is None:
        return None
    return Uncertainty(_spread(status, list(rows)), flat_out_w, rate)


def _watts_error(db: sqlite3.Connection) -> float | None:
    """Relative standard error of the watts at full speed of all devices together."""
    query = "select device, joules, t1 - t0 from energy where state = 'running' and t1 > t0 order by rowid desc limit ?"
    watts: dict[str, list[float]] = {}
    for device, joules, seconds in db.execute(query, (ROWS,)):
        watts.setdefault(device, []).append(joules / seconds)
    errors = [(error_of_mean(series[::-1]), statistics.fmean(series)) for series in watts.values()]
    total = math.fsum(mean for _, mean in errors)
    if total <= 0 or any(error is None and mean > 0 for error, mean in errors):
        return None
    return math.sqrt(math.fsum(((error or 0.0) * mean) ** 2 for error, mean in errors)) / total


def _spread(status: protocol.Status, rows: list[GridRow]) -> Callable[[float], float]:
    """Standard deviation of a bin's g/kWh. A bin without a value has the deviation of the values known."""
    measured = min(status.forecast_errors, key=lambda error: error.lead_h, default=None)
    share = SIGMA_PER_MEAN * (DEFAULT_ERROR if measured is None else measured.error)
    zone = status.intensity.zone if status.intensity else None
    days = typical.profile(zone) if zone else None
    known: dict[float, float] = {}
    for row in rows:
        of_days = days is not None and row.source in (days.source, days.unscaled)
        for at, _ in accounts.split(row.start_s, row.start_s + row.dur_s):
            if row.kind == "forecast":
                known[at] = share * row.value
            elif days is not None and of_days:
                _, lo, hi = days.at(at)
                known[at] = (hi - lo) / (2 * BAND_SIGMAS)
            else:
                known[at] = 0.0
    values = [row.value for row in rows]
    otherwise = statistics.pstdev(values) if values else 0.0
    return lambda at: known.get(math.floor(at / BIN_S) * BIN_S, otherwise)
