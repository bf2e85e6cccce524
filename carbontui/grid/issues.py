"""What the worker forecasts from and answers; the recent issues of a source's forecast, by which the blend weighs the
published forecast against our own.

The issues are kept in the machine's cache, so that a restarted supervisor does not start again from the blend's prior.
"""

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias, TypedDict

from carbontui.grid.types import Series

KEPT_S = 30 * 86400.0
"""The four weeks on which the blend compares the two, and the two days that issues reach ahead."""
APART_S = 6 * 3600.0
VALUES_MAX = 60_000
"""Values of all issues together; keeps the file below about 1.5 MB."""


class Issue(TypedDict):
    """A forecast as it was published: one value per time."""

    issued_at_s: float
    times_s: list[float]
    values: list[float]


Issues: TypeAlias = list[Issue]


class History(TypedDict):
    """Values of equal slots from `start_s` on; `now_s` is the start of the first slot to be forecast."""

    now_s: float
    start_s: float
    step_s: float
    values: list[float | None]
    horizon: int


class ForecastRequest(History, total=False):
    """`typical`: the feed's expectation of each slot; `signed`: values below zero are valid; `key` names the series."""

    typical: list[float | None]
    published: Issues
    signed: bool
    key: str


class ForecastAnswer(TypedDict):
    """By slot from `now_s` on: mean, and the 80 % band."""

    now_s: float
    step_s: float
    mean: list[float]
    lo: list[float]
    hi: list[float]
    provenance: str


Column = Literal["mean", "lo", "hi"]
COLUMNS: tuple[Column, ...] = ("mean", "lo", "hi")


def issue_of(forecast: Series, now_s: float) -> Issue:
    """A forecast as an issue; issued when it was fetched where the source does not say."""
    issued_s = forecast.generated_at_s or forecast.fetched_at_s or now_s
    # rows of older issues may precede it
    rows = [row for row in forecast.rows if row.end_s > issued_s]
    return {"issued_at_s": issued_s, "times_s": [r.start_s for r in rows], "values": [r.value for r in rows]}


def merged(some: Iterable[Issue], now_s: float) -> Issues:
    """Each issue once, in order of time: the newest, and one per six hours of the weeks before it. Raises ValueError
    for one whose times and values do not match."""
    by_time: dict[float, Issue] = {}
    for issue in some:
        if len(issue["times_s"]) != len(issue["values"]):
            raise ValueError("not an issue of a forecast")
        if now_s - KEPT_S < issue["issued_at_s"]:
            by_time[issue["issued_at_s"]] = issue
    kept: Issues = []
    last_s = -math.inf
    for issued_s in sorted(by_time):
        if issued_s - last_s >= APART_S or issued_s == max(by_time):
            kept.append(by_time[issued_s])
            last_s = issued_s
    held, first = 0, len(kept)
    while first > 0 and (first == len(kept) or held + len(kept[first - 1]["values"]) <= VALUES_MAX):
        first -= 1
        held += len(kept[first]["values"])
    return kept[first:]
