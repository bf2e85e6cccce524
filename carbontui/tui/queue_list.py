"""A cluster's queue as its page shows it: the rows of jobs or nodes, their order, and the one under the cursor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from carbontui import protocol
from carbontui.tui.target import Target


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A job or a node. `state` chooses shape and colour, `told` says it in words. Watts without a mark are metered by
    carbontui there; `~` marks what is only stated or assumed; None: nobody meters it."""

    id: str
    name: str
    user: str
    where: str
    state: protocol.State
    told: str
    watts: float | None = None
    mark: str = ""
    ours: bool = False
    grams: float | None = None
    ends_s: float | None = None
    deadline_s: float | None = None
    open: Callable[[], Target] | None = None
    """What its dashboard is opened on; may block. None where carbontui does not run there."""


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One look. Slots are from now on: mean watts as far as begins and ends are known; budget, intensity if given."""

    jobs: tuple[QueueRow, ...] = ()
    nodes: tuple[QueueRow, ...] = ()
    start_s: float = 0.0
    slot_s: float = 1800.0
    now_w: float = 0.0
    """Of everything that runs, as stated or assumed."""
    watts: tuple[float, ...] = ()
    cap_w: tuple[float, ...] = ()
    intensity: tuple[float, ...] = ()
    source: str = ""
    faults: tuple[str, ...] = ()


_LAST = float("inf")
_RUNS = frozenset({"running", "throttled", "pausing", "paused", "starting"})
SORTS: dict[str, Callable[[QueueRow], tuple[object, ...]]] = {
    "state": lambda row: (row.state not in _RUNS,),
    "watts": lambda row: (-(row.watts or -1.0),),
    "finish": lambda row: (row.ends_s or _LAST,),
    "slack": lambda row: (row.deadline_s - row.ends_s if row.deadline_s and row.ends_s else _LAST,),
    "user": lambda row: (row.user,),
}
"""What the rows can be sorted by, in the order of the key; equal ones stay as Slurm lists them."""


@dataclass(frozen=True, slots=True)
class QueueList:
    """A value, replaced at every key and every look. `rows` are those shown, already sorted and filtered."""

    seen: QueueSeen = QueueSeen()
    nodes: bool = False
    sort: str = "state"
    wanted: str = ""
    place: int = 0
    rows: tuple[QueueRow, ...] = ()

    def _again(self, cursor: str | None) -> QueueList:
        word = self.wanted.lower()
        found = self.seen.nodes if self.nodes else self.seen.jobs
        if word:
            found = tuple(r for r in found if word in f"{r.id} {r.name} {r.user} {r.where} {r.told}".lower())
        rows = tuple(sorted(found, key=SORTS[self.sort]))
        at = next((place for place, row in enumerate(rows) if row.id == cursor), None)
        place = min(self.place, len(rows) - 1) if at is None else at
        return replace(self, rows=rows, place=max(0, place))

    def pointed(self) -> QueueRow | None:
        return self.rows[self.place] if self.rows else None

    def now(self, seen: QueueSeen) -> QueueList:
        """The same list after another look; the cursor keeps its job."""
        pointed = self.pointed()
        return replace(self, seen=seen)._again(pointed.id if pointed else None)

    def moved(self, rows: int) -> QueueList:
        return replace(self, place=max(0, min(len(self.rows) - 1, self.place + rows)))

    def toggled(self) -> QueueList:
        """Nodes instead of jobs, or jobs again."""
        return replace(self, nodes=not self.nodes, place=0)._again(None)

    def resorted(self) -> QueueList:
        names = list(SORTS)
        pointed = self.pointed()
        turned = replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])
        return turned._again(pointed.id if pointed else None)

    def filtered(self, word: str) -> QueueList:
        pointed = self.pointed()
        return replace(self, wanted=word.strip())._again(pointed.id if pointed else None)
