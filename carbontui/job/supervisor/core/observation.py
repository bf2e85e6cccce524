"""What is so: `Inputs` is all that a tick has gathered from the world, `Observation` what a decision depends on.

Times `_s` are the job's clock in epoch seconds, `mono_s` the machine's monotonic one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from carbontui import protocol
from carbontui.client.unseen import Cause
from carbontui.job.child import Child
from carbontui.job.supervisor.core.levels import Level
from carbontui.job.supervisor.core.site_room import Room
from carbontui.power.messages import Node, Outcome, Reading, Readings
from carbontui.site.sharing import Share

FRESH_S = 5.0
"""A reading of boards older than this is history, not the present."""


@dataclass(frozen=True, slots=True)
class Rank:
    """What one training process last said; `quiet_s` is the time since its last finished step."""

    rank: int
    state: str
    want_gen: int
    step: int
    quiet_s: float
    can_unload: bool = False
    process: str = ""
    """Host, pid and start time: named as no other process is."""
    pid: int = 0
    restart: int = 0
    """How often its launcher has started it again."""
    start_step: int = 0
    start_known: bool = False
    """The script or its framework has said so."""
    saved_b: int | None = None
    """Bytes written while its checkpoint functions last ran."""
    total: int | None = None
    rate: float | None = None
    loss: float | None = None
    epoch: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    guess: tuple[int, str] | None = None
    """Steps in all where `total` is not known, and the source of the guess."""
    trial: str | None = None
    """The trial of a sweep that is under way."""
    cannot_hold: str | None = None
    captured: bool = False
    """A CUDA graph was recorded: what replays it shows no step."""
    world: int = 1
    """How many ranks it says there are."""
    unheard_s: float = 0.0
    """Seconds since anything came from it."""
    timed: tuple[float, int] | None = None
    """Monotonic time of the end of the step that was last timed, and its count."""

    @property
    def host(self) -> str:
        return self.process.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class LimitNews:
    """What has become of the limits that this supervisor has asked for."""

    asked: bool = False
    """A limit was set or given back since this supervisor started."""
    pending: bool = False
    """The boards have yet to answer."""
    left: tuple[str, ...] = ()
    """Boards whose limit someone else has set since."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """The latest outcome per board."""


NOT_STARTED = Child("waiting")
NOTHING_READ = Readings()
NO_LIMITS = LimitNews()


@dataclass(frozen=True, slots=True)
class Inputs:
    """The world at one tick, as far as it has been heard of; nothing in it is decided."""

    now_s: float
    mono_s: float
    dt_s: float = 0.0
    """Seconds of the job's clock since the last tick; what a clock that was set makes of them is in `jump_s`."""
    dt_wall_s: float = 0.0
    jump_s: float = 0.0
    core_wait_s: float = 0.0
    """Of `dt_wall_s`, how long the training of rank 0 was ready and waited for a core; 0 where that is not told."""
    child: Child = NOT_STARTED
    child_pid: int | None = None
    starts: int = 0
    """How often the keeper has started the command."""
    guarded: bool = True
    """The keeper is there to restart and to report."""
    ranks: tuple[Rank, ...] = ()
    alive: frozenset[str] = frozenset()
    """The training processes, of those that have ever spoken, that are still there."""
    readings: Readings = NOTHING_READ
    site: Share | None = None
    """What the machine's power budget gives to this job."""
    nodes: tuple[Node, ...] = ()
    """The other machines of the job."""
    metered: frozenset[str] = frozenset()
    """Boards that have been looked at or counted for this job."""
    limits: LimitNews = NO_LIMITS
    zone: str | None = None
    grid_note: str = ""
    """Why the grid's values are not what they should be, or ''."""
    planning_failed: bool = False
    uptime_s: float = 0.0
    """How long this supervisor has run."""
    unseen: Cause | None = None
    """Why a command that computes has shown no step; None while it has not computed for long, or once it has."""
    trial: Level | None = None
    """What a calibration asks for now."""
    trial_text: str = ""
    """How far a calibration is, or what became of the last one."""

    @property
    def leader(self) -> Rank | None:
        """Rank 0, which speaks for the training."""
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
    """When the hours are over that a person has said it must not run; None outside of them."""
    no_shifting: protocol.Reason | None = None
    """Why no plan may pause or delay (work or zone unknown, ...); None when it may."""
    planned: Level | None = None
    next_at_s: float | None = None
    next_level: str | None = None
    must_run: bool = False
    late: bool = False
    max_pause_s: float = 12 * 3600.0
    can_cap: bool = False
    refused_w: float | None = None
    refused_why: str = ""
    """A cap that was asked for and that no board holds, and why."""
    can_freeze: bool = False
    """`run --sigstop`."""
    freeze_why: str = ""
    """Why SIGSTOP is not to be used now although it was asked for (two processes use a GPU, no keeper to undo it)."""
    room: Room | None = None
    """What the machine's power budget leaves to it."""
    silent: tuple[str, ...] = ()
    """Machines and ranks that were promised and are not heard."""
    lost: bool = False
    """Some of these are silent for longer than a lease lasts: there the training goes on."""
    stepped: bool = False
    """A training step has been seen."""
    unseen: Cause | None = None
    """Why none has been seen although the command computes."""
    deaf: str = ""
    """Why a training that has shown steps is not held at one."""
    trial: Level | None = None
    """A calibration's level, inside the slack."""
    rehearsing: tuple[Level, str] | None = None
    """What a rehearsal of an unload, or a try before the start, asks for, and how far it is."""
    used_up: tuple[Level, protocol.Reason] | None = None
    """What a used-up allowance holds the job at, and why."""
    allowance_cap_w: float | None = None
    """Watts per GPU that keep the job within its allowances."""
