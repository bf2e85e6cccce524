"""Forecasts as known at a past time: published ones with their error at that hour, and our own.

Nothing that begins later than the first edge (now) is read. Of a late grid (`Grid.lateness_s`), only values that had
ended that long before now are known; else even the value of the data's own step in which now lies, and of a longer slot
no more than that step.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from carbontui.assumed.job import Grid
from carbontui.grid import prices, recorded
from carbontui.grid.compose import NOWCAST_FADE
from carbontui.grid.issues import Issue
from carbontui.plan.problem import ProblemError
from carbontui.units import from_iso

PLAIN_ERROR = 0.1
"""Standard error of a published forecast as a share of its value, where nothing is known of it."""
ISSUES_S = 28 * 86400.0
"""The forecaster gets the published issues of this long before now."""
BAND = 2.563
"""Standard deviations in an 80 % band."""
PUBLISHED_AT_S = 18 * 3600.0
"""Second of the UTC day from which tomorrow's day-ahead prices are known, everywhere."""
REFIT_S = 28 * 86400.0
"""The forecaster is fitted again after this long."""
GIVEN_MOST = 4096
"""Forecasts kept: several policies look from the same hour."""
LEAST_HISTORY_S = 60 * 86400.0
"""The least history on which the forecaster is fitted."""


def issue_value(issue: Issue, moment: float) -> float:
    """gCO2/kWh at `moment` (epoch seconds), each value up to the next; past the issue's end, the same hour of its last
    day."""
    starts = issue["times_s"]
    while moment >= starts[-1] + 3600.0 and len(starts) >= 24:
        moment -= 86400.0
    return issue["values"][max(0, bisect_right(starts, moment) - 1)]


ISSUED = itemgetter("issued_at_s")


class Predictor(Protocol):
    """Expected gCO2/kWh of each slot between `edges` (epoch seconds; one value fewer), as known at `edges[0]`."""

    def __call__(self, edges: Sequence[float]) -> list[float]: ...

    def spread(self, edges: Sequence[float]) -> list[float]:
        """One standard deviation of each."""


def load_issues(path: str | Path) -> list[Issue]:
    """Read CSV `issue_utc,target_utc,forecast[,...]`, plain or .gz; sorted by time of issue. Raises ProblemError naming
    the line."""
    rows: dict[float, dict[float, float]] = {}
    try:
        head, *lines = recorded.lines_of(Path(path)) or [[]]
    except ValueError as error:
        raise ProblemError("issued", str(error)) from None
    if not {"issue_utc", "target_utc", "forecast"} <= set(head):
        raise ProblemError("issued", f"{path} needs the columns issue_utc,target_utc,forecast")
    for number, cells in filter(itemgetter(1), enumerate(lines, 2)):
        row = dict(zip(head, cells, strict=False))
        try:
            value = float(row["forecast"])
            if not 0 <= value < 5000:
                raise ValueError(f"{value} is not an intensity in gCO2/kWh")
            rows.setdefault(from_iso(row["issue_utc"]), {})[from_iso(row["target_utc"])] = value
        except (ValueError, LookupError) as error:
            raise ProblemError("issued", f"{path} line {number}: {error}") from None
    if not rows:
        raise ProblemError("issued", f"{path} has no rows")
    return [
        Issue(issued_at_s=at, times_s=sorted(said), values=[said[t] for t in sorted(said)])
        for at, said in sorted(rows.items())
    ]


class PublishedForecast:
    """The last issue before now; its current error is carried forward and fades by the hour."""

    def __init__(self, grid: Grid, issues: list[Issue]) -> None:
        self.grid, self.issues = grid, issues

    def __call__(self, edges: Sequence[float]) -> list[float]:
        now = self.grid.newest_s(edges[0])
        issue, said = (self.issues[max(0, bisect_right(self.issues, t, key=ISSUED) - 1)] for t in (edges[0], now))
        error = self.grid.at(now) - issue_value(said, now)

        def ahead(a: float, b: float) -> float:
            middle = (a + b) / 2
            return max(0.0, issue_value(issue, middle) + error * math.pow(NOWCAST_FADE, (middle - now) / 3600))

        return _beside_present(self.grid, edges, ahead)

    def spread(self, edges: Sequence[float]) -> list[float]:
        """An issue says nothing of its error: `PLAIN_ERROR` of each value."""
        return [PLAIN_ERROR * value for value in self(edges)]


Mean = Callable[[float, float], float]
"""Of an interval, epoch seconds."""


def _beside_known(edges: Sequence[float], end: float, known: Mean, ahead: Mean) -> list[float]:
    """Mean of each slot: `known` up to `end`, beyond it `ahead`."""
    out = []
    for a, b in itertools.pairwise(edges):
        known_s = max(0.0, min(b, end) - a)
        past = known(a, a + known_s) * known_s if known_s else 0.0
        rest = ahead(max(a, end), b) * (b - a - known_s) if b > end else 0.0
        out.append((past + rest) / (b - a))
    return out


