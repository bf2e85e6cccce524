"""The table of all jobs, with a cursor."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from carbontui import protocol
from carbontui.text import figures, situation
from carbontui.tui.model import state_text
from carbontui.tui.model.lists import JobList, ListedJob
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, Cells, Span

MESSAGE_LEAST = 15
"""With room for fewer cells than this, a row's message is not shown."""
MARKED = 4
"""Cells of the marks before a row."""


class TableColumn(NamedTuple):
    """`order` is the sort order the column belongs to; it is shown from a table width of `least` up to `most`."""

    title: str
    cells: int
    least: int = 0
    order: str = ""
    most: int = 1 << 30


def under_cursor(row: CellRow, width: int) -> CellRow:
    """Highlight the whole row, so that the cursor is visible without colour and from a distance."""
    painted: CellRow = [
        (text, f"{how}/cursor" if isinstance(how, str) and "/" not in how else how) for text, how in row
    ]
    return [*painted, (" " * width, "text/cursor")]


def cut(text: str, cells: int, *, right: bool = False) -> str:
    """The text in exactly this many cells, right-aligned if `right`, with an ellipsis if truncated."""
    if cells < 1 or cell_len(text) > cells:
        return set_cell_size(text, max(0, cells - 1)) + palette.ELLIPSIS if cells > 0 else ""
    fill = " " * (cells - cell_len(text))
    return fill + text if right else text + fill


NAME_LEAST = 10
BAR_CELLS = 5
STATE_CELLS = 9
ROOMY, WIDE = 110, 150
"""Cells from which a table has more columns."""


