"""Columns over time, shared by forecast and watts so that one lines up exactly under the other; the watts, solid as
metered up to now, faint as planned after it, cap and parked watts as lines; and the price."""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from carbontui import protocol, units
from carbontui.text import figures
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import PastLevels, ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, StyleName, ViewCells
from carbontui.tui.widgets.levels import FILL, level_in_force, planned
from carbontui.tui.widgets.scale import GUTTER, TimeScale, eighths, hours, is_round, means, nice_base, nice_top, window


class Column(NamedTuple):
    """One column, heights in eighths of a cell: its `edge` at `tall`, filled below; a band reaches up to `band`. Only
    what is `metered` is filled in full colour."""

    tall: int = 0
    band: int = 0
    style_name: str = "past"
    hatched: bool = False
    metered: bool = False


class TimeChart(ViewCells):
    """`show_levels(picture, past, preview)`: the levels that held, and a plan that is considered."""

    past: PastLevels | None = None
    preview: protocol.PlanView | None = None

    def show_levels(self, view_state: ViewState, past: PastLevels | None, preview: protocol.PlanView | None) -> None:
        self.past, self.preview = past, preview
        self.show(view_state)


def plot(columns: list[Column], rows: int, now: int | None) -> list[list[tuple[str, StyleName]]]:
    """Rows of cells, the top one first."""
    return [
        list(row) for row in zip(*(_cells(column, rows, now == x) for x, column in enumerate(columns)), strict=True)
    ]


@lru_cache(maxsize=1024)
def _cells(column: Column, rows: int, is_now: bool) -> tuple[tuple[str, StyleName], ...]:
    return tuple(_cell(column, row, is_now) for row in reversed(range(rows)))


def _cell(column: Column, row: int, is_now: bool) -> tuple[str, StyleName]:
    base = row * 8
    style_name = column.style_name if column.metered else f"{column.style_name}-soft"
    if column.tall >= base + 8:
        # the uppermost full cell is the edge where nothing stands above it, and as solid as any other edge
        edge = column.tall == base + 8
        char = palette.BAR[8] if edge and row else FILL.get(column.style_name, palette.BAR[8])
        style_name = column.style_name if edge else style_name
    elif column.tall > base:
        char, style_name = palette.BAR[column.tall - base], column.style_name
        style_name = f"{style_name}/hatch-mean" if column.hatched else style_name  # as bright as the hatching beside it
    elif column.hatched:
        char, style_name = palette.HATCH, "hatch"
    elif column.band >= base + 4:
        char, style_name = palette.STIPPLE, "past"
    else:
        char, style_name = " ", "text"
    if is_now:
        filled = char in (palette.BAR[8], palette.DENSE)
        return palette.NOW, f"now/{style_name.partition('/')[0]}" if filled else "now"
    return char, style_name


def with_scale(plotted: list[list[tuple[str, StyleName]]], top: float, base: float = 0.0) -> list[CellRow]:
    """The plot with its scale in the gutter: its top, a middle, and where it begins if that is not at zero."""
    rows = len(plotted)
    form = ".0f" if top >= 20 else ".1f"
    labels = {0: f"{top:{form}}"}
    # the middle: the nearest row whose upper edge is a round number
    inner = sorted(range(1, rows), key=lambda y: abs(2 * y - rows))
    values = {y: base + (top - base) * (rows - y) / rows for y in inner[: max(0, rows - 2)]}
    labels |= {y: f"{value:{form}}" for y, value in reversed(list(values.items())) if is_round(value) or top < 20}
    labels = {y: labels[y] for y in (0, *[y for y in values if y in labels][:1])}
    if base and rows > 2:
        labels[rows - 1] = f"{base:{form}}{palette.BROKEN}"
    return [[(f"{labels.get(y, ''):>{GUTTER - 1}} ", "dim"), *cells] for y, cells in enumerate(plotted)]


def base_of(values: list[float], high: float) -> float:
    """Where the axis begins: at zero, unless all values lie in its upper part and would look flat."""
    low = min(values, default=0.0)
    return nice_base(low * 0.9) if low > 0.4 * high else 0.0


def axis(view: TimeScale, now: int | None, *, over: bool = False) -> CellRow:
    """Hours under the columns; 'now' under its marker ('end' of a job that is over) takes the place of an hour it would
    touch."""
    cells: list[tuple[str, StyleName]] = [(" ", "dim")] * view.columns
    labels = [(column, label, "dim") for column, label in hours(view, time.tzname)]
    if now is not None and 0 <= now < view.columns:
        left = max(0, min(view.columns - 3, now - 1))
        # a partly hidden hour would read as another hour
        labels = [(c, word, style_name) for c, word, style_name in labels if c + len(word) < left or c > left + 3]
        labels.append((left, "end" if over else "now", "now"))
    for column, word, style_name in labels:
        for offset, char in enumerate(word[: view.columns - column]):
            cells[column + offset] = (char, style_name)
    # name the time zone: the machine may not be in its user's
    return [(f"{figures.clock_name(view.start_s):>{GUTTER - 1}} "[:GUTTER], "dim"), *cells]


