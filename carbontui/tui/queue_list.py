"""A cluster's queue as its page shows it: the rows of jobs and nodes, and the sort orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from carbontui import protocol
from carbontui.tui.row_list import Orders, RowList
from carbontui.tui.target import Target


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


_LAST = float("inf")
_RUNS = frozenset({"running", "throttled", "pausing", "paused", "starting"})
SORTS: Orders = {
    "state": lambda row: (row.state not in _RUNS,),
    "watts": lambda row: (-(row.watts or -1.0),),
    "finish": lambda row: (row.ends_s or _LAST,),
    "slack": lambda row: (row.deadline_s - row.ends_s if row.deadline_s and row.ends_s else _LAST,),
    "user": lambda row: (row.user,),
}


@dataclass(frozen=True, slots=True)
class QueueList(RowList[QueueRow]):
    """The jobs of a look, or its nodes."""

    ORDERS: ClassVar[Orders] = SORTS

    listing: QueueSeen = QueueSeen()
    nodes: bool = False

    def looked(self, listing: QueueSeen) -> QueueList:
        """The same list after another look; the cursor keeps its job."""
        return replace(self, listing=listing).now(listing.nodes if self.nodes else listing.jobs)

    def turned(self) -> QueueList:
        """Nodes instead of jobs, or jobs again."""
        return replace(self, nodes=not self.nodes, place=0, cursor=None).looked(self.listing)
