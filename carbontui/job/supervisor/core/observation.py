"""`Inputs` is all that a tick has gathered from the world, `Observation` all that a decision depends on.

Times `_s` are the job's clock in epoch seconds, `mono_s` the machine's monotonic one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from carbontui import protocol
from carbontui.client.detection.unseen import Cause
from carbontui.job.child import Child
from carbontui.job.supervisor.core.levels import Chosen, Level
from carbontui.job.supervisor.core.site_room import Room
from carbontui.power.messages import Node, Outcome, Reading, Readings
from carbontui.protocol import Statement, Why

FRESH_S = 5.0
"""A reading of boards older than this is history, not the present."""


class Rank(protocol.Obs, frozen=True, kw_only=True, tag=None, tag_field=None):
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
    unheard_s: float = 0.0
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
    zone: str | None = None
    grid_note: str = ""
    """Why the grid values are impaired, or ''."""
    uptime_s: float = 0.0
    """How long this supervisor has run."""
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


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything the decision depends on."""

    now_s: float
    mono_s: float
    child: Child
    ranks: tuple[Rank, ...] = ()
    override: protocol.Override | None = None
    override_until_s: float | None = None
    forbidden_until_s: float | None = None
    """End of the forbidden hours in force; None outside them."""
    no_shifting: Why | None = None
    """Why no plan may pause or delay (work or zone unknown, ...); None when it may."""
    planned: Level | None = None
    next_at_s: float | None = None
    next_level: str | None = None
    must_run: bool = False
    late: bool = False
    max_pause_s: float = 12 * 3600.0
    can_cap: bool = False
    refused_w: float | None = None
    refused_code: str | None = None
    refused_why: str = ""
    """A requested cap that no board holds, and why."""
    can_freeze: bool = False
    """`run --sigstop`."""
    freeze_why: protocol.Statement | None = None
    """Why SIGSTOP must not be used now although requested (two processes use a GPU, no keeper to undo it)."""
    room: Room | None = None
    """What the machine's power budget leaves to this job."""
    silent: tuple[str | Statement, ...] = ()
    """Expected machines and ranks that are not heard."""
    lost: bool = False
    """Some of these have been silent for longer than a lease: training resumes there."""
    stepped: bool = False
    """A training step has been seen."""
    unseen: Cause | None = None
    """Why no step has been seen although the command is busy."""
    deaf: protocol.Statement | None = None
    """Why a training that has shown steps cannot be held at one: `finish.why_deaf`."""
    trial: Level | None = None
    """A calibration's level, within the slack."""
    rehearsing: Chosen | None = None
    """The level a rehearsal of an unload, or a try before the start, asks for, and its progress."""
    used_up: Chosen | None = None
    """The level a used-up allowance holds the job at, and why."""
    allowance_cap_w: float | None = None
    """Watts per GPU that keep the job within its allowances."""
