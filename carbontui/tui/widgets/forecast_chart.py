"""Carbon intensity: the realised past, now, and the forecast with its band, each column in the colour of its level.

Eighth blocks, because a slot is a step: the mean is an edge, softly filled below, the band above it dots. A level shows
without colour: full speed is solid, a cap dense, a pause hatched.
"""

import math

from carbontui import protocol, units
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, StyleName, width_of
from carbontui.tui.widgets.levels import FILL, level_in_force, planned, shape, table
from carbontui.tui.widgets.scale import GUTTER, TimeScale, eighths, means, nice_top, window
from carbontui.tui.widgets.timeline import Column, TimeChart, axis, base_of, plot, with_scale

KIND_WORDS = {"full": "full", "cap": "capped", "duty": "part of the time", "pause": "stands still"}


class ForecastChart(TimeChart):
    """The preview's plan is drawn instead of the one in force."""

    TITLE = "carbon intensity"
    with_axis = False
    with_legend = False

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        rows = [self._title(view_state, width)]
        band = view_state.series.intensity
        if band is None:
            told = "no grid data" if view_state.over else "no grid data, so no shifting"
            return [*rows, [], [(" " * GUTTER + told, "dim")]]
        view = window(view_state, width - GUTTER)
        strip = view_state.over and height >= 6
        space = height - 1 - self.with_axis - self.with_legend - strip
        if space < 1:
            return rows
        now = view.column(view_state.now_s)
        columns, top, base = self._columns(view_state, band, view, space)
        plotted = plot(columns, space, now)
        self._deadline(view_state, plotted, view)
        rows += with_scale(plotted, top, base)
        rows += [self._strip(view_state, view)] if strip else []
        rows += [axis(view, now, over=view_state.over)] if self.with_axis else []
        return [*rows, self._legend(view_state, width)] if self.with_legend else rows

    def _legend(self, view_state: ViewState, width: int) -> CellRow:
        """The meaning of the columns that are visible."""
        block = palette.BAR[8]
        infos, band = table(view_state.plan), view_state.series.intensity
        plan = None if view_state.over else self.preview or view_state.plan
        ahead = {infos[name].kind for name, _ in (plan.levels if plan else ()) if name in infos}
        was = {kind for kind in (self.past.kinds if self.past else ()) if kind}
        parts: list[tuple[str, StyleName, str]] = [(block, "past", "so far")] if self.past or view_state.over else []
        for kind in ("full", "cap", "duty"):
            shown = was if view_state.over else ahead  # of a finished job, the watts are in these colours
            style = state_text.KIND_STYLE[kind]
            parts += [(FILL[style], style, KIND_WORDS[kind])] if kind in shown else []
        parts += [] if plan or view_state.over else [(block, "running", KIND_WORDS["full"])]
        parts += [(palette.HATCH, "hatch", KIND_WORDS["pause"])] if protocol.STILL & (ahead | was) else []
        if band is not None and band.lo_g != band.hi_g and not view_state.over:
            parts.append((palette.STIPPLE, "past", "80 % band"))
        parts += [(palette.DOTTED, "dim", "deadline")] if plan else []
        if plan and units.from_iso(plan.finish) < window(view_state, width - GUTTER).end_s:
            parts.append((block, "beyond", "after the end"))
        row: CellRow = [(" " * GUTTER, "dim")]
        for char, style_name, word in parts:
            if width_of(row) + len(word) + 4 <= width:
                row += [(char, style_name), (f" {word}   ", "dim")]
        return row

    def _columns(
        self, view_state: ViewState, band: protocol.Band, view: TimeScale, space: int
    ) -> tuple[list[Column], float, float]:
        start = units.from_iso(band.start)
        mean, high = (means(v, start, band.step_s, view) for v in (band.mean_g, band.hi_g))
        now = view.column(view_state.now_s)
        future_high = [h for h in high[now:] if h is not None] if now >= 0 else []
        known = [m for m in mean if m is not None]
        most = max(known + future_high, default=1.0)
        base = base_of(known, most)
        top = nice_top(most, max(1, space), base)
        ahead = planned(self.preview or view_state.plan, view, view_state.now_s)
        # without a plan nothing is held back: the job runs throughout
        unplanned = "running" if view_state.plan is None and not view_state.over else "beyond"
        columns = []
        for x, value in enumerate(mean):
            tall = eighths(value, top, space, base)
            if x < now or view_state.over:
                kind = level_in_force(view_state, self.past, view.time(x) + view.span_s / 2) if x <= now else None
                columns.append(Column(tall, 0, "past", kind in protocol.STILL, metered=True))
                continue
            info = ahead[x]
            style_name = state_text.KIND_STYLE[info.kind] if info else unplanned
            still = info is not None and info.kind in protocol.STILL
            columns.append(Column(tall, eighths(high[x], top, space, base), style_name, still))
        return columns, top, base

    def _strip(self, view_state: ViewState, view: TimeScale) -> CellRow:
        """What it did, beneath the grid as it was."""
        end = view.column(view_state.now_s)
        at_s = (view.time(x) + view.span_s / 2 for x in range(min(end + 1, view.columns)))
        return [(f"{'ran':>{GUTTER - 1}} ", "dim"), *(shape(level_in_force(view_state, self.past, at)) for at in at_s)]

    def _deadline(self, view_state: ViewState, plotted: list[list[tuple[str, StyleName]]], view: TimeScale) -> None:
        """A dotted line where the budget ends, behind the columns."""
        plan = self.preview or view_state.plan
        column = view.column(units.from_iso(plan.deadline)) if plan else -1
        if 0 <= column < view.columns:
            for row in plotted:
                if row[column][0] == " ":
                    row[column] = (palette.DOTTED, "dim")

    def _title(self, view_state: ViewState, width: int) -> CellRow:
        band, now = view_state.series.intensity, view_state.status.intensity
        right = ""
        if band is not None:
            right = f"{band.zone} · {state_text.SIGNALS.get(band.signal, band.signal)}"
            if band.how != "forecast":
                right += f" · {band.how}"
        left = "carbon intensity" if width >= 44 else "carbon"
        if now is not None and math.isfinite(now.value_g_per_kwh):
            mark = state_text.mark(view_state.status, "intensity")
            left += f"  {state_text.marked(f'{now.value_g_per_kwh:.0f} g/kWh', mark)}"
        if self.preview is not None:
            right = "preview"
        return self.heading(width, left, right, "preview" if self.preview is not None else "dim")
