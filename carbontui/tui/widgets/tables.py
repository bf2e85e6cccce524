"""The table of all jobs, with a cursor."""

from collections.abc import Callable
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from carbontui.text import figures, situation
from carbontui.tui.model import state_text
from carbontui.tui.model.lists import JobList, ListedJob
from carbontui.tui.terminal import palette
from carbontui.tui.widgets import levels
from carbontui.tui.widgets.cells import CellRow, Cells, Span, cut
from carbontui.tui.widgets.scale import bars
from carbontui.tui.widgets.timeline import axis

MARKED = 4
"""Cells of the marks before a row."""
NAME_LEAST, STATE_CELLS, BAR_CELLS, SPARK_CELLS, LOSS_CELLS = 10, 9, 5, 6, 13
ROOMY, WIDE = 110, 150
"""Cells from which a table has more columns."""


def under_cursor(row: CellRow, width: int) -> CellRow:
    """Highlight the whole row, so that the cursor is visible without colour and from a distance."""
    painted: CellRow = [
        (text, f"{how}/cursor" if isinstance(how, str) and "/" not in how else how) for text, how in row
    ]
    return [*painted, (" " * width, "text/cursor")]


def _ink(job: ListedJob) -> str:
    return "text" if job.live else "dim"


def _done(job: ListedJob, now_s: float) -> Span:
    share = situation.done(job.status)
    return ("" if share is None else f"{figures.percent(share):>5}"), _ink(job)


def _bar(job: ListedJob, now_s: float) -> Span:
    share, ink = _done(job, now_s)
    eighths = round((situation.done(job.status) or 0.0) * BAR_CELLS * 8)
    bar = f"{palette.BAR[8] * (eighths // 8)}{palette.PART[eighths % 8]}".ljust(BAR_CELLS)
    return share and f"{bar[:BAR_CELLS]} {share}", ink


def _ends(job: ListedJob, now_s: float) -> Span:
    now_s = situation.read_s(job.status, now_s)
    if job.live:
        return situation.finish(job.status, now_s), "text"
    at = situation.ended_at(job.status, now_s)
    return at and f"{palette.STATES[job.state]} {at}", state_text.STATE_STYLE[job.state]


def _grams(job: ListedJob, now_s: float) -> Span:
    mark = state_text.mark(job.status, "gco2_g" if job.status.at_end is None else "at_end")
    return "" if job.grams is None else state_text.marked(figures.grams(job.grams), mark), _ink(job)


def _less(job: ListedJob, now_s: float) -> Span:
    if job.less is None:
        return "", "dim"
    ink = "running" if job.less > 0.004 else "warning" if job.less < -0.004 else "text"
    return figures.signed(-job.less, figures.percent), ink


def _watts(job: ListedJob, now_s: float) -> Span:
    watts = job.status.power_w if job.live else None
    mark = state_text.mark(job.status, "power_w")
    return "" if watts is None else state_text.marked(figures.watts(watts), mark), _ink(job)


def _loss(job: ListedJob, now_s: float) -> Span:
    """The newest, and behind it how it fell."""
    said, last = situation.loss(job.status), job.status.last_loss
    if last is not None and not last.finite:
        return f"{said:<{SPARK_CELLS}}", "fault"
    losses = job.view_state.series.loss if job.view_state is not None else ()
    room = min(SPARK_CELLS, LOSS_CELLS - 2 - len(said))
    return said and f"{said} {bars(losses, room) if len(losses) > 1 else '':<{room}}", _ink(job)


def _gpus(job: ListedJob, now_s: float) -> Span:
    return str((job.live and len(job.status.gpus)) or ""), _ink(job)


def _memory(job: ListedJob, now_s: float) -> Span:
    used = [gpu.memory_used_b for gpu in job.status.gpus if job.live and gpu.memory_used_b is not None]
    return f"{sum(used) / 2**30:.0f} GiB" if used else "", _ink(job)


