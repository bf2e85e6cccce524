"""The table of jobs: one row each, name and reason as wide as space allows."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len, set_cell_size

from carbontui import protocol, units
from carbontui.text import figures, situation
from carbontui.tui import words
from carbontui.tui.job_list import JobList, ListedJob
from carbontui.tui.widgets.cells import CellRow, Span
from carbontui.tui.widgets.row_table import MESSAGE_LEAST, RowTable, TableColumn, cut

NAME_LEAST = 10
GRAMS = "CO₂"


class JobTable(RowTable):
    """Live jobs and those that are over."""

    COLUMNS = (
        TableColumn("GPU", 5, 90),
        TableColumn("WATTS", 9, 0, "watts"),
        TableColumn("DONE", 6, 0, "done"),
        TableColumn("ENDS", 11, 60, "finish"),
        TableColumn(GRAMS, 11, 40, "CO2"),
        TableColumn("VS NOW", 8, 52),
    )
    MESSAGE = "WHY"
    listed: JobList = JobList()

    def why_empty(self) -> str:
        return "no job contains the word" if self.listed.rows else "no job yet: carbontui run -- python train.py"

    def names(self, left: int) -> tuple[str, Callable[[ListedJob, bool], CellRow]]:
        label = self.listed.labels()
        longest = max(cell_len(label(job)) for job in self.listed.shown)
        # the name first: the reason is also shown beneath the table, but a truncated name is useless
        cells = min(longest + 1, left) if left - longest - 3 < MESSAGE_LEAST else longest + 1
        cells = max(NAME_LEAST, cells) if left >= NAME_LEAST else max(1, left)

        def named(job: ListedJob, pointed: bool) -> CellRow:
            return [(cut(label(job), cells), "strong" if job.live or pointed else "text")]

        return set_cell_size("JOB", cells), named

    def message(self, job: ListedJob) -> Span:
        return job.why, "fault" if job.error else "dim"

    def value(self, title: str, job: ListedJob) -> Span:
        status, ink = job.status, "text" if job.live else "dim"
        if title == "GPU":
            return (str(len(status.gpus)) if status.gpus else "–"), "text"
        if title == "WATTS":
            if not job.live or status.power_w is None:
                return "–", "dim"
            return words.marked(figures.watts(status.power_w), words.mark(status, "power_w")), "text"
        if title == "DONE":
            return ("–" if job.done is None else figures.percent(job.done)), "text"
        if title == "ENDS":
            # the clock of a replayed job is not ours
            now_s = units.from_iso(status.measured_at) if status.replayed else self.now_s
            return situation.finish(status, now_s) if job.live else situation.ended_at(status, now_s) or "–", ink
        if title == GRAMS:
            sign = words.mark(status, "gco2_g" if status.at_end is None else "at_end")  # the whole, as it is expected
            return words.marked(figures.grams(job.grams), "" if job.grams is None else sign), ink
        less = job.less
        if less is None:
            return "–", "dim"
        ink = "running" if less > 0.004 else "warning" if less < -0.004 else "text"
        return figures.signed(-less, figures.percent), ink


def summed_w(jobs: tuple[ListedJob, ...]) -> float | None:
    """Watts of the live jobs together; None where none of them is known."""
    known = [job.status.power_w for job in jobs if job.live and job.status.power_w is not None]
    return sum(known) if known else None


def counted(jobs: tuple[ListedJob, ...]) -> str:
    """'4 live' or 'no job is running here'."""
    alive = sum(job.status.state in protocol.LIVE_STATES for job in jobs)
    return f"{alive} live" if alive else "no job is running here"
