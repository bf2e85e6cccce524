"""Forecasts as known at a past time: published ones with their error at that hour, and our own.

Nothing later than the first edge (now) is read, except that the value of the current slot counts as known, as in a
live feed.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Protocol

from carbontui.backtest.assumed_job import Grid
from carbontui.grid import recorded
from carbontui.grid.issues import Issue
from carbontui.plan.problem import ProblemError
from carbontui.units import from_iso

NOWCAST_FADE = 0.9
"""Share of a published forecast's current error that remains an hour later, measured on the CarbonCast data set."""
ISSUES_S = 28 * 86400.0
"""The forecaster gets the published issues of this long before now."""
REFIT_S = 28 * 86400.0
"""The forecaster is fitted again after this long."""
LEAST_HISTORY_S = 60 * 86400.0
"""The least history on which the forecaster is fitted."""


@dataclass(frozen=True, slots=True)
class ForecastIssue:
    """A published forecast, gCO2/kWh: `values[i]` holds from `starts[i]` (epoch seconds) to the next start."""

    issued_s: float
    starts: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, moment: float) -> float:
        """gCO2/kWh at `moment` (epoch seconds); past the issue's end, the same hour of its last day."""
        end = self.starts[-1] + 3600.0
        while moment >= end and len(self.starts) >= 24:
            moment -= 86400.0
        return self.values[max(0, bisect_right(self.starts, moment) - 1)]


ISSUED = attrgetter("issued_s")


class Predictor(Protocol):
    """Expected gCO2/kWh of each slot between `edges` (epoch seconds; one value fewer), as known at `edges[0]`."""

    def __call__(self, edges: Sequence[float]) -> list[float]: ...


def load_issues(path: str | Path) -> list[ForecastIssue]:
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
        ForecastIssue(at, tuple(sorted(said)), tuple(said[t] for t in sorted(said)))
        for at, said in sorted(rows.items())
    ]


class PublishedForecast:
    """The last issue before now; with `nowcast` its current error is carried forward and fades by the hour."""

    def __init__(self, grid: Grid, issues: list[ForecastIssue], nowcast: bool = True) -> None:
        self.grid, self.issues, self.nowcast = grid, issues, nowcast

    def __call__(self, edges: Sequence[float]) -> list[float]:
        now = edges[0]
        issue = self.issues[bisect_right(self.issues, now, key=ISSUED) - 1]
        present = self.grid.mean(now, edges[1])
        error = present - issue.at(now) if self.nowcast else 0.0
        middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
        said = [max(0.0, issue.at(t) + error * NOWCAST_FADE ** ((t - now) / 3600)) for t in middles]
        return [present, *said[1:]]


class OwnForecast:
    """carbontui's own forecaster, fitted on past values only, again every four weeks."""

    def __init__(self, grid: Grid, issues: list[ForecastIssue]) -> None:
        self.grid, self.issues = grid, issues
        self.model: Any = None
        self.fitted_s = float("-inf")
        self.given: dict[float, tuple[float, list[float]]] = {}

    def __call__(self, edges: Sequence[float]) -> list[float]:
        step = self.grid.step_s
        now = edges[0]
        # the current step is known: the forecast begins with the next one
        begin = (now // step + 1) * step
        first, values = self._forecast(begin, edges[-1])
        present = self.grid.mean(now, edges[1])
        out = []
        for a, b in itertools.pairwise(edges):
            index = int(((a + b) / 2 - first) // step)
            out.append(present if index < 0 else max(0.0, values[min(index, len(values) - 1)]))
        return [present, *out[1:]]

    def _forecast(self, begin: float, end: float) -> tuple[float, list[float]]:
        if begin in self.given and begin + len(self.given[begin][1]) * self.grid.step_s >= end:
            return self.given[begin]
        from carbontui.grid.forecast import Forecaster

        until = bisect_right(self.grid.starts, begin - 1.0)
        if self.model is None or not 0 <= begin - self.fitted_s < REFIT_S:
            self.model = Forecaster.fit(self.grid.starts[:until], self.grid.values[:until])
            self.fitted_s = begin
        since = max(0, until - int(5 * 7 * 86400 / self.grid.step_s))
        low, high = (bisect_right(self.issues, until_s, key=ISSUED) for until_s in (begin - ISSUES_S, begin))
        found = self.model.predict(
            begin,
            self.grid.starts[since:until],
            self.grid.values[since:until],
            int((end - begin) // self.grid.step_s) + 2,
            [
                Issue(issued_at_s=one.issued_s, times_s=list(one.starts), values=list(one.values))
                for one in self.issues[low:high]
            ],
        )
        self.given = {begin: (begin, [float(value) for value in found.mean])}
        return self.given[begin]
