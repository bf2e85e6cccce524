"""Rows of the grid page: past and forecast values, price, forecast accuracy, and every source."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from carbontui import protocol, units
from carbontui.text import figures, sources
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.widgets.cells import CellRow
from carbontui.tui.widgets.scale import bars
from carbontui.tui.widgets.timeline import value_at

CELLS_MOST, LABEL_CELLS = 42, 13
"""Columns of a row of values, and of its label."""
TITLE_MOST = 44
"""Cells of a source's title."""
STATE_STYLE = {"answers": "running", "fallback": "dim", "not asked": "dim", "needs key": "dim"}


def grid_rows(view_state: ViewState, answer: protocol.GridAnswer | None, fault: str, width: int) -> list[CellRow]:
    """`answer` is None until it arrives, or if it is unavailable: `fault` says why. A row of bars is not wrapped:
    it has as many columns as fit a page this wide."""
    return [
        *_intensity_rows(view_state, answer, max(8, min(CELLS_MOST, width - LABEL_CELLS - 3))),
        *_price_rows(view_state),
        *_error_rows(view_state.status),
        *_source_rows(answer, fault, view_state.now_s),
    ]


def _label(text: str) -> tuple[str, str]:
    return f"{text:<{LABEL_CELLS - 1}} ", "dim"


def _intensity_rows(view_state: ViewState, answer: protocol.GridAnswer | None, cells: int) -> list[CellRow]:
    band, status, now_s = view_state.series.intensity, view_state.status, view_state.now_s
    rows: list[CellRow] = [[("carbon intensity", "title")]]
    if band is None:
        return [*rows, [_label("now"), ("no grid data: work is not shifted in time", "warning")]]
    signal = state_text.SIGNALS.get(band.signal, band.signal)
    told = "–" if status.intensity is None else f"{status.intensity.value_g_per_kwh:.0f} g/kWh"
    mark = state_text.mark(status, "intensity")
    rows.append([_label("now"), (state_text.marked(told, mark), "strong"), (f"  {band.zone} · {signal}", "text")])
    known = status.provenance.get("intensity")
    if known is not None:
        rows.append([_label("from"), (f"{known.how}: {known.source}", "text")])
    if age := sources.age(status.intensity, now_s):
        rows.append([_label("known"), (age, "text")])
    start = units.from_iso(band.start)
    past, ahead = band.mean_g[: band.realised], band.mean_g[band.realised :]
    top = max((value for value in band.mean_g if value is not None), default=1.0)
    day = round(86400.0 / band.step_s)
    for label, style_name, values, begins in (
        ("so far", "past", past[-day:], start + max(0, len(past) - day) * band.step_s),
        ("expected", "running", ahead[:day], start + band.realised * band.step_s),
    ):
        if any(value is not None for value in values):
            ends = begins + len(values) * band.step_s
            when = f"{state_text.clock(begins, now_s)} to {state_text.clock(ends, now_s)}"
            rows.append([_label(label), (bars(values, cells, (0.0, top)), style_name)])
            rows.append([_label(""), (f"{when}: {_spread(values)}", "text")])
    if answer is not None and answer.moved:
        rows.append([_label("moved by"), (answer.moved, "text")])
    return rows


def _spread(values: tuple[float | None, ...]) -> str:
    known = [value for value in values if value is not None]
    return f"{min(known):.0f} to {max(known):.0f}, mean {sum(known) / len(known):.0f} g/kWh"


def _price_rows(view_state: ViewState) -> list[CellRow]:
    prices = view_state.series.price
    if prices is None:
        return []
    now = value_at(prices, view_state.now_s)
    told = "–" if now is None else f"{figures.number(now, 3)} {prices.currency}/kWh"
    return [
        [],
        [("price", "title")],
        [_label("now"), (told, "strong")],
        [_label("from"), (prices.source, "text")],
    ]


def _error_rows(status: protocol.Status) -> list[CellRow]:
    """The accuracy of the forecasts seen on this machine."""
    rows: list[CellRow] = [[], [("forecasts here against realised values", "title")]]
    if not status.forecast_errors:
        return [*rows, [(" too few hours to judge yet", "dim")]]
    for one in status.forecast_errors:
        naive = "" if one.naive is None else f" (the same hour of the day before: {figures.percent(one.naive)})"
        held = "" if one.coverage is None else f"; the 80 % band held {figures.percent(one.coverage)}"
        rows.append([_label(f"{one.lead_h} h ahead"), (f"off by {figures.percent(one.error)}", "strong")])
        rows[-1].append((f"{naive}{held} of {one.hours} hours", "text"))
    return rows


def _source_rows(answer: protocol.GridAnswer | None, fault: str, now_s: float) -> list[CellRow]:
    rows: list[CellRow] = [[], [("sources, in the order they are tried", "title")]]
    if answer is None:
        return [*rows, [(f" {fault or 'asking the supervisor …'}", "fault" if fault else "dim")]]
    widest = max((cell_len(one.title) for one in answer.sources), default=0)
    states = [_source_state(one, now_s) for one in answer.sources]
    longest = max(map(len, states), default=0)
    for one, state in zip(answer.sources, states, strict=True):
        title = set_cell_size(one.title, min(widest, TITLE_MOST))
        rows.append([(f"{title}  ", "text"), (f"{state:<{longest}}", STATE_STYLE.get(one.state, "warning"))])
        rows[-1].append((f"  {one.note}" if one.note else "", "dim"))
    if answer.note:
        rows.append([("! ", "warning"), (answer.note, "text")])
    return rows


def _source_state(one: protocol.GridSource, now_s: float) -> str:
    """'answers 4 min ago', 'needs key'."""
    if one.fetched is None:
        return one.state
    return f"{one.state} {figures.duration(max(0.0, now_s - units.from_iso(one.fetched)))} ago"
