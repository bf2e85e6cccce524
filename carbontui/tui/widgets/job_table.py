"""The table of jobs: one row each, name and reason as wide as space allows."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from carbontui import protocol, units
from carbontui.text import figures, situation
from carbontui.tui import glyphs, words
from carbontui.tui.job_list import JobList, ListedJob
from carbontui.tui.widgets.cells import CellRow, Ink
from carbontui.tui.widgets.row_table import RowTable, TableColumn, fitting

NAME_LEAST = 10
WHY_LEAST = 16
"""Below this many cells the reason is not shown."""


class JobTable(RowTable):
    """Live jobs and those that are over."""

    listed: JobList = JobList()

    def draw(self, width: int, height: int) -> list[CellRow]:
        listed = self.listed
        if not listed.shown:
            told = "no job contains the word" if listed.rows else "no job yet: carbontui run -- python train.py"
            return [[(f"  {told}", "dim")]]
        columns, label = fitting(COLUMNS, width), listed.labels()
        name, why = _widths([label(job) for job in listed.shown], width)
        rows = [self.head(set_cell_size("JOB", name), columns, "WHY" if why else "")]
        for at in self.visible_rows(height - 1):
            job, pointed = listed.shown[at], at == listed.place
            row = self._row(job, label(job), columns, name, why, pointed=pointed)
            rows.append(self.under_cursor(row, width) if pointed else row)
        return rows

    def tells_why(self) -> bool:
        """Whether the table has room for reasons."""
        label, shown = self.listed.labels(), self.listed.shown
        return not shown or _widths([label(job) for job in shown], self.content_size.width)[1] > 0

    def _row(
        self, job: ListedJob, label: str, columns: list[TableColumn], name: int, why: int, *, pointed: bool
    ) -> CellRow:
        status = job.status
        ink = words.STATE_STYLE[status.state]
        mark = glyphs.POINT if job.id in self.listed.marked else glyphs.NOW if pointed else " "
        row: CellRow = [(mark, "preview"), (f" {glyphs.STATES[status.state]} ", ink)]
        row.append((self.cut(label, name), "strong" if job.live or pointed else "text"))
        for column in columns:
            told, how = _value(column.title, job, self.now_s)
            row.append((f" {told:>{column.cells - 1}}", how if told != "–" else "dim"))
        if why:
            row.append((f"  {self.cut(job.why, why - 1)}", "fault" if job.error else "dim"))
        return row


GRAMS = "CO₂"
COLUMNS = (
    TableColumn("GPU", 5, 90),
    TableColumn("WATTS", 9, 0, "watts"),
    TableColumn("DONE", 6, 0, "done"),
    TableColumn("ENDS", 11, 60, "finish"),
    TableColumn(GRAMS, 11, 40, "CO2"),
    TableColumn("VS NOW", 8, 52),
)


def _widths(labels: list[str], width: int) -> tuple[int, int]:
    """Cells of the name and of the reason; 0 where there is no room for that."""
    left = width - sum(column.cells for column in fitting(COLUMNS, width)) - 4
    longest = max(cell_len(label) for label in labels)
    # the name first: the reason is also shown beneath the table, but a truncated name is useless
    name = min(longest + 1, left) if left - longest - 2 < WHY_LEAST else longest + 1
    name = max(NAME_LEAST, name) if left >= NAME_LEAST else max(1, left)
    why = left - name - 1
    return name, why if why >= WHY_LEAST else 0


def _value(title: str, job: ListedJob, now_s: float) -> tuple[str, Ink]:
    """The content of a column, and its ink."""
    status = job.status
    if title == "GPU":
        return (str(len(status.gpus)) if status.gpus else "–"), "text"
    if title == "WATTS":
        if not job.live or status.power_w is None:
            return "–", "dim"
        return words.marked(figures.watts(status.power_w), words.mark(status, "power_w")), "text"
    if title == "DONE":
        return ("–" if job.done is None else figures.percent(job.done)), "text"
    if title == "ENDS":
        if status.replayed:  # its clock is not ours
            now_s = units.from_iso(status.measured_at)
        ends = situation.finish(status, now_s) if job.live else situation.ended_at(status, now_s) or "–"
        return ends, "text" if job.live else "dim"
    if title == GRAMS:
        sign = words.mark(status, "gco2_g" if status.at_end is None else "at_end")  # the whole, as it is expected
        return words.marked(figures.grams(job.grams), "" if job.grams is None else sign), "text" if job.live else "dim"
    less = job.less
    if less is None:
        return "–", "dim"
    return figures.signed(-less, figures.percent), "running" if less > 0.004 else "warning" if less < -0.004 else "text"


def summed_w(jobs: tuple[ListedJob, ...]) -> float | None:
    """Watts of the live jobs together; None where none of them is known."""
    known = [job.status.power_w for job in jobs if job.live and job.status.power_w is not None]
    return sum(known) if known else None


def counted(jobs: tuple[ListedJob, ...]) -> str:
    """'4 live' or 'no job is running here'."""
    alive = sum(job.status.state in protocol.LIVE_STATES for job in jobs)
    return f"{alive} live" if alive else "no job is running here"
