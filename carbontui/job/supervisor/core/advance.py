"""The one door: what an event makes of the state, and what is to be done. Pure.

All that a decision reads is in the state and the event; an event that raises leaves the state as it was.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from carbontui import protocol
from carbontui.grid.types import GridForecast
from carbontui.headroom import Headroom
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core.commands import Reply
from carbontui.job.supervisor.core.effects import Effect, LogLine, Record, Replan, effects
from carbontui.job.supervisor.core.rules import allowance_rules, control, trying
from carbontui.job.supervisor.core.state import job
from carbontui.job.supervisor.core.state.inputs import Inputs, Rank
from carbontui.job.supervisor.core.state.job import Calibrating, JobState, Totals
from carbontui.job.supervisor.core.state.plan import Level, Plan
from carbontui.power.curves.curve import Curve
from carbontui.protocol import Statement, statement

NEAREST_S = 0.5
"""Leases are renewed at the tick nearest to when they are due: half a tick early rather than half a tick late."""


# `part` of an event is what a fault in it is reported as, by code (`text/log.py`)


@dataclass(frozen=True, slots=True)
class Tick:
    """About a second has passed: the world as it is now, to decide on."""

    part: ClassVar = "deciding"
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class RankChanged:
    """A training process came, left or changed its state between two ticks."""

    part: ClassVar = "rank_message"
    rank: Rank
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class LastCount:
    """The last count of a training process that nobody heard, from its file."""

    part: ClassVar = "last_counts"
    rank: Rank
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class Command:
    """A user's command."""

    part: ClassVar = "command"
    cmd: protocol.Cmd
    by: str
    inputs: Inputs
    accepted: bool = False
    """It was checked when it was given, to a predecessor: what is not known yet (the boards) refuses it no more."""


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The worker has solved."""

    part: ClassVar = "plan_made"
    plan: Plan
    frontier: protocol.Frontier
    mean_per_kwh: float | None = None
    """Units of the objective, by which time has its price."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """No new plan could be made: the one in force stays."""

    part: ClassVar = "plan_made"
    said: Statement


@dataclass(frozen=True, slots=True)
class CurveMeasured:
    """Speed by watts: measured, found or assumed; with the cause that a new plan is made for, if one is."""

    part: ClassVar = "curve_measured"
    curve: Curve
    why: Statement | None = None


@dataclass(frozen=True, slots=True)
class CalibrationSaid:
    """The level that a calibration asks for now, and its progress or result."""

    part: ClassVar = "calibration"
    level: Level | None
    said: Statement | None


@dataclass(frozen=True, slots=True)
class ForecastRead:
    """Past and expected intensity and price; None: no source has any."""

    part: ClassVar = "grid"
    outlook: GridForecast | None


@dataclass(frozen=True, slots=True)
class Booked:
    """The account's sums up to now."""

    part: ClassVar = "accounts"
    totals: Totals


@dataclass(frozen=True, slots=True)
class SiteShare:
    """This job's share of the machine's power budget; None: there is no budget, or the job draws nothing."""

    part: ClassVar = "site"
    share: Headroom | None


Event = (
    Tick
    | RankChanged
    | LastCount
    | Command
    | PlanMade
    | PlanFailed
    | CurveMeasured
    | CalibrationSaid
    | ForecastRead
    | Booked
    | SiteShare
)


def _withdrawn(before: JobState, after: JobState) -> tuple[Effect, ...]:
    """What is said when a guessed total that was planned with has proved wrong."""
    gone = after.progress.withdrawn
    if gone is None or gone == before.progress.withdrawn:
        return ()
    said = statement("guess_withdrawn", steps=gone[0], source=gone[1])
    return Record("guess_withdrawn", dict(said.parts)), LogLine(said)


def advance(now: JobState, event: Event) -> tuple[JobState, tuple[Effect | Reply, ...]]:
    """The next state, and the effects in the order in which they are to be performed; of a command, its reply too."""
    match event:
        case Tick(inputs):
            return _tick(now, inputs)
        case RankChanged(rank, inputs):
            after = job.with_rank(now, rank, inputs)
            return after, _withdrawn(now, after)
        case LastCount(rank, inputs):
            return job.with_rank_left(now, rank, inputs), ()
        case Command(cmd, by, inputs, accepted):
            after, reply = commands.apply(now, cmd, inputs, by, accepted=accepted)
            return after, (*reply.effects, replace(reply, effects=()))
        case PlanMade(plan, frontier, mean_per_kwh):
            worth = replace(now.worth, mean_per_kwh=mean_per_kwh)
            return replace(now, plan=plan, frontier=frontier, plan_fault=None, worth=worth), ()
        case PlanFailed(said):
            return replace(now, plan_fault=said), ()
        case CurveMeasured(curve, why):
            return replace(now, curve=curve), () if why is None else (Replan(why),)
        case CalibrationSaid(level, said):
            return replace(now, calibrating=Calibrating(level, said)), ()
        case ForecastRead(outlook):
            return replace(now, outlook=outlook), ()
        case Booked(totals):
            return replace(now, totals=totals), ()
        case SiteShare(share):
            return replace(now, site=share), ()


def _tick(before: JobState, inputs: Inputs) -> tuple[JobState, tuple[Effect, ...]]:
    """Learn from the inputs, decide, and compare with before: leases are renewed only with a decision."""
    # what reports after the training has been seen to end is not the job's
    now = before if before.child.over else job.with_inputs(before, inputs)
    now = allowance_rules.with_allowances(job.expire(trying.update(now, inputs), inputs.now_s), inputs)
    asked, decision = control.decide(now, inputs)
    after = job.enter(now, asked, decision, inputs)
    if renew := inputs.mono_s - before.renewed_mono_s >= protocol.RENEW_S - NEAREST_S:
        after = replace(after, renewed_mono_s=inputs.mono_s)
    return after, effects(before, after, inputs, renew=renew)