class PriceStrip(ViewCells):
    """The axis starts at the lowest price, so zero lies within it if prices are negative."""

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        prices = view_state.series.price
        if prices is None:
            return []
        now = value_at(prices, view_state.now_s)
        left = "price" if now is None else f"price  {figures.number(now, 3)} {prices.currency}/kWh"
        view = window(view_state, width - GUTTER)
        shown = means(prices.mean, units.from_iso(prices.start), prices.step_s, view)
        known = [value for value in shown if value is not None]
        low, high = min([0.0, *known]), max(known, default=1.0)
        at = view.column(view_state.now_s)
        cells: list[tuple[str, StyleName]] = []
        for x, value in enumerate(shown):
            tall = 0 if value is None else 1 + round((value - low) / ((high - low) or 1.0) * 7)
            below = value is not None and value < 0
            style_name = "past" if x < at else "unloaded" if below else "warning"
            cells.append((palette.NOW, "now") if x == at else (palette.BAR[tall], style_name))
        ends = f"{figures.number(min(known), 3)} to {figures.number(high, 3)}" if known else ""
        return [self.heading(width, left, ends), [(f"{high:>{GUTTER - 1}.2f} ", "dim"), *cells]]


def value_at(prices: protocol.PriceSlots, at_s: float) -> float | None:
    index = int((at_s - units.from_iso(prices.start)) // prices.step_s)
    return prices.mean[index] if 0 <= index < len(prices.mean) else None


class WattChart(TimeChart):
    """Shares its columns with the forecast above it and carries the hours of both."""

    TITLE = "power"

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        status = view_state.status
        limit = _sum([gpu.limit_w for gpu in status.gpus])
        parked = _sum([gpu.parked_w for gpu in status.gpus])
        rows = [self._title(view_state, width, parked)]
        view = window(view_state, width - GUTTER)
        space = height - 2
        if space < 1:
            return rows
        now = view.column(view_state.now_s)
        watts = view_state.series.watts
        metered: Sequence[float | None] = [None] * view.columns
        if watts is not None:
            metered = means(watts.total_w, units.from_iso(watts.start), watts.step_s, view)
        ahead = planned(None if view_state.over else self.preview or view_state.plan, view, view_state.now_s)
        if view_state.over:
            # a mean reaches to the end of its bin: nothing was drawn after the end
            metered = [mean if x <= now else None for x, mean in enumerate(metered)]
        future = [info.power_w if info else None for info in ahead]
        scale = [w for w in (*metered, *future) if w is not None]
        if limit and limit > 1.3 * max(scale, default=limit):
            limit = None  # a cap far above all watts would squeeze them into the bottom row
        top = nice_top(max([*scale, limit or 0.0]), space)
        columns = []
        for x in range(view.columns):
            info = ahead[x]
            if metered[x] is not None:
                tall = eighths(metered[x], top, space)
                at_s = view_state.now_s if x == now else view.time(x) + view.span_s / 2
                kind = level_in_force(view_state, self.past, at_s)
                columns.append(Column(tall, 0, state_text.KIND_STYLE[kind] if kind else "running", metered=True))
            elif info is not None and x >= now:
                tall = eighths(info.power_w, top, space)
                columns.append(Column(tall, 0, state_text.KIND_STYLE[info.kind]))
            else:
                columns.append(Column())
        plotted = plot(columns, space, now)
        self._line(plotted, limit, top, "capped")
        self._line(plotted, parked, top, "paused")
        if event := status.grid_event:
            begin, end = (view.column(units.from_iso(at)) for at in (event.start, event.end))
            for x in range(max(0, begin), min(view.columns, end + 1)):
                plotted[0][x] = (palette.TRACK, "capped")
        return [*rows, *with_scale(plotted, top), axis(view, now, over=view_state.over)]

    def _line(
        self, plotted: list[list[tuple[str, StyleName]]], watts: float | None, top: float, style_name: str
    ) -> None:
        """A dashed line at a level of watts, behind the columns."""
        if not watts:
            return
        y = len(plotted) - 1 - min(len(plotted) - 1, max(0, round(watts / top * len(plotted) - 0.5)))
        row = plotted[y]
        for x, (char, _) in enumerate(row):
            if char == " " and x % 2 == 0:
                row[x] = (palette.DASH, style_name)

    def _title(self, view_state: ViewState, width: int, parked: float | None) -> CellRow:
        status = view_state.status
        now = "power"
        if status.power_w is not None or not view_state.over:
            now += f"  {state_text.marked(figures.watts(status.power_w), state_text.mark(status, 'power_w'))}"
        known = [w for w in (view_state.series.watts.total_w if view_state.series.watts else ()) if w is not None]
        facts = []
        if status.state == "waiting":
            facts.append("idle before the start")
        elif known:
            facts.append(f"mean {figures.watts(sum(known) / len(known))} · peak {figures.watts(max(known))}")
        if parked:
            facts.append(f"paused {figures.watts(parked)}")
        if event := status.grid_event:
            span = (figures.clock(units.from_iso(at), view_state.now_s) for at in (event.start, event.end))
            facts.append(f"{palette.TRACK} grid event {'–'.join(span)}")
        while facts and len(now) + len(" · ".join(facts)) + 6 > width:
            facts.pop(0)
        return self.heading(width, now, " · ".join(facts))


def _sum(values: list[float | None]) -> float | None:
    """The sum if every board reports it."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
