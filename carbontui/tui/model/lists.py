"""The jobs of the table with a cursor, marks, an order and a filter.

A value, replaced at every key and every look. Cursor and marks refer to ids, so they stay with their rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from carbontui import protocol, units
from carbontui.text import account, situation
from carbontui.text.forms import led
from carbontui.tui.model import state_text
from carbontui.tui.model.feed import Target
from carbontui.tui.model.view_state import PastLevels, ViewState


class ListedJob(Struct, frozen=True):
    """One job as the table shows it. `error` is the last line of a failed job's traceback, '' where there is none."""

    target: Target
    status: protocol.Status
    error: str = ""
    lost_touch: bool = False
    """Its supervisor does not answer at the moment: the status is the last one received."""
    view_state: ViewState | None = None
    past: PastLevels | None = None

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
    def grams(self) -> float | None:
        """Of the whole job: as expected, or as it was once it is over; None while that is not known."""
        end = self.status.at_end
        return end.gco2_g if end is not None else None if self.live else self.status.gco2_g

    @property
    def less(self) -> float | None:
        """Share saved against run-now, expected or, for a finished job, final; None while unknown."""
        status, end = self.status, self.status.at_end
        if end is not None:
            return account.share(end.avoided_g, end.run_now_g)
        return None if self.live else account.share(status.avoided_g, status.run_now_g)

    @property
    def why(self) -> str:
        told = situation.reason(self.status)
        return f"no answer just now; last: {told}" if self.lost_touch else self.error or told

    @property
    def headline(self) -> str:
        """'held: the site budget has no room · b: run it now'."""
        key, diverged = state_text.way_on(self.status), situation.diverged(self.status)
        told = led(situation.state(self.status), self.why) + (f" · {key}" if key else "")
        return f"{diverged}; {told}" if diverged else told

    @property
    def needs_attention(self) -> bool:
        """Whether it stands still or came to a bad end."""
        still = self.state in ("failed", "lost", "paused", "unloaded", "waiting")
        return still or self.lost_touch or bool(situation.diverged(self.status))

    @property
    def sought(self) -> str:
        return f"{self.name} {self.id} {situation.state(self.status)} {self.why}"


class JobList(Struct, frozen=True):
    """`rows` are all rows in the order given; `shown` those that contain `wanted`, sorted; `place` is the cursor's
    index among them. `cursor` is its id, None while there is no row."""

    ORDERS: ClassVar[Mapping[str, Callable[[ListedJob], tuple[object, ...]]]] = {
        "state": lambda job: (not job.live, -units.from_iso(job.status.measured_at) if not job.live else 0.0),
        "name": lambda job: (job.name.lower(),),
        "watts": lambda job: (-(job.status.power_w or -1.0),),
        "done": lambda job: (-(situation.done(job.status) or 0.0),),
        "finish": lambda job: (units.from_iso(job.status.finish_expected) if job.status.finish_expected else math.inf,),
        "CO2": lambda job: (-(job.grams if job.grams is not None else -1.0),),
    }
    """The sort orders, in the order the key cycles through. Equal rows keep their order."""

    rows: tuple[ListedJob, ...] = ()
    shown: tuple[ListedJob, ...] = ()
    place: int = 0
    cursor: str | None = None
    marked: frozenset[str] = frozenset()
    sort: str = "state"
    wanted: str = ""

    def pointed(self) -> ListedJob | None:
        """The row under the cursor."""
        return self.shown[self.place] if self.shown else None

    def meant(self) -> tuple[ListedJob, ...]:
        """The rows a command applies to: the marked rows that are shown, else the one under the cursor."""
        pointed = self.pointed()
        return tuple(row for row in self.shown if row.id in self.marked) or ((pointed,) if pointed else ())

    def now(self, rows: tuple[ListedJob, ...]) -> JobList:
        """The same list after another look."""
        return replace(self, rows=rows, marked=self.marked & {row.id for row in rows})._arranged()

    def moved(self, steps: int) -> JobList:
        return self._at(self.place + steps)

    def toggled(self) -> JobList:
        """Mark or unmark the row under the cursor, and move to the next."""
        pointed = self.pointed()
        return replace(self, marked=self.marked ^ {pointed.id}).moved(1) if pointed else self

    def resorted(self) -> JobList:
        names = list(self.ORDERS)
        return replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])._arranged()

    def filtered(self, word: str) -> JobList:
        return replace(self, wanted=word.strip())._arranged()

    def _arranged(self) -> JobList:
        word = self.wanted.lower()
        found = [row for row in self.rows if word in row.sought.lower()] if word else self.rows
        listed = replace(self, shown=tuple(sorted(found, key=self.ORDERS[self.sort])))
        at = next((place for place, row in enumerate(listed.shown) if row.id == self.cursor), None)
        # when the cursor's row is gone it moves to the neighbour, not to the top
        return listed._at(self.place if at is None else at)

    def _at(self, place: int) -> JobList:
        if not self.shown:
            held = any(row.id == self.cursor for row in self.rows)  # hidden by the filter: it comes back
            return replace(self, place=0, cursor=self.cursor if held else None)
        place = max(0, min(len(self.shown) - 1, place))
        return replace(self, place=place, cursor=self.shown[place].id)

    def labels(self) -> Callable[[ListedJob], str]:
        """A job's label: its name, with the id added where another job has the same name."""
        named = Counter(job.name for job in self.rows)
        return lambda job: f"{job.name} {job.id}" if named[job.name] > 1 else job.name
