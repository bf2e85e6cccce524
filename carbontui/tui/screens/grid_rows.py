"""The grid on the page of sources: how good forecasts were here, and every source in the order they are tried."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from carbontui import protocol, units
from carbontui.text import figures, sources
from carbontui.tui.widgets.cells import CellRow

TITLE_MOST = 44
"""Cells of a source's title."""
STATE_STYLE = {"answers": "running", "fallback": "dim", "not asked": "dim", "needs key": "dim"}


def grid_rows(status: protocol.Status, answer: protocol.GridAnswer | None, fault: str, now_s: float) -> list[CellRow]:
    """`answer` is None until it arrives, or if it is unavailable: `fault` says why."""
    return [*_error_rows(status), *_source_rows(status, answer, fault, now_s)]


def _error_rows(status: protocol.Status) -> list[CellRow]:
    """The accuracy of the forecasts seen on this machine."""
    rows: list[CellRow] = [[], [("the grid: forecasts here against realised values", "title")]]
    if not status.forecast_errors:
        return [*rows, [(" too few hours to judge yet", "dim")]]
    for one in status.forecast_errors:
        naive = "" if one.naive is None else f" (the same hour of the day before: {figures.percent(one.naive)})"
        held = "" if one.coverage is None else f"; the 80 % band held {figures.percent(one.coverage)}"
        rows.append([(f"{f'{one.lead_h} h ahead':<12} ", "dim"), (f"off by {figures.percent(one.error)}", "strong")])
        rows[-1].append((f"{naive}{held} of {one.hours} hours", "text"))
    return rows


def _source_rows(
    status: protocol.Status, answer: protocol.GridAnswer | None, fault: str, now_s: float
) -> list[CellRow]:
    rows: list[CellRow] = [[], [("the grid: sources, in the order they are tried", "title")]]
    if answer is None:
        return [*rows, [(f" {fault or 'asking the supervisor …'}", "fault" if fault else "dim")]]
    widest = max((cell_len(one.title) for one in answer.sources), default=0)
    states = [_source_state(one, now_s) for one in answer.sources]
    longest = max(map(len, states), default=0)
    for one, state in zip(answer.sources, states, strict=True):
        title = set_cell_size(one.title, min(widest, TITLE_MOST))
        rows.append([(f"{title}  ", "text"), (f"{state:<{longest}}", STATE_STYLE.get(one.state, "warning"))])
        rows[-1].append((f"  {one.note}" if one.note else "", "dim"))
    if known := sources.age(status.intensity, now_s):
        rows.append([("known ", "dim"), (known, "text")])
    if answer.moved:
        rows.append([("moved by ", "dim"), (answer.moved, "text")])
    if answer.note:
        rows.append([("! ", "warning"), (answer.note, "text")])
    return rows


def _source_state(one: protocol.GridSource, now_s: float) -> str:
    """'answers 4 min ago', 'needs key'."""
    if one.fetched is None:
        return one.state
    return f"{one.state} {figures.duration(max(0.0, now_s - units.from_iso(one.fetched)))} ago"
