"""Columns over time, shared by forecast and watts so that one lines up exactly under the other; and the price."""

import time
from functools import lru_cache
from typing import NamedTuple

from carbontui import protocol, units
from carbontui.text import figures
from carbontui.tui.model.view_state import PastLevels, ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, StyleName, ViewCells
from carbontui.tui.widgets.levels import FILL
from carbontui.tui.widgets.scale import GUTTER, TimeScale, hours, is_round, means, nice_base, window


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