class TableColumn(NamedTuple):
    """`part` says what it shows of a job and in which ink. `order` is the sort order the column belongs to; it is shown
    from a table width of `least` up to `most`."""

    title: str
    cells: int
    part: Callable[[ListedJob, float], Span]
    least: int = 0
    order: str = ""
    most: int = 1 << 30


class JobTable(Cells):
    """`show(listed, now_s)`: live jobs and those that are over, as many rows as fit, always including the one under the
    cursor. A roomy one has each job's day, on one axis for all."""

    COLUMNS = (
        TableColumn("OWNER", 9, lambda job, now_s: (job.target.owner, _ink(job)), ROOMY),
        TableColumn("NODE", 12, lambda job, now_s: (job.status.host, _ink(job)), WIDE),
        TableColumn("GPU", 4, _gpus, 72, "", ROOMY - 1),
        TableColumn("GPU", 4, _gpus, WIDE),
        TableColumn("MEMORY", 9, _memory, ROOMY),
        TableColumn("WATTS", 9, _watts, 0, "watts"),
        TableColumn("DONE", 7, _done, 0, "done", 71),
        TableColumn("DONE", 7 + BAR_CELLS, _bar, 72, "done", ROOMY - 1),
        TableColumn("DONE", 7, _done, ROOMY, "done"),
        TableColumn("ENDS", 11, _ends, 60, "finish"),
        TableColumn("CO₂ END", 11, _grams, 40, "CO2"),
        TableColumn("VS NOW", 7, _less, 52),
        TableColumn("LOSS", LOSS_CELLS, _loss, ROOMY),
    )
    listed = JobList()
    now_s = 0.0
    _top = 0

    def show(self, listed: JobList, now_s: float) -> None:
        self.listed, self.now_s = listed, now_s
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        listed = self.listed
        if not listed.shown:
            empty = "no job contains the word" if listed.rows else "no job yet: carbontui run -- python train.py"
            return [[(f"  {empty}", "dim")]]
        columns = [column for column in self.COLUMNS if column.least <= width <= column.most]
        left = width - MARKED - sum(column.cells for column in columns)
        hours = 0 if width < ROOMY else 24 if width < WIDE + 24 else 48
        title, named = self.names(left - hours - 2 if hours else left)
        head: CellRow = [(" " * MARKED, "dim"), (title, "dim")]
        if hours:
            days = levels.day(self.now_s, hours)
            head += [("  ", "dim"), *axis(days, days.column(self.now_s))[1:]]
        for column in columns:
            # the column the rows are sorted by is highlighted
            head.append((f"{column.title:>{column.cells}}", "strong" if column.order == listed.sort else "dim"))
        rows = [head]
        for at in self.visible_rows(height - 1):
            row, pointed = listed.shown[at], at == listed.place
            mark = palette.POINT if row.id in listed.marked else palette.NOW if pointed else " "
            cells: CellRow = [(mark, "preview"), (f" {palette.STATES[row.state]} ", state_text.STATE_STYLE[row.state])]
            cells += named(row, pointed)
            if hours:
                strip = levels.strip(row.view_state, row.past, hours) if row.view_state else []
                cells += [("  ", "text"), *(strip or [(" " * hours, "text")])]
            for column in columns:
                text, ink = column.part(row, self.now_s)
                cells.append((" " + cut(text or "–", column.cells - 1, right=True), ink if text else "dim"))
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
        cells = max(NAME_LEAST, min(longest + 1, left)) if left >= NAME_LEAST else max(1, left)

        # the shape before the name says it, too; the word where there is room
        word = STATE_CELLS if left - cells >= STATE_CELLS else 0

        def named(job: ListedJob, pointed: bool) -> CellRow:
            state = cut(situation.state(job.status), word), state_text.STATE_STYLE[job.state]
            return [(cut(label(job), cells), "strong" if job.live or pointed else "text"), *([state] if word else [])]

        return set_cell_size("JOB", cells) + set_cell_size("STATE", word), named


def counted(jobs: tuple[ListedJob, ...]) -> str:
    """'4 live' or 'no job is running here'."""
    alive = sum(job.live for job in jobs)
    return f"{alive} live" if alive else "no job is running here"
