"""CO2 against finish time: a braille curve of the best plans, with the budget in force and the one being chosen."""

from __future__ import annotations

import textwrap
from itertools import pairwise

from textual import events
from textual.message import Message

from carbontui import protocol
from carbontui.text import figures
from carbontui.tui import glyphs, words
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, Cells, Ink, spread

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_GUTTER = 8
_LEAST_SPAN = 0.01
"""The scale spans at least this share of the highest point."""


class FrontierChart(Cells):
    """`show(frontier, picked)`; a click picks the nearest plan."""

    frontier: protocol.Frontier | None = None
    picked: int | None = None

    class Picked(Message):
        """A point of the curve was picked; a newer one replaces it."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, FrontierChart.Picked)

    start_s = now_s = 0.0
    overruled = False

    def show(self, picture: Picture, picked: int | None) -> None:
        self.frontier, self.picked = picture.frontier, picked
        self.start_s, self.now_s = picture.start_s, picture.now_s
        self.overruled = picture.status.override is not None
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        frontier = self.frontier
        rows = [self.heading(width, "frontier", "CO₂ against finish")]
        if frontier is None or len(frontier.points) < 2:
            why = "no choice to draw yet"
            if frontier is not None and self.overruled:
                why = "what a later finish would give is drawn again once the plan decides (r)"
            elif frontier is not None:
                why = "a later finish would not emit less (e: type a budget)"
            rows += [[(f" {line}", "dim")] for line in textwrap.wrap(why, max(8, width - 2))]
            return rows
        lines, columns = height - 2, width - _GUTTER - 1
        if lines < 2 or columns < 8:
            return [*rows, *self._ends(frontier, width)][:height]
        high = max(p.gco2_g for p in frontier.points)
        # a smaller scale would show a negligible difference as a cliff
        low = min(min(p.gco2_g for p in frontier.points), high * (1 - _LEAST_SPAN))
        plotted = self._curve(frontier, columns, lines, low, high)
        for index, glyph, ink in self._marks(frontier):
            x, y = self._place(frontier, index, columns, lines, low, high)
            plotted[y][x] = (glyph, ink)
        for y, cells in enumerate(plotted):
            label = figures.grams(high) if y == 0 else figures.grams(low) if y == lines - 1 else ""
            rows.append([(f"{label:>{_GUTTER - 1}} ", "dim"), *cells])
        return [*rows, self._axis(frontier, columns)]

    def _ends(self, frontier: protocol.Frontier, width: int) -> list[CellRow]:
        """The tightest and the loosest budget in words, where there is no room for a curve."""
        told: list[CellRow] = []
        for name, point in (("soonest", frontier.points[0]), ("latest", frontier.points[-1])):
            when = words.clock(self.start_s + point.finish_s, self.now_s)
            left: CellRow = [(f" {name:<8} ", "dim"), (when, "text")]
            told.append(spread(width, left, [(f"{figures.grams(point.gco2_g)} ", "text")]))
        return told

    def _axis(self, frontier: protocol.Frontier, columns: int) -> CellRow:
        """When the tightest and the loosest budget end."""
        first, last = (words.clock(self.start_s + frontier.points[i].finish_s, self.now_s) for i in (0, -1))
        gap = columns - len(first) - len(last)
        lead: CellRow = [(f"{'done':>{_GUTTER - 1}} ", "dim")]
        return [*lead, (first, "dim"), (" " * gap, "dim"), (last, "dim")] if gap > 1 else [*lead, (first, "dim")]

    def _marks(self, frontier: protocol.Frontier) -> list[tuple[int, str, str]]:
        marks = []
        if frontier.chosen is not None and frontier.chosen < len(frontier.points):
            marks.append((frontier.chosen, glyphs.POINT, "strong"))
        if self.picked is not None and self.picked != frontier.chosen and self.picked < len(frontier.points):
            marks.append((self.picked, glyphs.KNOB, "preview"))
        return marks

    def _dot(
        self, frontier: protocol.Frontier, index: int, columns: int, lines: int, low: float, high: float
    ) -> tuple[float, float]:
        """Position of a point, in braille dots from the top left."""
        points = frontier.points
        first, last = points[0].finish_s, points[-1].finish_s
        x = (points[index].finish_s - first) / ((last - first) or 1.0)
        y = (high - points[index].gco2_g) / ((high - low) or 1.0)
        return x * (columns * 2 - 1), y * (lines * 4 - 1)

    def _place(
        self, frontier: protocol.Frontier, index: int, columns: int, lines: int, low: float, high: float
    ) -> tuple[int, int]:
        x, y = self._dot(frontier, index, columns, lines, low, high)
        return min(columns - 1, round(x) // 2), min(lines - 1, round(y) // 4)

    def _curve(
        self, frontier: protocol.Frontier, columns: int, lines: int, low: float, high: float
    ) -> list[list[tuple[str, Ink]]]:
        dots = [[0] * columns for _ in range(lines)]
        places = [self._dot(frontier, i, columns, lines, low, high) for i in range(len(frontier.points))]
        for (x0, y0), (x1, y1) in pairwise(places):
            steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
            for step in range(steps + 1):
                x, y = round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps)
                dots[min(lines - 1, y // 4)][min(columns - 1, x // 2)] |= _DOTS[y % 4][x % 2]
        return [[(chr(glyphs.BRAILLE + bits) if bits else " ", "capped") for bits in row] for row in dots]

    def nearest(self, x: int) -> int | None:
        """The point nearest to a column of the content."""
        frontier = self.frontier
        columns = self.content_size.width - _GUTTER - 1
        if frontier is None or len(frontier.points) < 2 or columns < 8:
            return None
        places = [self._place(frontier, i, columns, 2, 0.0, 1.0)[0] for i in range(len(frontier.points))]
        return min(range(len(places)), key=lambda i: abs(places[i] - (x - _GUTTER)))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._pick(event)
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.app.mouse_captured is self:
            self._pick(event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()

    def _pick(self, event: events.MouseEvent) -> None:
        place = event.get_content_offset_capture(self)
        index = self.nearest(place.x)
        if index is not None:
            self.post_message(self.Picked(index))