def _beside_present(grid: Grid, edges: Sequence[float], ahead: Mean) -> list[float]:
    """The same with the value of the step in which now lies, where it is known, as far as it reaches."""
    present, end = grid.at(edges[0]), edges[0] if grid.lateness_s else grid.end_of_step(edges[0])
    return _beside_known(edges, end, lambda a, b: present, ahead)


class OwnForecast:
    """carbontui's own forecaster, fitted on past values only, again every four weeks. `signed`: values may be
    negative, as prices are."""

    def __init__(self, grid: Grid, issues: Sequence[Issue] = (), *, signed: bool = False) -> None:
        self.grid, self.issues, self.signed = grid, issues, signed
        self.model: Any = None
        self.fitted_s = float("-inf")
        self.given: dict[float, tuple[list[float], list[float]]] = {}

    def __call__(self, edges: Sequence[float]) -> list[float]:
        return _beside_present(self.grid, edges, self.ahead(self._begin(edges[0]), edges[-1]))

    def _begin(self, now: float) -> float:
        """When the forecast begins: with the current step, or with the next one where its value is known."""
        return self.grid.end_of_step(now) - (self.grid.step_s if self.grid.lateness_s else 0.0)

    def spread(self, edges: Sequence[float]) -> list[float]:
        """Half of the 80 % band, in standard deviations; none of what is known."""
        begin = self._begin(edges[0])
        width = self.ahead(begin, edges[-1], 1)
        return [width(max(a, begin), b) if b > begin else 0.0 for a, b in itertools.pairwise(edges)]

    def ahead(self, begin: float, end: float, row: int = 0) -> Mean:
        """The mean forecast (row 1: its standard deviation) over an interval, as known at `begin`."""
        step, values = self.grid.step_s, self._forecast(begin, end)[row]

        def mean(a: float, b: float) -> float:
            low = min(int((a - begin) // step), len(values) - 1)
            steps = values[low : max(low + 1, math.ceil((b - begin) / step - 1e-9))]
            return math.fsum(steps) / len(steps)

        return mean

    def _forecast(self, begin: float, end: float) -> tuple[list[float], list[float]]:
        if begin in self.given and begin + len(self.given[begin][0]) * self.grid.step_s >= end:
            return self.given[begin]
        from carbontui.grid.forecast import Forecaster

        until = bisect_right(self.grid.starts, self.grid.newest_s(begin) - (not self.grid.lateness_s))
        if self.model is None or not 0 <= begin - self.fitted_s < REFIT_S:
            self.model = Forecaster.fit(self.grid.starts[:until], self.grid.values[:until], signed=self.signed)
            self.fitted_s = begin
        since = max(0, until - int(5 * 7 * 86400 / self.grid.step_s))
        low, high = (bisect_right(self.issues, until_s, key=ISSUED) for until_s in (begin - ISSUES_S, begin))
        found = self.model.predict(
            begin,
            self.grid.starts[since:until],
            self.grid.values[since:until],
            int((end - begin) // self.grid.step_s) + 2,
            self.issues[low:high],
        )
        if len(self.given) >= GIVEN_MOST:
            self.given.clear()
        self.given[begin] = found.mean.tolist(), ((found.hi - found.lo) / BAND).tolist()
        return self.given[begin]


class DayAhead:
    """Prices as a day-ahead market publishes them: all of today's, tomorrow's from 18:00 UTC, and beyond those our own
    forecast, or the same time of the last known day where the history is too short to learn from. Those of a `tariff`
    are known for all time."""

    def __init__(self, grid: Grid, tariff: bool = False) -> None:
        self.grid, self.tariff = grid, tariff
        self.own = OwnForecast(grid, signed=True)

    def __call__(self, edges: Sequence[float]) -> list[float]:
        end = self._published(edges[0])
        return _beside_known(edges, end, self.grid.mean, self._ahead(end, edges[-1]))

    def spread(self, edges: Sequence[float]) -> list[float]:
        """None of the published prices; beyond them the forecast's."""
        end = self._published(edges[0])
        width = self.own.ahead(end, edges[-1], 1) if self._learns(end) and edges[-1] > end else None
        return [width(max(a, end), b) if width and b > end else 0.0 for a, b in itertools.pairwise(edges)]

    def _published(self, now: float) -> float:
        return self.grid.end_s if self.tariff else min(self.grid.end_s, prices.published_until_s(now, PUBLISHED_AT_S))

    def _learns(self, end: float) -> bool:
        return end - self.grid.start_s >= LEAST_HISTORY_S

    def _ahead(self, end: float, until: float) -> Mean:
        if self._learns(end) and until > end:
            return self.own.ahead(end, until)

        def day_before(a: float, b: float) -> float:
            back = math.ceil((b - end) / 86400) * 86400
            return self.grid.mean(a - back, b - back)

        return day_before
