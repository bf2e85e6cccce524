"""Rows with a cursor, marks, an order and a filter, as the table of jobs and the queue page use them.

A value, replaced at every key and every look. Cursor and marks refer to ids, so they stay with their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from carbontui import protocol, units
from carbontui.text import account, situation
from carbontui.tui.model import words
from carbontui.tui.model.target import Target

Row = TypeVar("Row", bound="ListedJob | QueueRow")
"""A row has an `id`, and `sought`, the text that a filter searches."""
List = TypeVar("List", bound="RowList[Any]")
Orders = Mapping[str, Callable[[Any], tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class RowList(Generic[Row]):
    """`rows` are all rows in the order given; `shown` those that contain `wanted`, sorted; `place` is the cursor's
    index among them. `cursor` is its id, None while there is no row."""

    ORDERS: ClassVar[Orders] = {}
    """The sort orders, in the order the key cycles through. Equal rows keep their order."""

    rows: tuple[Row, ...] = ()
    shown: tuple[Row, ...] = ()
    place: int = 0
    cursor: str | None = None
    marked: frozenset[str] = frozenset()
    sort: str = "state"
    wanted: str = ""

    def pointed(self) -> Row | None:
        """The row under the cursor."""
        return self.shown[self.place] if self.shown else None

    def meant(self) -> tuple[Row, ...]:
        """The rows a command applies to: the marked rows that are shown, else the one under the cursor."""
        pointed = self.pointed()
        return tuple(row for row in self.shown if row.id in self.marked) or ((pointed,) if pointed else ())

    def now(self: List, rows: tuple[Any, ...]) -> List:
        """The same list after another look."""
        return replace(self, rows=rows, marked=self.marked & {row.id for row in rows})._arranged()

    def moved(self: List, steps: int) -> List:
        return self._at(self.place + steps)

    def toggled(self: List) -> List:
        """Mark or unmark the row under the cursor, and move to the next."""
        pointed = self.pointed()
        return replace(self, marked=self.marked ^ {pointed.id}).moved(1) if pointed else self

    def resorted(self: List) -> List:
        names = list(self.ORDERS)
        return replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])._arranged()

    def filtered(self: List, word: str) -> List:
        return replace(self, wanted=word.strip())._arranged()

    def _arranged(self: List) -> List:
        word = self.wanted.lower()
        found = [row for row in self.rows if word in row.sought.lower()] if word else self.rows
        listed = replace(self, shown=tuple(sorted(found, key=self.ORDERS[self.sort])))
        at = next((place for place, row in enumerate(listed.shown) if row.id == self.cursor), None)
        # when the cursor's row is gone it moves to the neighbour, not to the top
        return listed._at(self.place if at is None else at)

    def _at(self: List, place: int) -> List:
        if not self.shown:
            held = any(row.id == self.cursor for row in self.rows)  # hidden by the filter: it comes back
            return replace(self, place=0, cursor=self.cursor if held else None)
        place = max(0, min(len(self.shown) - 1, place))
        return replace(self, place=place, cursor=self.shown[place].id)


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
        if self.lost_touch:
            return f"no answer just now; last: {self.status.reason.text}"
        return self.error or self.status.reason.text

    @property
    def headline(self) -> str:
        """'held: the site budget has no room · b: run it now'."""
        key = words.way_on(self.status)
        return f"{situation.state(self.status)}: {self.why}" + (f" · {key}" if key else "")

    @property
    def needs_a_look(self) -> bool:
        """Whether it stands still or came to a bad end."""
        return self.status.state in ("failed", "lost", "paused", "unloaded", "waiting") or self.lost_touch

    @property
    def sought(self) -> str:
        return f"{self.name} {self.id} {situation.state(self.status)} {self.why}"


_LAST = float("inf")


@dataclass(frozen=True, slots=True)
class JobList(RowList[ListedJob]):
    """The jobs of the table."""

    ORDERS: ClassVar[Orders] = {
        "state": lambda job: (not job.live, -units.from_iso(job.status.measured_at) if not job.live else 0.0),
        "name": lambda job: (job.name.lower(),),
        "watts": lambda job: (-(job.status.power_w or -1.0),),
        "done": lambda job: (-(job.done if job.done is not None else -1.0),),
        "finish": lambda job: (units.from_iso(job.status.finish_expected) if job.status.finish_expected else _LAST,),
        "CO2": lambda job: (-(job.grams if job.grams is not None else -1.0),),
    }

    def labels(self) -> Callable[[ListedJob], str]:
        """A job's label: its name, with the id added where another job has the same name."""
        named = Counter(job.name for job in self.rows)
        return lambda job: f"{job.name} {job.id}" if named[job.name] > 1 else job.name


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A job or a node. `state` chooses shape and colour, `told` is its text. Watts without a mark are metered by
    carbontui there; `~` marks stated or assumed watts; None: not metered."""

    id: str
    name: str
    user: str
    where: str
    state: protocol.State
    message: str
    watts: float | None = None
    mark: str = ""
    ours: bool = False
    grams: float | None = None
    ends_s: float | None = None
    deadline_s: float | None = None
    open: Callable[[], Target] | None = None
    """Gives the target of its dashboard; may block. None where carbontui does not run there."""

    @property
    def sought(self) -> str:
        return f"{self.id} {self.name} {self.user} {self.where} {self.message}"


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One look. Slots start now: mean watts as far as starts and ends are known; budget and intensity if given."""

    jobs: tuple[QueueRow, ...] = ()
    nodes: tuple[QueueRow, ...] = ()
    start_s: float = 0.0
    slot_s: float = 1800.0
    now_w: float = 0.0
    """Watts of everything that runs, as stated or assumed."""
    watts: tuple[float, ...] = ()
    cap_w: tuple[float, ...] = ()
    intensity: tuple[float, ...] = ()
    source: str = ""
    faults: tuple[str, ...] = ()


_RUNS = frozenset({"running", "throttled", "pausing", "paused", "starting"})


@dataclass(frozen=True, slots=True)
class QueueList(RowList[QueueRow]):
    """The jobs of a look, or its nodes."""

    ORDERS: ClassVar[Orders] = {
        "state": lambda row: (row.state not in _RUNS,),
        "watts": lambda row: (-(row.watts or -1.0),),
        "finish": lambda row: (row.ends_s or _LAST,),
        "slack": lambda row: (row.deadline_s - row.ends_s if row.deadline_s and row.ends_s else _LAST,),
        "user": lambda row: (row.user,),
    }

    listing: QueueSeen = QueueSeen()
    nodes: bool = False

    def looked(self, listing: QueueSeen) -> QueueList:
        """The same list after another look; the cursor keeps its job."""
        return replace(self, listing=listing).now(listing.nodes if self.nodes else listing.jobs)

    def turned(self) -> QueueList:
        """Nodes instead of jobs, or jobs again."""
        return replace(self, nodes=not self.nodes, place=0, cursor=None).looked(self.listing)
