"""The level in each column of a chart: from the plan ahead, and from the history behind."""

from __future__ import annotations

import math
from dataclasses import dataclass

from carbontui import protocol, units
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.widgets.scale import TimeScale


@dataclass(frozen=True, slots=True)
class PastLevels:
    """Past levels: one kind (or None) per bucket of equal time."""

    start_s: float
    step_s: float
    kinds: tuple[protocol.LevelKind | None, ...]

    @classmethod
    def of(cls, answer: protocol.HistoryAnswer) -> PastLevels:
        return cls(units.from_iso(answer.watts.start), answer.watts.step_s, answer.kind)

    def at(self, at_s: float) -> protocol.LevelKind | None:
        """The kind of level then; a column that straddles the start of the record takes its first one."""
        index = max(0, math.floor((at_s - self.start_s) / self.step_s))
        return self.kinds[index] if index < len(self.kinds) else None


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
