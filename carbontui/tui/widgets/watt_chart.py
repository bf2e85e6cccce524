"""Total watts over the job: solid as metered up to now, faint as planned after it; cap and parked watts as lines."""

from collections.abc import Sequence

from carbontui import units
from carbontui.text import figures
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, StyleName
from carbontui.tui.widgets.levels import level_in_force, planned
from carbontui.tui.widgets.scale import GUTTER, eighths, means, nice_top, window
from carbontui.tui.widgets.timeline import Column, TimeChart, axis, plot, with_scale


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
