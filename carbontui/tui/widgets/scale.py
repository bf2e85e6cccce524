"""Axes: the window of time two charts share, and round numbers for their scales."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

from carbontui import units
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette

GUTTER = 6
"""Cells left of a chart for its scale."""
_LABEL_EVERY_S = (60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


class TimeScale(Struct, frozen=True):
    """Columns of equal time: column c covers [start_s + c*span_s, +span_s). It stays fixed; now moves through it."""

    start_s: float
    span_s: float
    columns: int

    def column(self, at_s: float) -> int:
        return math.floor((at_s - self.start_s) / self.span_s)

    def time(self, column: int) -> float:
        return self.start_s + column * self.span_s

    @property
    def end_s(self) -> float:
        return self.time(self.columns)


def window(view_state: ViewState, columns: int) -> TimeScale:
    """The whole job from its start to its deadline, or where the picture is zoomed the work alone; without a plan, the
    span of the grid data."""
    now, plan, budget, series = view_state.now_s, view_state.plan, view_state.status.budget, view_state.series
    band, over = series.intensity, view_state.over
    begun = [series.watts.start] if series.watts else []
    begun += [budget.start] if budget and not over else []
    start, end = min([now, *map(units.from_iso, begun)]), now
    if over:
        pass  # nothing lies ahead
    elif plan is not None:
        end = max(end, units.from_iso(plan.deadline), units.from_iso(plan.finish))
    elif budget is not None and budget.deadline is not None:
        end = max(end, units.from_iso(budget.deadline))
    elif band is not None:
        end = max(end, min(units.from_iso(band.start) + len(band.mean_g) * band.step_s, now + 24 * 3600))
    frontier = view_state.frontier
    if view_state.zoomed and plan is not None:
        # the work with a margin, in coarse steps so that the axis stays
        done = units.from_iso(plan.finish)
        end = now + math.ceil(max(1800.0, (done - now) * 1.15) / 900.0) * 900.0
    elif frontier and frontier.points and budget is not None and not over:
        # room for every budget on the slider, so that moving it never moves the axis
        end = max(end, units.from_iso(budget.start) + frontier.points[-1].finish_s)
    whole = max(end - start, 60.0)
    columns = max(1, columns)
    # a coarse grain, so that a deadline moved by minutes does not move the axis
    exact = whole / columns
    grain = next((g for g in (1, 5, 60, 300) if exact <= g * 12), 300)
    span = float(math.ceil(exact / grain) * grain)
    return TimeScale(math.floor(start / span) * span, span, columns)


@lru_cache(maxsize=16)
def means(values: tuple[float | None, ...], start_s: float, step_s: float, view: TimeScale) -> tuple[float | None, ...]:
    """The mean of a stepwise series in each column; None where nothing is known. Kept, since a forecast is the same for
    many pictures."""
    edges = map(view.time, range(view.columns + 1))
    return tuple(units.mean_over(values, start_s, step_s, begin, end) for begin, end in pairwise(edges))


def bars(values: Sequence[float | None], most: int, ends: tuple[float, float] | None = None) -> str:
    """One row of at most `most` bars, each the mean of an equal share of the values; blank where nothing is known. The
    scale is between `ends`, else from the lowest to the highest bar."""
    count, tall = min(most, len(values)), []
    for cell in range(count):
        part = values[round(cell * len(values) / count) : round((cell + 1) * len(values) / count)]
        known = [value for value in part if value is not None]
        tall.append(sum(known) / len(known) if known else None)
    drawn = [value for value in tall if value is not None]
    low, high = ends or (min(drawn, default=0.0), max(drawn, default=0.0))
    shares = [None if v is None else max(0.0, min(1.0, (v - low) / ((high - low) or 1.0))) for v in tall]
    return "".join(" " if share is None else palette.BAR[1 + round(share * 7)] for share in shares)


def nice_top(value: float, rows: int = 1, base: float = 0.0) -> float:
    """The top of a scale that reaches `value` over so many rows, each of the same round size: 1, 1.5, 2, 3, 4, 5, 6, 8
    times a power of ten, and the top a multiple of ten of what is large."""
    if value <= base:
        return base + (10.0 if base else 1.0) * rows
    # a hundred times the least power is round
    power = max(10.0 ** math.floor(math.log10((value - base) / rows)), 0.1 if value >= 20 else 0.0)
    tops = (base + rows * m * power * more for more in (1, 10, 100) for m in (1, 1.5, 2, 3, 4, 5, 6, 8))
    return next(top for top in tops if top >= value * 0.9999 and (value < 20 or is_round(top)))


def is_round(value: float) -> bool:
    return abs(value - round(value, -1)) < 1e-6


def nice_base(value: float) -> float:
    """The next multiple of 50 at or below, or of 10 for less."""
    step = 50.0 if value >= 100.0 else 10.0
    return math.floor(value / step) * step


@lru_cache(maxsize=64)
def hours(view: TimeScale, zone: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """(column, label) of the time axis in local time, which is that of `zone`, at least nine cells apart; midnight
    carries the day, what is further apart the date, Mondays of weeks, or the month. Kept, for all pictures."""
    start, end = datetime.fromtimestamp(view.start_s), datetime.fromtimestamp(view.end_s)
    every = next((s for s in _LABEL_EVERY_S if s / view.span_s >= 9), None)
    if every is not None:
        step = timedelta(seconds=every)
        # in wall-clock time, across a daylight-saving change; 2001 began with a Monday
        first = datetime(2001, 1, 1) + math.ceil((start - datetime(2001, 1, 1)) / step) * step
        moments = [first + number * step for number in range(view.columns)]
    else:
        months = math.ceil(9 * view.span_s / (30 * 86400.0))
        count = range(start.year * 12 + start.month - 1, end.year * 12 + end.month)
        moments = [datetime(at // 12, at % 12 + 1, 1) for at in count if at % months == 0]
    labels: list[tuple[int, str]] = []
    for moment in moments:
        column = view.column(at_s := moment.timestamp())
        midnight, date = (moment.hour, moment.minute) == (0, 0), f"{moment.day} {moment:%b}"
        label = f"{moment:%b}" if every is None else date if every > 86400 else f"{moment:%a}" if midnight else ""
        label = label or f"{moment:%H:%M}"
        if column >= 0 and column + len(label) <= view.columns and datetime.fromtimestamp(at_s) == moment:
            labels.append((column, label))
    return labels


def eighths(value: float | None, top: float, rows: int, base: float = 0.0) -> int:
    """Height of a column in eighths of a cell; anything above zero shows."""
    if value is None or value <= 0 or top <= base:
        return 0
    return max(1, min(rows * 8, round((value - base) / (top - base) * rows * 8)))
