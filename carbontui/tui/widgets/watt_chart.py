"""Total watts over the job: solid as metered up to now, faint as planned after it; cap and parked watts as lines."""

from __future__ import annotations

from collections.abc import Sequence

from carbontui import units
from carbontui.text import figures
from carbontui.tui.model import words
from carbontui.tui.model.picture import Picture
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, Ink
from carbontui.tui.widgets.levels import held, planned
from carbontui.tui.widgets.scale import GUTTER, eighths, means, window
from carbontui.tui.widgets.timeline import Column, TimeChart, axis, plot, top_of, with_scale


class WattChart(TimeChart):
    """Shares its columns with the forecast above it and carries the hours of both."""

    TITLE = "power"

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        status = picture.status
        limit = _sum([gpu.limit_w for gpu in status.gpus])
        parked = _sum([gpu.parked_w for gpu in status.gpus])
        rows = [self._title(picture, width, parked)]
        view = window(picture, width - GUTTER)
        space = height - 2
        if space < 1:
            return rows
        now = view.column(picture.now_s)
        watts = picture.series.watts
        metered: Sequence[float | None] = [None] * view.columns
        if watts is not None:
            metered = means(watts.total_w, units.from_iso(watts.start), watts.step_s, view)
        ahead = planned(None if picture.over else self.preview or picture.plan, view, picture.now_s)
        if picture.over:
            # a mean reaches to the end of its bin: nothing was drawn after the end
            metered = [mean if x <= now else None for x, mean in enumerate(metered)]
        future = [info.power_w if info else None for info in ahead]
        scale = [w for w in (*metered, *future) if w is not None]
        if limit and limit > 1.3 * max(scale, default=limit):
            limit = None  # a cap far above all watts would squeeze them into the bottom row
        top = top_of([*scale, limit or 0.0])
        columns = []
        for x in range(view.columns):
            info = ahead[x]
            if metered[x] is not None:
                tall = eighths(metered[x], top, space)
                at_s = picture.now_s if x == now else view.time(x) + view.span_s / 2
                kind = held(picture, self.past, at_s)
                columns.append(Column(tall, 0, words.KIND_STYLE[kind] if kind else "running", metered=True))
            elif info is not None and x >= now:
                tall = eighths(info.power_w, top, space)
                columns.append(Column(tall, 0, words.KIND_STYLE[info.kind]))
            else:
                columns.append(Column())
        plotted = plot(columns, space, now)
        self._line(plotted, limit, top, "capped")
        self._line(plotted, parked, top, "paused")
        if event := status.grid_event:
            begin, end = (view.column(units.from_iso(at)) for at in (event.start, event.end))
            for x in range(max(0, begin), min(view.columns, end + 1)):
                if plotted[0][x][0] == " ":
                    plotted[0][x] = (palette.TRACK, "capped")
        return [*rows, *with_scale(plotted, top), axis(view, now, over=picture.over)]

    def _line(self, plotted: list[list[tuple[str, Ink]]], watts: float | None, top: float, ink: str) -> None:
        """A dashed line at a level of watts, behind the columns."""
        if not watts:
            return
        y = len(plotted) - 1 - min(len(plotted) - 1, max(0, round(watts / top * len(plotted) - 0.5)))
        row = plotted[y]
        for x, (char, _) in enumerate(row):
            if char == " " and x % 2 == 0:
                row[x] = (palette.DASH, ink)

    def _title(self, picture: Picture, width: int, parked: float | None) -> CellRow:
        status = picture.status
        now = "power"
        if status.power_w is not None or not picture.over:
            now += f"  {words.marked(figures.watts(status.power_w), words.mark(status, 'power_w'))}"
        known = [w for w in (picture.series.watts.total_w if picture.series.watts else ()) if w is not None]
        facts = []
        if status.state == "waiting":
            facts.append("idle before the start")
        elif known:
            facts.append(f"mean {figures.watts(sum(known) / len(known))} · peak {figures.watts(max(known))}")
        if parked:
            facts.append(f"parked {figures.watts(parked)}")
        if event := status.grid_event:
            span = (figures.clock(units.from_iso(at), picture.now_s) for at in (event.start, event.end))
            facts.append(f"{palette.TRACK} grid event {'–'.join(span)}")
        while facts and len(now) + len(" · ".join(facts)) + 6 > width:
            facts.pop(0)
        return self.heading(width, now, " · ".join(facts))


def _sum(values: list[float | None]) -> float | None:
    """The sum if every board reports it."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