class JobTable(Cells):
    """`show(listed, now_s)`: live jobs and those that are over, as many rows as fit, always including the one under the
    cursor."""

    COLUMNS = (
        TableColumn("OWNER", 10, WIDE),
        TableColumn("NODE", 12, ROOMY),
        TableColumn("GPU", 4, 72),
        TableColumn("MEMORY", 9, ROOMY),
        TableColumn("BUSY", 7, WIDE),
        TableColumn("WATTS", 9, 0, "watts"),
        TableColumn("DONE", 7, 0, "done", 71),
        TableColumn("DONE", 7 + BAR_CELLS, 72, "done"),
        TableColumn("ENDS", 11, 60, "finish"),
        TableColumn("CO₂ END", 11, 40, "CO2"),
        TableColumn("VS NOW", 7, 52),
    )
    listed = JobList()
    now_s = 0.0
    wide = 0
    _top = 0

    def show(self, listed: JobList, now_s: float) -> None:
        self.listed, self.now_s = listed, now_s
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        listed, self.wide = self.listed, width
        if not listed.shown:
            empty = "no job contains the word" if listed.rows else "no job yet: carbontui run -- python train.py"
            return [[(f"  {empty}", "dim")]]
        columns = [column for column in self.COLUMNS if column.least <= width <= column.most]
        left = width - MARKED - sum(column.cells for column in columns)
        title, named = self.names(left)
        room = left - cell_len(title) - 2
        has_messages = room >= MESSAGE_LEAST
        head: CellRow = [(" " * MARKED, "dim"), (title, "dim")]
        for column in columns:
            # the column the rows are sorted by is highlighted
            head.append((f"{column.title:>{column.cells}}", "strong" if column.order == listed.sort else "dim"))
        rows = [[*head, ("  WHY" if has_messages else "", "dim")]]
        for at in self.visible_rows(height - 1):
            row, pointed = listed.shown[at], at == listed.place
            mark = palette.POINT if row.id in listed.marked else palette.NOW if pointed else " "
            cells: CellRow = [(mark, "preview"), (f" {palette.STATES[row.state]} ", state_text.STATE_STYLE[row.state])]
            cells += named(row, pointed)
            for column in columns:
                text, style_name = self.value(column.title, row)
                cells.append((" " + cut(text, column.cells - 1, right=True), "dim" if text == "–" else style_name))
            if has_messages:
                cells.append((f"  {cut(row.why, room)}", "fault" if row.error else "dim"))
            rows.append(under_cursor(cells, width) if pointed else cells)
        return rows

    def visible_rows(self, room: int) -> range:
        """The rows that fit."""
        count, place = len(self.listed.shown), self.listed.place
        self._top = max(0, min(self._top, place, count - room), place - room + 1)
        return range(self._top, min(count, self._top + room))

    def position(self) -> str:
        """'3 of 50' if not all rows fit; else ''."""
        count = len(self.listed.shown)
        return f"{self.listed.place + 1} of {count}" if count > max(1, self.content_size.height - 1) else ""

    def names(self, left: int) -> tuple[str, Callable[[ListedJob, bool], CellRow]]:
        label = self.listed.labels()
        longest = max(cell_len(label(job)) for job in self.listed.shown)
        # the name first: the reason is also shown beneath the table, but a truncated name is useless
        cells = min(longest + 1, left) if left - longest - 3 < MESSAGE_LEAST else longest + 1
        cells = max(NAME_LEAST, cells) if left >= NAME_LEAST else max(1, left)

        # the shape before the name says it, too; the word where there is room
        word = STATE_CELLS if left - cells >= STATE_CELLS else 0

        def named(job: ListedJob, pointed: bool) -> CellRow:
            state = cut(situation.state(job.status), word), state_text.STATE_STYLE[job.state]
            return [(cut(label(job), cells), "strong" if job.live or pointed else "text"), *([state] if word else [])]

        return set_cell_size("JOB", cells) + set_cell_size("STATE", word), named

    def value(self, title: str, job: ListedJob) -> Span:
        """What a column says of a job, and its ink."""
        status, ink = job.status, "text" if job.live else "dim"
        gpus, ended = status.gpus if job.live else (), ""
        used = [gpu.memory_used_b for gpu in gpus if gpu.memory_used_b is not None]
        busy = [gpu.util for gpu in gpus if gpu.util is not None]
        if title == "DONE" and (done := situation.done(status)) is not None:
            eighths = round(done * BAR_CELLS * 8)
            bar = f"{palette.BAR[8] * (eighths // 8)}{palette.PART[eighths % 8]}".ljust(BAR_CELLS)
            share = f"{figures.percent(done):>5}"
            return (f"{bar[:BAR_CELLS]} {share}" if self.wide >= 72 else share), ink
        if title == "ENDS":
            now_s = situation.read_s(status, self.now_s)
            if job.live:
                return situation.finish(status, now_s), ink
            ended, ink = situation.ended_at(status, now_s), state_text.STATE_STYLE[job.state]
        if title == "VS NOW" and job.less is not None:
            ink = "running" if job.less > 0.004 else "warning" if job.less < -0.004 else "text"
            return figures.signed(-job.less, figures.percent), ink
        watts = status.power_w if job.live else None
        sign = state_text.mark(status, "gco2_g" if status.at_end is None else "at_end")
        told = {
            "OWNER": job.target.owner,
            "NODE": status.host,
            "GPU": str(len(status.gpus) or ""),
            "MEMORY": f"{sum(used) / 2**30:.0f} GiB" if used else "",
            "BUSY": figures.percent(sum(busy) / len(busy)) if busy else "",
            "WATTS": watts is not None and state_text.marked(figures.watts(watts), state_text.mark(status, "power_w")),
            "ENDS": ended and f"{palette.STATES[job.state]} {ended}",
            "CO₂ END": job.grams is not None and state_text.marked(figures.grams(job.grams), sign),
        }
        return told.get(title) or "–", ink


def counted(jobs: tuple[ListedJob, ...]) -> str:
    """'4 live' or 'no job is running here'."""
    alive = sum(job.status.state in protocol.LIVE_STATES for job in jobs)
    return f"{alive} live" if alive else "no job is running here"
