"""`Inputs` is all that a tick has gathered from the world: with the state, all that a decision depends on.

Times `_s` are the job's clock in epoch seconds, `mono_s` the machine's monotonic one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from carbontui import protocol
from carbontui.client.detection.unseen import Cause
from carbontui.job.terms.child import Child
from carbontui.power.messages import Node, Outcome, Reading, Readings

FRESH_S = 5.0
"""A reading of boards older than this is history, not the present."""


class Rank(protocol.RankReport, frozen=True, kw_only=True, tag=None, tag_field=None):
    """What one training process last said, and who and when it was."""

    rank: int = 0
    process: str = ""
    """Host, pid and start time: unique to this process."""
    pid: int = 0
    restart: int = 0
    """How often its launcher has restarted it."""
    world: int = 1
    """World size that it reports."""
    quiet_s: float = 0.0
    """Seconds since its last finished step."""
    silent_s: float = 0.0
    """Seconds since its last message."""
    timed_mono: tuple[float, int] | None = None
    """Monotonic time of the end of the last timed step, and its count."""

    @property
    def host(self) -> str:
        return self.process.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class LimitNews:
    """State of the limits that this supervisor has requested."""

    asked: bool = False
    """A limit was set or restored since this supervisor started."""
    pending: bool = False
    """The boards have not answered yet."""
    left: tuple[str, ...] = ()
    """Boards whose limit another program has changed since."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """The latest outcome per board."""


NOT_STARTED = Child("waiting")
NOTHING_READ = Readings()
NO_LIMITS = LimitNews()


@dataclass(frozen=True, slots=True)
class Inputs:
    """The world at one tick, as far as known; contains no decisions."""

    now_s: float
    mono_s: float
    dt_s: float = 0.0
    """Seconds of the job's clock since the last tick; a jump of a clock that was set is in `jump_s` instead."""
    dt_wall_s: float = 0.0
    jump_s: float = 0.0
    core_wait_s: float = 0.0
    """Of `dt_wall_s`, how long the training of rank 0 was runnable and waited for a core; 0 if not known."""
    child: Child = NOT_STARTED
    child_pid: int | None = None
    starts: int = 0
    """How often the keeper has started the command."""
    guarded: bool = True
    """The keeper is alive, to restart and to report."""
    ranks: tuple[Rank, ...] = ()
    alive: frozenset[str] = frozenset()
    """The training processes ever heard from that are still alive."""
    readings: Readings = NOTHING_READ
    nodes: tuple[Node, ...] = ()
    """The other machines of the job."""
    metered: frozenset[str] = frozenset()
    """Boards that have been watched or counted for this job."""
    limits: LimitNews = NO_LIMITS
    jobs: int = 1
    """How many jobs share the machine, this one included."""
    zone: str | None = None
    grid_note: str = ""
    """Why the grid values are impaired, or ''."""
    ends_s: float | None = None
    """When its scheduler will end it, by its last answer; infinite without a limit, None before it has answered."""
    machine_ends_s: float | None = None
    """When its cloud takes the machine away; None without a notice."""
    uptime_s: float = 0.0
    """How long this supervisor has run."""
    printed: protocol.Loss | None = None
    """The loss last printed in the command's output."""
    unseen: Cause | None = None
    """Why a busy command has shown no step; None until it has been busy for a while, or once it has shown one."""

    @property
    def leader(self) -> Rank | None:
        """Rank 0, which represents the training."""
        return next((rank for rank in self.ranks if rank.rank == 0), None)

    @property
    def devices(self) -> tuple[Reading, ...]:
        """The boards of this job: those its ranks named, else all visible ones."""
        return tuple(reading for reading in self.readings.devices if reading.watched)

    @property
    def readings_age_s(self) -> float:
        return self.readings.age_s(self.mono_s)
