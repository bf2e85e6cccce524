"""An unload of the job or a rehearsal of one, and its result, as kept in the state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from carbontui.job.supervisor.core.state.inputs import Rank
from carbontui.job.supervisor.core.state.plan import FULL, UNLOAD, Level
from carbontui.job.terms.child import Child
from carbontui.protocol import Fact, Statement, statement

EPOCH_WAIT_S = 900.0
"""The longest that an unload waits for the end of an epoch: it trains meanwhile at an hour meant for rest, and what an
unload saves over a pause does not pay for much of that."""
Phase = Literal["none", "asked", "leaving", "away", "returning"]
TRY = "the try"
"""`by` for the unload at the end of a try before the start: what it saved is resumed when the plan says."""


@dataclass(frozen=True, slots=True)
class Unloading:
    """The unload under way, or the last one. Times are the machine's monotonic clock, energy is wall kWh so far."""

    phase: Phase = "none"
    by: str = ""
    """Who started the rehearsal; '' if the plan unloads."""
    since_s: float = 0.0
    """When the phase started."""
    since_kwh: float = 0.0
    starts: int = 0
    step: int = 0
    loss: float | None = None
    resumes: bool | None = None
    """Whether it resumed the last time this was tried; None: never tried."""
    data_order: str | None = None
    """Whether the resumed run went on with the `same` batches, or with `other` ones; None: only the script knows."""
    result: Statement | None = None
    """How the last one went."""
    facts: Mapping[str, bool | int | float | str | None] | None = None
    """The result in machine-readable form."""
    save_s: float | None = None
    save_j: float | None = None
    saved_b: int | None = None

    @property
    def rehearsing(self) -> bool:
        """Somebody wants to know whether it resumes: if that fails, the keeper is to start from scratch."""
        return self.phase != "none" and bool(self.by)


NEVER = Unloading()


def epoch_s(rank: Rank | None, speed: float) -> tuple[float, float] | None:
    """Seconds of the job's clock to the end of the rank's epoch, and of a whole one; None where they are not known."""
    if rank is None or rank.epoch_left is None or not rank.rate:
        return None
    left, whole = rank.epoch_left
    return left / rank.rate * speed, whole / rank.rate * speed


def awaits_start(known: Unloading) -> bool:
    """Unloaded at the end of a try: the plan decides when it really starts."""
    return known.by == TRY and known.phase == "away"


def before_start(child: Child, known: Unloading) -> bool:
    """The job draws nothing yet: its command has not really been started."""
    return child.state == "waiting" or (child.state == "unloaded" and awaits_start(known))


def level(known: Unloading) -> Level | None:
    """The level a rehearsal asks for now."""
    if not known.rehearsing or awaits_start(known):
        return None
    return UNLOAD if known.phase == "leaving" else FULL


def said(known: Unloading) -> Statement:
    """How far an unload under way has come."""
    return statement("unload_phase", phase=known.phase)


def facts(known: Unloading) -> Mapping[str, Fact]:
    """The result of the last one, for machines."""
    return {} if known.facts is None else {**known.facts, "why": known.result}


def falls_back(known: Unloading) -> bool:
    """Whether the keeper is to try an earlier checkpoint if the resume of a plan's unload fails."""
    return known.phase in ("away", "returning") and not known.rehearsing


@dataclass(frozen=True, slots=True)
class Tried:
    """The try; `result` is None until one has ended."""

    result: Statement | None = None
    under_way: bool = False
    stepped_s: float | None = None
    """When its first step was seen, on the machine's monotonic clock."""
    ended_s: float = 0.0
    """When it ended, job clock: a plan made before that assumed a running training."""


NOT_TRIED = Tried()
