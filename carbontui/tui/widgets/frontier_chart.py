"""CO2 against finish time: a braille curve of the best plans, with the budget in force and the one being chosen."""

import textwrap
from itertools import pairwise

from textual import events
from textual.message import Message

from carbontui import protocol
from carbontui.text import figures
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import Choice, ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, StyleName, ViewCells, spread

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_GUTTER = 8
_LEAST_SPAN = 0.02
"""The scale spans at least this share of the highest point."""


class FrontierChart(ViewCells):
    """`show_choice(picture, choice)`; a click picks the nearest plan."""

    TITLE = "frontier"
    choice: Choice | None = None

    class Picked(Message):
        """A point of the curve was picked; a newer one replaces it."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, FrontierChart.Picked)

    def show_choice(self, view_state: ViewState, choice: Choice | None) -> None:
        self.choice = choice
        self.show(view_state)

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        frontier = view_state.frontier
        rows = [self.heading(width, self.TITLE, "CO₂ against finish")]
        if frontier is None or len(frontier.points) < 2:
            why = "no choice to draw yet"
            if frontier is not None and view_state.status.override is not None:
                why = "what a later finish would give is drawn again once the plan decides (r)"
            elif frontier is not None:
                why = "a later finish would not emit less (e: type a budget)"
            rows += [[(f" {line}", "dim")] for line in textwrap.wrap(why, max(8, width - 2))]
            return rows
        lines, columns = height - 2, width - _GUTTER - 1
        ends_s = (view_state.start_s + frontier.points[i].finish_s for i in (0, -1))
        first, last = (state_text.clock(end_s, view_state.now_s) for end_s in ends_s)
        if lines < 2 or columns < 8:
            # the tightest and the loosest budget in words, where there is no room for a curve
            for name, when, point in (("soonest", first, frontier.points[0]), ("latest", last, frontier.points[-1])):
                left: CellRow = [(f" {name:<8} ", "dim"), (when, "text")]
                rows.append(spread(width, left, [(f"{figures.grams(point.gco2_g)} ", "text")]))
            return rows[:height]
        grams = [point.gco2_g for point in frontier.points]
        high = max(grams)
        # a smaller scale would show a negligible difference as a cliff
        low = min(*grams, high * (1 - _LEAST_SPAN))
        flat = palette.BROKEN if min(grams) > high * (1 - _LEAST_SPAN) else " "
        ends = figures.grams(high), figures.grams(low)
        if ends[0] == ends[1]:
            ends = ends[0], figures.change(low - high)  # what sets them apart
        dots = _dots(frontier, columns, lines, low, high)
        plotted = _curve(dots, columns, lines)
        for index, glyph, style_name in self._marks(frontier):
            x, y = dots[index]
            plotted[round(y) // 4][round(x) // 2] = (glyph, style_name)
        for y, cells in enumerate(plotted):
            label, sign = (ends[0], " ") if y == 0 else (ends[1], flat) if y == lines - 1 else ("", " ")
            rows.append([(f"{label:>{_GUTTER - 1}}{sign}", "dim"), *cells])
        gap = columns - len(first) - len(last)
        times = f"{first}{' ' * gap}{last}" if gap > 1 else first
        return [*rows, [(f"{'done':>{_GUTTER - 1}} ", "dim"), (times, "dim")]]

    def _marks(self, frontier: protocol.Frontier) -> list[tuple[int, str, str]]:
        marks, picked = [], self.choice.index if self.choice else None
        if frontier.chosen is not None and frontier.chosen < len(frontier.points):
            marks.append((frontier.chosen, palette.POINT, "strong"))
        if picked is not None and picked != frontier.chosen and picked < len(frontier.points):
            marks.append((picked, palette.KNOB, "preview"))
        return marks

    def nearest(self, x: int) -> int | None:
        """The point nearest to a column of the content."""
        frontier = self.view_state.frontier if self.view_state else None
        columns = self.content_size.width - _GUTTER - 1
        if frontier is None or len(frontier.points) < 2 or columns < 8:
            return None
        places = [round(x) // 2 for x, _ in _dots(frontier, columns, 2, 0.0, 1.0)]
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


def _dots(frontier: protocol.Frontier, columns: int, lines: int, low: float, high: float) -> list[tuple[float, float]]:
    """Position of each point, in braille dots from the top left."""
    first, last = frontier.points[0].finish_s, frontier.points[-1].finish_s
    return [
        (
            (point.finish_s - first) / ((last - first) or 1.0) * (columns * 2 - 1),
            (high - point.gco2_g) / ((high - low) or 1.0) * (lines * 4 - 1),
        )
        for point in frontier.points
    ]


def _curve(places: list[tuple[float, float]], columns: int, lines: int) -> list[list[tuple[str, StyleName]]]:
    dots = [[0] * columns for _ in range(lines)]
    for (x0, y0), (x1, y1) in pairwise(places):
        steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
        for step in range(steps + 1):
            x, y = round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps)
            dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    return [[(chr(palette.BRAILLE + bits) if bits else " ", "capped") for bits in row] for row in dots]
