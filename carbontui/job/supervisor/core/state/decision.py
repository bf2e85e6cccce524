"""What is asked of the training and its boards, and the decision behind it."""

from dataclasses import dataclass

from carbontui import protocol
from carbontui.job.supervisor.core.state.plan import FULL, Level
from carbontui.job.terms.child import STARTING as STARTING_UP
from carbontui.protocol import Why


@dataclass(frozen=True, slots=True)
class Desired:
    """What is asked of the process and its boards, and since when. Survives a respawn through the journal."""

    mode: protocol.Mode = "run"
    gen: int = 0
    duty: float | None = None
    limit_w: float | None = None
    not_before_s: float | None = None
    epoch_end: bool = False
    """An unload that waits for the end of the epoch."""
    epoch_by_s: float | None = None
    """By when that has to be there, on the job's clock; None while the plan does not unload."""
    asked_mono_s: float = 0.0
    still_since_s: float | None = None
    """Job clock since which the process has been asked to pause."""
    freeze: bool = False
    """No process responds at a step: the process group is to be stopped by signal."""
    spent_pause: bool = False
    """The longest pause is over: run until the plan itself runs again."""
    level: str = ""
    held_by: protocol.HeldBy = "plan"
    since_s: float | None = None
    """The level decided, by whom, and since when on the job's clock; None before the first decision."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The state reached, and why. `hold_until_s` sets the start of a child that is not running (None: now)."""

    state: protocol.State
    why: Why
    level: Level
    """As decided; what is in force is `applied`."""
    held_by: protocol.HeldBy = "plan"
    until_s: float | None = None
    """When what holds the level ends, on the job's clock; None where that is not known."""
    applied: Level = FULL
    """In force as far as is observed: a cap that no board holds is not, a pause only once it is taken up."""
    refused: str | None = None
    """The code with which the boards refused the decided cap."""
    hold_until_s: float | None = None
    wanted: Level = FULL
    """The level that would apply without the machine's power budget."""


STARTING = Decision("starting", STARTING_UP, FULL)
