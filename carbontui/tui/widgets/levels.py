"""The level in each column of a chart: from the plan ahead, and from the history behind."""

import math

from carbontui import protocol, units
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import PastLevels, ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, Span
from carbontui.tui.widgets.scale import TimeScale


def table(plan: protocol.PlanView | None) -> dict[str, protocol.Level]:
    return {info.name: info for info in plan.table} if plan else {}


KIND_OF_STATE: dict[str, protocol.LevelKind] = {
    "running": "full",
    "throttled": "cap",
    "pausing": "full",
    "paused": "pause",
    "unloaded": "unload",
    "waiting": "off",
}


def level_in_force(view_state: ViewState, past: PastLevels | None, at_s: float) -> protocol.LevelKind | None:
    """The kind of level that held at a time up to now. The past is asked for at each change of level: what came after
    it is what holds now."""
    known_s = view_state.now_s if past is None else past.start_s + past.step_s * len(past.kinds)
    if at_s < known_s:
        return past.at(at_s) if past else None
    known = table(view_state.plan).get(view_state.status.level or "")
    return known.kind if known else KIND_OF_STATE.get(view_state.status.state)


def planned(plan: protocol.PlanView | None, view: TimeScale, now_s: float) -> list[protocol.Level | None]:
    """The level at the middle of each column from now on; None in the past and after the end of the plan."""
    found: list[protocol.Level | None] = [None] * view.columns
    if plan is None:
        return found
    infos, now = table(plan), view.column(now_s)
    edge = units.from_iso(plan.start)
    first = True
    for name, slots in plan.levels:
        begin = edge
        edge += slots * plan.slot_s + (plan.first_s - plan.slot_s if first and slots else 0.0)
        first = False
        for column in range(max(0, now, view.column(begin)), min(view.columns, view.column(edge) + 1)):
            middle = view.time(column) + view.span_s / 2
            if begin <= middle < edge:
                found[column] = infos.get(name)
    return found


DAY_BACK_S, DAY_S = 6 * 3600.0, 24 * 3600.0
FILL = {"running": palette.BAR[8], "capped": palette.DENSE}
"""What fills a column below its edge: a level shows by its shape as well."""


def shape(kind: protocol.LevelKind | None) -> tuple[str, str]:
    """What stands for a level in one cell, and its ink."""
    ink = state_text.KIND_STYLE[kind] if kind else "text"
    return (FILL.get(ink, palette.HATCH), ink if ink in FILL else "hatch") if kind else (" ", ink)


def day(now_s: float, columns: int) -> TimeScale:
    """The span of a table's strips: six hours back and eighteen ahead, in columns that stay while time goes on."""
    span_s = DAY_S / columns
    return TimeScale(math.floor((now_s - DAY_BACK_S) / span_s) * span_s, span_s, columns)


def strip(view_state: ViewState, past: PastLevels | None, columns: int) -> CellRow:
    """What a job did and will do, in one row: what lies ahead is paler. By its own clock, which of a replay is not
    ours."""
    now_s, begun, row = view_state.now_s, view_state.status.budget, list[Span]()
    view = day(now_s, columns)
    now, ahead, since_s = view.column(now_s), planned(view_state.plan, view, now_s), view_state.start_s
    for x in range(view.columns):
        level = ahead[x]
        kind = level.kind if level is not None and x > now else None
        if x <= now and begun and view.time(x + 1) > since_s:
            kind = level_in_force(view_state, past, min(view.time(x) + view.span_s / 2, now_s))
        char, ink = shape(kind)
        char, ink = (palette.NOW, f"now/{ink}" if kind == "full" else "now") if x == now else (char, ink)
        row.append((char, f"{ink}-soft" if x > now and ink in FILL else ink))
    return row
