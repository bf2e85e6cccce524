"""What a job claims of a power budget that it shares, and what is left to it: the structs of the hook `exchange`.

Watts are those of a job's boards, which power limits govern; the machine's other draw is not in the budget. Times are
epoch seconds. The core claims and plans by these; who divides the budget is an extension.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec import Struct

TOLERANCE_W = 1.0


class LevelAhead(Struct, frozen=True, kw_only=True):
    """A level of a job: watts of its boards as the budget counts them, watts at the wall, relative speed."""

    claimed_w: float
    drawn_w: float
    speed: float


class Ahead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's remaining work and plan, for the plans of the others. Times are epoch seconds."""

    levels: tuple[LevelAhead, ...]
    work_s: float
    """Remaining work, in seconds at full speed."""
    deadline_s: float
    planned: tuple[tuple[float, float], ...] = ()
    """Its plan as successive (until, watts claimed); no watts after the last."""


class SharedWatts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A power budget as seen by one job's plan; lists have one entry per slot, slot 0 starts at `start_s` (epoch s)."""

    start_s: float
    room_w: tuple[float | None, ...]
    """Watts for this job and `others`; None: no budget."""
    planned_w: tuple[float, ...]
    """Watts of it claimed by the plans of the others."""
    claimed_w: tuple[float, ...]
    """Watts claimed by each level of this job."""
    others: tuple[Ahead, ...] = ()


class Claim(Struct, frozen=True, kw_only=True):
    """What one job can draw, wants and holds; all in total watts of its boards."""

    job: str
    name: str = ""
    boards: int = 1
    full_w: float
    """At the original limits: what it draws when unrestricted."""
    least_w: float
    """Running at the lowest limits; `full_w` if none can be set."""
    floor_w: float
    """Its minimum: parked if it may be paused, else `least_w`."""
    wants_w: float
    """What its plan or a user asks for now."""
    held_w: float = 0.0
    """What it may draw: never less than it could be drawing now."""
    boost_s: float | None = None
    """Since when a user has boosted it."""
    slack_s: float | None = None
    """Seconds it can wait and still be on time; None: it has no deadline."""
    gone: bool = False
    """It has no supervisor: it may go up to `full_w` at any moment."""
    ahead: Ahead | None = None
    """None: it has no plan, and may draw `full_w` for an unknown time."""
    promised_w: float | None = None
    """During the grid event that comes or lasts: the least at which it keeps its deadline; None: `full_w`."""
    expected_w: float | None = None
    """What its boards would draw on average from now, or from the event's start, to the event's end without it."""
    drawn_w: float | None = None
    """What its boards draw now; None: not known."""

    @property
    def counts_w(self) -> float:
        """The watts others must leave to it."""
        return self.full_w if self.gone else max(self.held_w, 0.0)

    @property
    def least_in_event_w(self) -> float:
        return self.full_w if self.gone or self.promised_w is None else self.promised_w

    @property
    def without_event_w(self) -> float:
        """What counts of it in a baseline."""
        return self.full_w if self.expected_w is None else self.expected_w


class Headroom(NamedTuple):
    """What a job may draw now, of which budget, and why not more; `boost_w` is the maximum for a boost."""

    now_w: float
    cap_w: float
    kept: bool
    """False: even the sum of all jobs' minimums exceeds the budget."""
    least_sum_w: float
    boost_w: float
    others: tuple[Claim, ...] = ()
    until_s: float | None = None
    """When the budget ends, epoch seconds."""
    event: EventSpan | None = None
    """The grid event that comes or lasts."""
    event_w: float | None = None
    """Watts of all jobs that it leaves now, where they are fewer than the budget's."""


class EventSpan(NamedTuple):
    """A grid event that comes or lasts: `over_s` is when its watts are back."""

    id: str
    start_s: float
    end_s: float
    over_s: float


class ExchangeError(RuntimeError):
    """The claim could not be exchanged; the text names the thing and the repair."""


class Exchange(Protocol):
    """Who divides the budget, at the supervisor's tick."""

    def exchange(
        self, claim: Claim, now_s: float, mono_s: float, keeper_pid: int | None, child_pid: int | None
    ) -> Headroom | None:
        """Renew a claim; what is left to the job, None where nothing is shared. Raises ExchangeError."""

    def withdraw(self, job: str) -> None:
        """The job draws nothing any more, or nothing is shared."""
