"""The jobs of the table: which are shown, in which order, where the cursor is and what is marked. A value, replaced at
every key and every look; a job keeps its mark and the cursor its job, however the rows move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from carbontui import protocol, units
from carbontui.tui.target import Target


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One job as the table shows it. `error` is the last line of a failed job's traceback, '' where there is none."""

    target: Target
    status: protocol.Status
    error: str = ""
    lost_touch: bool = False
    """Its supervisor does not answer just now: the status is the last that was seen."""

    @property
    def id(self) -> str:
        return self.target.job

    @property
    def name(self) -> str:
        """With the machine before it where that is another one."""
        return f"{self.target.host}:{self.status.name}" if self.target.host else self.status.name

    @property
    def live(self) -> bool:
        return self.status.state in protocol.LIVE_STATES

    @property
    def done(self) -> float | None:
        """Share of the work that is done, 0..1; None where the total is not known."""
        status = self.status
        if status.steps_total:
            return min(1.0, status.step / status.steps_total)
        done_s, total_s = status.work_done_s, status.work_total_s
        return min(1.0, done_s / total_s) if done_s is not None and total_s else None

    @property
    def grams(self) -> float | None:
        """Of the whole job where that is expected, else so far."""
        return self.status.gco2_g if self.status.at_end is None else self.status.at_end.gco2_g

    @property
    def less(self) -> float | None:
        """Share saved against run-now, of the whole job, or of one that is over; None while it cannot be said."""
        status, end = self.status, self.status.at_end
        if end is not None:
            return end.avoided_g / end.run_now_g if end.avoided_g is not None and end.run_now_g else None
        run_now = (status.avoided_g or 0.0) + (status.gco2_g or 0.0)
        return status.avoided_g / run_now if status.avoided_g is not None and run_now > 0 and not self.live else None

    @property
    def why(self) -> str:
        if self.lost_touch:
            return f"no answer just now; last: {self.status.reason.text}"
        return self.error or self.status.reason.text


_LAST = float("inf")
SORTS: dict[str, Callable[[ListedJob], tuple[object, ...]]] = {
    "state": lambda job: (not job.live, -units.from_iso(job.status.measured_at) if not job.live else 0.0),
    "name": lambda job: (job.name.lower(),),
    "watts": lambda job: (-(job.status.power_w or -1.0),),
    "done": lambda job: (-(job.done if job.done is not None else -1.0),),
    "finish": lambda job: (units.from_iso(job.status.finish_expected) if job.status.finish_expected else _LAST,),
    "CO2": lambda job: (-(job.grams if job.grams is not None else -1.0),),
}
"""What the rows can be sorted by; the order in which the key steps through them. Equal ones stay as they came."""


@dataclass(frozen=True, slots=True)
class JobList:
    """`jobs` are all there are, in the order they came; `cursor` is the id of a job, None while there is none."""

    jobs: tuple[ListedJob, ...] = ()
    cursor: str | None = None
    marked: frozenset[str] = frozenset()
    sort: str = "state"
    wanted: str = ""

    def shown(self) -> tuple[ListedJob, ...]:
        """The jobs with the word that is looked for, sorted."""
        word = self.wanted.lower()
        found = [job for job in self.jobs if word in f"{job.name} {job.id} {job.status.state} {job.why}".lower()]
        return tuple(sorted(found, key=SORTS[self.sort]))

    def labels(self) -> Callable[[ListedJob], str]:
        """What names a job: its name, with the id behind it where another one has the same."""
        named = Counter(job.name for job in self.jobs)
        return lambda job: f"{job.name} {job.id}" if named[job.name] > 1 else job.name

    def place(self) -> int:
        """The row of the cursor; 0 where nothing is shown."""
        ids = [job.id for job in self.shown()]
        return ids.index(self.cursor) if self.cursor in ids else 0

    def pointed(self) -> ListedJob | None:
        """The job under the cursor."""
        shown = self.shown()
        return shown[self.place()] if shown else None

    def meant(self) -> tuple[ListedJob, ...]:
        """What a command is for: the marked jobs that are shown, else the one under the cursor."""
        marked = tuple(job for job in self.shown() if job.id in self.marked)
        pointed = self.pointed()
        return marked or ((pointed,) if pointed else ())

    def now(self, jobs: tuple[ListedJob, ...]) -> JobList:
        """The same list after another look."""
        ids = {job.id for job in jobs}
        kept = self.cursor if self.cursor in ids else None
        listed = replace(self, jobs=jobs, marked=self.marked & ids, cursor=kept)
        if kept is None and (pointed := replace(listed, cursor=None).pointed()):
            # the row of a job that is gone goes to its neighbour, not to the top
            place = min(self.place(), len(listed.shown()) - 1)
            listed = replace(listed, cursor=listed.shown()[place].id if self.cursor else pointed.id)
        return listed

    def moved(self, rows: int) -> JobList:
        shown = self.shown()
        if not shown:
            return self
        return replace(self, cursor=shown[max(0, min(len(shown) - 1, self.place() + rows))].id)

    def toggled(self) -> JobList:
        """Mark the job under the cursor, or take its mark away, and go on to the next."""
        pointed = self.pointed()
        return replace(self, marked=self.marked ^ {pointed.id}).moved(1) if pointed else self

    def resorted(self) -> JobList:
        names = list(SORTS)
        return replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])

    def filtered(self, word: str) -> JobList:
        narrowed = replace(self, wanted=word.strip())
        pointed = narrowed.pointed()
        return replace(narrowed, cursor=pointed.id if pointed else self.cursor)
