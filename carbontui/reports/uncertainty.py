"""The uncertainty of a run's figures: the errors covered by the band of avoided CO2, from its journal.

- the grid: what a source published as realised is taken as it is; a forecast that stands in for it has the error that
  this machine's forecasts had, else DEFAULT_ERROR; typical days have their own 10th to 90th percentile
- the curve: the mean of the watts at full speed, and of the time a step takes, from how they vary in the journal

The accuracy of sensors (about 5 %) scales energy, grams and avoided CO2 alike, and is reported separately.
"""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from carbontui import protocol
from carbontui.account import accounts
from carbontui.account.accounts import BIN_S
from carbontui.account.estimate import error_of_mean
from carbontui.account.expected_end import BAND_SIGMAS
from carbontui.account.split import Uncertainty
from carbontui.grid import typical

DEFAULT_ERROR = 0.09
"""Mean absolute error of a published forecast one hour ahead, as a share of the level: Germany 2021, the larger of the
two zones measured (tests/bench/results/forecast.json, "published_as_is")."""
SIGMA_PER_MEAN = 1.2533
"""Standard deviation over mean absolute deviation of a normal distribution: sqrt(pi / 2)."""
ROWS = 2000
"""The error of the full-speed watts is estimated from this many of the newest rows of full-speed energy."""


class GridRow(NamedTuple):
    """A grid value of the account: its interval, gCO2/kWh, and its source."""

    start_s: float
    dur_s: float
    value: float
    kind: str
    source: str


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
        of_days = days is not None and row.source == days.source
        for at, _ in accounts.split(row.start_s, row.start_s + row.dur_s):
            if row.kind == "forecast":
                known[at] = share * row.value
            elif days is not None and of_days:
                _, lo, hi = days.at(at)
                known[at] = 0.0 if lo is None or hi is None else (hi - lo) / (2 * BAND_SIGMAS)
            else:
                known[at] = 0.0
    values = [row.value for row in rows]
    otherwise = statistics.pstdev(values) if values else 0.0
    return lambda at: known.get(math.floor(at / BIN_S) * BIN_S, otherwise)
