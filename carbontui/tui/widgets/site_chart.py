"""The site's watts against its budget, with the intensity beneath them."""

from __future__ import annotations

from carbontui.text import figures, marks
from carbontui.tui.model import words
from carbontui.tui.model.lists import QueueSeen
from carbontui.tui.terminal import glyphs
from carbontui.tui.widgets.cells import CellRow, Cells, spread
from carbontui.tui.widgets.scale import GUTTER, TimeScale, eighths, means
from carbontui.tui.widgets.timeline import Column, axis, plot, top_of, with_scale


class SiteChart(Cells):
    """`show(listing, now_s)`: the site's planned watts, its budget as a line, and a strip of intensity."""

    listing = QueueSeen()
    now_s = 0.0

    def show(self, listing: QueueSeen, now_s: float) -> None:
        self.listing, self.now_s = listing, now_s
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        seen = self.listing
        rows = [spread(width, *self._title())]
        space = height - 3
        if not seen.watts or space < 1:
            return rows
        columns = width - GUTTER
        view = TimeScale(seen.start_s, max(1.0, len(seen.watts) * seen.slot_s / columns), columns)
        watts, cap = (means(values, seen.start_s, seen.slot_s, view) for values in (seen.watts, seen.cap_w))
        kilo = [None if value is None else value / 1e3 for value in watts]
        top = top_of([value for value in kilo if value is not None] + [value / 1e3 for value in cap if value])
        bars = []
        for drawn, most in zip(kilo, cap, strict=True):
            tall = eighths(drawn, top, space)
            over = most is not None and drawn is not None and drawn * 1e3 > most * (1 + 1e-6)
            bars.append(Column(tall, 0, "warning" if over else "running", metered=True))
        plotted = plot(bars, space, None)
        for x, most in enumerate(cap):
            if most:
                y = space - 1 - min(space - 1, max(0, round(most / 1e3 / top * space - 0.5)))
                if plotted[y][x][0] == " ":
                    plotted[y][x] = (glyphs.DASH, "capped")
        return [*rows, *with_scale(plotted, top), self._strip(view), axis(view, None)]

    def _title(self) -> tuple[CellRow, CellRow]:
        seen = self.listing
        left: CellRow = [(" carbontui", "title"), ("  queue", "text")]
        if seen.start_s:
            most = f" of {figures.watts(seen.cap_w[0])}" if seen.cap_w and seen.cap_w[0] else ""
            left.append((f" · site {words.marked(figures.watts(seen.now_w), marks.ESTIMATED)}{most}", "text"))
        if seen.intensity:
            left.append((f" · {seen.intensity[0]:.0f} g/kWh", "text"))
        return left, [(f"{seen.source[-48:]} ", "dim")]

    def _strip(self, view: TimeScale) -> CellRow:
        """The intensity in one row: the taller, the dirtier."""
        values = means(self.listing.intensity, self.listing.start_s, self.listing.slot_s, view)
        top = top_of([value for value in values if value is not None])
        row: CellRow = [(f"{'g/kWh':>{GUTTER - 1}} ", "dim")]
        return row + [(glyphs.BAR[eighths(value, top, 1)], "past") for value in values]
