"""The jobs of the table: what a row shows, and the sort orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from carbontui import protocol, units
from carbontui.text import account, situation
from carbontui.tui.row_list import Orders, RowList
from carbontui.tui.target import Target


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One job as the table shows it. `error` is the last line of a failed job's traceback, '' where there is none."""

    target: Target
    status: protocol.Status
    error: str = ""
    lost_touch: bool = False
    """Its supervisor does not answer at the moment: the status is the last one received."""

    @property
    def id(self) -> str:
        return self.target.job

    @property
    def state(self) -> protocol.State:
        return self.status.state

    @property
    def name(self) -> str:
        """With the host before it, if that is another machine."""
        return f"{self.target.host}:{self.status.name}" if self.target.host else self.status.name

    @property
    def live(self) -> bool:
        return self.status.state in protocol.LIVE_STATES

    @property
    def done(self) -> float | None:
        """Share of the work that is done, 0..1; None where the total is not known."""
        return situation.done(self.status)

    @property
    def grams(self) -> float | None:
        """The expected total of the whole job if known, else so far."""
        return self.status.gco2_g if self.status.at_end is None else self.status.at_end.gco2_g

    @property
    def less(self) -> float | None:
        """Share saved against run-now, expected or, for a finished job, final; None while unknown."""
        status, end = self.status, self.status.at_end
        if end is not None:
            return account.share(end.avoided_g, end.run_now_g)
        return None if self.live else account.share(status.avoided_g, status.run_now_g)

    @property
    def why(self) -> str:
        if self.lost_touch:
            return f"no answer just now; last: {self.status.reason.text}"
        return self.error or self.status.reason.text

    @property
    def sought(self) -> str:
        return f"{self.name} {self.id} {situation.state(self.status)} {self.why}"


_LAST = float("inf")
SORTS: Orders = {
    "state": lambda job: (not job.live, -units.from_iso(job.status.measured_at) if not job.live else 0.0),
    "name": lambda job: (job.name.lower(),),
    "watts": lambda job: (-(job.status.power_w or -1.0),),
    "done": lambda job: (-(job.done if job.done is not None else -1.0),),
    "finish": lambda job: (units.from_iso(job.status.finish_expected) if job.status.finish_expected else _LAST,),
    "CO2": lambda job: (-(job.grams if job.grams is not None else -1.0),),
}


@dataclass(frozen=True, slots=True)
class JobList(RowList[ListedJob]):
    """The jobs of the table."""

    ORDERS: ClassVar[Orders] = SORTS

    def labels(self) -> Callable[[ListedJob], str]:
        """A job's label: its name, with the id added where another job has the same name."""
        named = Counter(job.name for job in self.rows)
        return lambda job: f"{job.name} {job.id}" if named[job.name] > 1 else job.name
