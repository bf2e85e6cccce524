"""The table of jobs: one row each, the name and the reason as wide as there is room."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from carbontui import protocol, units
from carbontui.tui import words
from carbontui.tui.job_list import JobList, ListedJob
from carbontui.tui.widgets.cells import CellRow, Cells, Ink

NAME_LEAST = 10
WHY_LEAST = 16
"""Below this many cells a reason is not worth its place."""


class JobTable(Cells):
    """`show(listed, now_s)`; as many rows as there is height, the one under the cursor always among them."""

    listed = JobList()
    now_s = 0.0
    _top = 0

    def show(self, listed: JobList, now_s: float) -> None:
        self.listed, self.now_s = listed, now_s
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        shown, room = self.listed.shown(), height - 1
        if not shown:
            told = "no job has the word" if self.listed.jobs else "no job yet: carbontui run -- python train.py"
            return [[(f"  {told}", "dim")]]
        place = self.listed.place()
        self._top = max(0, min(self._top, place, len(shown) - room), place - room + 1)
        columns = _fitting(width)
        label = self.listed.labels()
        name, why = _widths([label(job) for job in shown], width)
        rows = [self._head(columns, name, why)]
        for job in shown[self._top : self._top + room]:
            rows.append(self._row(job, label(job), columns, name, why, width, pointed=job is shown[place]))
        return rows

    def tells_why(self) -> bool:
        """Whether the table has room for the reasons."""
        label, shown = self.listed.labels(), self.listed.shown()
        return not shown or _widths([label(job) for job in shown], self.content_size.width)[1] > 0

    def _head(self, columns: list[tuple[str, int, str]], name: int, why: int) -> CellRow:
        row: CellRow = [("    ", "dim"), (set_cell_size("JOB", name), "dim")]
        for title, cells, key in columns:
            row.append((f"{title:>{cells}}", "strong" if key == self.listed.sort else "dim"))
        return [*row, ("  WHY", "dim")] if why else row

    def _row(
        self,
        job: ListedJob,
        label: str,
        columns: list[tuple[str, int, str]],
        name: int,
        why: int,
        width: int,
        *,
        pointed: bool,
    ) -> CellRow:
        status = job.status
        ink = words.STATE_STYLE[status.state]
        mark = self.glyphs.point if job.id in self.listed.marked else self.glyphs.now if pointed else " "
        row: CellRow = [(mark, "preview"), (f" {self.glyphs.states[status.state]} ", ink)]
        row.append((_cut(label, name, self.glyphs.ellipsis), "strong" if job.live or pointed else "text"))
        for title, cells, _ in columns:
            told, how = _value(title, job, self.now_s)
            row.append((f"{told:>{cells}}", how if told != "–" else "dim"))
        if why:
            row.append((f"  {_cut(job.why, why - 1, self.glyphs.ellipsis)}", "fault" if job.error else "dim"))
        if pointed:
            # the whole row, so that without colour and from afar the cursor is seen
            row = [(text, f"{how}/cursor" if isinstance(how, str) and "/" not in how else how) for text, how in row]
            row.append((" " * width, "text/cursor"))
        return row


_COLUMNS = (
    ("GPU", 5, "", 90),
    ("WATTS", 8, "watts", 0),
    ("DONE", 6, "done", 0),
    ("ENDS", 11, "finish", 60),
    ("CO₂ plan", 10, "CO2", 38),
    ("−%", 6, "", 52),
)
"""Title, cells, what it is sorted by, and the width of the table from which it has a place."""


def _fitting(width: int) -> list[tuple[str, int, str]]:
    return [(title, cells, key) for title, cells, key, least in _COLUMNS if width >= least]


def _widths(labels: list[str], width: int) -> tuple[int, int]:
    """Cells of the name and of the reason; 0 where there is no room for that."""
    left = width - sum(cells for _, cells, _ in _fitting(width)) - 4
    longest = max(cell_len(label) for label in labels)
    # the name first: the reason can be read beneath the table, a name cut short names nothing
    name = min(longest + 1, left) if left - longest - 2 < WHY_LEAST else longest + 1
    name = max(NAME_LEAST, name) if left >= NAME_LEAST else max(1, left)
    why = left - name - 1
    return name, why if why >= WHY_LEAST else 0


def _value(title: str, job: ListedJob, now_s: float) -> tuple[str, Ink]:
    """What stands in a column, and its ink."""
    status = job.status
    if title == "GPU":
        return (str(len(status.gpus)) if status.gpus else "–"), "text"
    if title == "WATTS":
        if not job.live or status.power_w is None:
            return "–", "dim"
        return f"{units.fmt_watts(status.power_w).replace(' ', '')}{words.mark(status, 'power_w')}", "text"
    if title == "DONE":
        return ("–" if job.done is None else f"{job.done:.0%}"), "text"
    if title == "ENDS":
        ends = words.finish(status, now_s) if job.live else words.ended_at(status, now_s) or "–"
        return ends, "text" if job.live else "dim"
    if title.startswith("CO"):
        return ("–" if job.grams is None else units.fmt_grams(job.grams)), "text" if job.live else "dim"
    less = job.less
    if less is None:
        return "–", "dim"
    return f"{-less:+.0%}".replace("-", "−"), "running" if less > 0.004 else "warning" if less < -0.004 else "text"


def _cut(text: str, cells: int, ellipsis: str) -> str:
    """The text in exactly so many cells, ending in an ellipsis where it was cut."""
    if cells < 1 or cell_len(text) <= cells:
        return set_cell_size(text, max(0, cells))
    return set_cell_size(text, cells - 1) + ellipsis


def summed_w(jobs: tuple[ListedJob, ...]) -> float | None:
    """Watts of the live jobs together; None where none of them is known."""
    known = [job.status.power_w for job in jobs if job.live and job.status.power_w is not None]
    return sum(known) if known else None


def counted(jobs: tuple[ListedJob, ...]) -> str:
    """'4 live' or 'no job is running here'."""
    alive = sum(job.status.state in protocol.LIVE_STATES for job in jobs)
    return f"{alive} live" if alive else "no job is running here"
