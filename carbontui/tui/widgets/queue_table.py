"""The table of a cluster's queue, and above it the site's watts against its budget with the hourly intensity."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import set_cell_size

from carbontui.text import figures, marks
from carbontui.tui import glyphs, words
from carbontui.tui.queue_list import QueueList, QueueRow, QueueSeen
from carbontui.tui.widgets.cells import CellRow, Cells, Span, spread
from carbontui.tui.widgets.row_table import RowTable, TableColumn, cut
from carbontui.tui.widgets.scale import GUTTER, TimeScale, eighths, means
from carbontui.tui.widgets.timeline import Column, axis, plot, top_of, with_scale

GRAMS = "CO₂"
ID_CELLS, NAME_CELLS = 9, 18


class QueueTable(RowTable):
    """Jobs of everybody, or nodes."""

    COLUMNS = (
        TableColumn("USER", 9, 90, "user"),
        TableColumn("NODES", 11, 76),
        TableColumn("WATTS", 10, 0, "watts"),
        TableColumn(GRAMS, 9, 66),
        TableColumn("FINISH", 11, 50, "finish"),
        TableColumn("DEADLINE", 11, 60, "slack"),
    )
    MESSAGE = "STATE"
    listed: QueueList = QueueList()

    def why_empty(self) -> str:
        seen = self.listed.listing
        if not (seen.start_s or seen.jobs):
            return "the queue cannot be read" if seen.faults else f"asking Slurm {glyphs.ELLIPSIS}"
        return "no row contains the word" if self.listed.wanted else "the queue is empty"

    def names(self, left: int) -> tuple[str, Callable[[QueueRow, bool], CellRow]]:
        cells = max(1, min(NAME_CELLS, left - ID_CELLS))
        first, second = ("NODE", "") if self.listed.nodes else ("JOB", "NAME")

        def named(row: QueueRow, pointed: bool) -> CellRow:
            name = (cut(row.name, cells), "strong" if row.ours or pointed else "text")
            return [(cut(row.id, ID_CELLS - 1) + " ", "text"), name]

        return f"{first:<{ID_CELLS}}{set_cell_size(second, cells)}", named

    def message(self, row: QueueRow) -> Span:
        return row.message, words.STATE_STYLE[row.state] if row.ours else "dim"

    def value(self, title: str, row: QueueRow) -> Span:
        if title == "USER":
            return row.user, "text"
        if title == "NODES":
            return row.where, "text"
        if title == "WATTS":
            if row.watts is None:
                return ("not ours", "dim") if not row.ours else ("unknown", "warning")
            return words.marked(figures.watts(row.watts), row.mark), "text" if not row.mark else "dim"
        if title == GRAMS:
            return figures.grams(row.grams), "text"
        if title == "FINISH":
            late = row.ends_s is not None and row.deadline_s is not None and row.ends_s > row.deadline_s
            return self._clock(row.ends_s), "warning" if late else "text"
        return self._clock(row.deadline_s), "text"

    def _clock(self, at_s: float | None) -> str:
        return "–" if at_s is None else figures.clock(at_s, self.now_s)


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
            bars.append(Column(tall, tall, 0, "warning" if over else "running"))
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
