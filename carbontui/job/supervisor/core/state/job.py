"""The state of one job: an immutable value, replaced at every tick and at every user command."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec import structs

from carbontui import protocol
from carbontui.grid.types import GridForecast
from carbontui.headroom import Headroom
from carbontui.job.supervisor.core.state import boards, measured, membership, override, progress, unloading
from carbontui.job.supervisor.core.state.allowances import Allowances
from carbontui.job.supervisor.core.state.boards import Boards
from carbontui.job.supervisor.core.state.decision import STARTING, Decision, Desired
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours
from carbontui.job.supervisor.core.state.inputs import NOT_STARTED, Inputs, Rank
from carbontui.job.supervisor.core.state.measured import PAUSE_MAX_S, RESUME_MAX_S, SETTLE_WALL_S, Measured
from carbontui.job.supervisor.core.state.membership import Membership
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.plan import Level, Plan, Worth
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.core.state.unloading import EPOCH_WAIT_S, NOT_TRIED, Tried, Unloading
from carbontui.job.terms.allowance import AllowanceKind
from carbontui.job.terms.budget import Budget
from carbontui.job.terms.child import Child
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.power.curves.curve import Curve
from carbontui.power.messages import MeterVerdict

LIMIT_SPARE_S = 60.0
"""A plan ends this long before the scheduler's time limit."""
FRESH_WATTS_S = 2.0
"""Readings older than this are stale: nothing is learned from them."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the job has used so far. None where no honest figure exists."""

    gpu_kwh: float = 0.0
    wall_kwh: float = 0.0
    gco2_g: float | None = None
    avoided_g: float | None = None
    run_now_g: float | None = None
    """What the same work would have emitted with every lever undone; None: not known, or none acted."""
    run_now_past_g: float | None = None
    """What run-now would have emitted by now, possibly with more of the work done."""
    run_now_until_s: float | None = None
    """Where on the job's clock run-now has done as much work as the job has by now."""
    cost: protocol.Cost | None = None
    gpu_shares: dict[str, float] = field(default_factory=dict)
    """Headroom of the boards' joules by how they were metered."""
    shares: dict[str, float] = field(default_factory=dict)
    """Headroom of all joules by how they were metered."""
    counters: dict[str, MeterVerdict] = field(default_factory=dict)
    """Verdicts on the boards' energy counters."""
    metered_kwh: float = 0.0
    """At the wall, with what the machine idles and the account may leave out."""
    idle_doubt_kwh: float = 0.0
    """By how much the idle watts may be wrong that are left out, as far as no board was seen idle."""
    here_s: float = 0.0
    """Seconds in which the machine was the job's."""
    elapsed_s: float = 0.0
    """Seconds of the account: since the start, without the excluded ones."""
    steps_apart: int = 0
    """Of the job's steps, those made in excluded times."""
    excluded: tuple[protocol.Excluded, ...] = ()
    coverage: protocol.Coverage | None = None
    places: tuple[protocol.PlaceUse, ...] = ()
    moves_cost: protocol.MovesCost | None = None

    def of(self, kind: AllowanceKind) -> float:
        """Grams, money or kWh at the wall that count against an allowance, as far as they are known: an allowance caps
        what the job takes in all, so what a try or a calibration took counts too, though the account excludes it."""
        if kind == "energy":
            return self.wall_kwh + sum(one.energy_wall_kwh for one in self.excluded)
        if kind == "carbon":
            return (self.gco2_g or 0.0) + sum(one.gco2_g or 0.0 for one in self.excluded)
        return self.cost.value if self.cost else 0.0


class Calibrating(NamedTuple):
    """The level that a calibration asks for now (None: none runs), and its progress or the result of the last one."""

    level: Level | None = None
    said: protocol.Statement | None = None


NO_CALIBRATION = Calibrating()


@dataclass(frozen=True, slots=True)
class JobState:
    """All that the supervisor knows and asks of its job. `spec` and `clock` are as given to `run`."""

    spec: Options
    clock: Clock
    budget: Budget
    progress: Progress
    asked: Desired = field(default_factory=Desired)
    decision: Decision = STARTING
    override: Overrides = field(default_factory=Overrides)
    forbidden: tuple[ForbiddenHours, ...] = ()
    activity: measured.Activity = measured.NO_ACTIVITY
    measured: Measured = field(default_factory=Measured)
    boards: Boards = field(default_factory=Boards)
    membership: Membership = field(default_factory=Membership)
    child: Child = NOT_STARTED
    plan: Plan | None = None
    worth: Worth = field(default_factory=Worth)
    frontier: protocol.Frontier | None = None
    curve: Curve | None = None
    outlook: GridForecast | None = None
    totals: Totals = field(default_factory=Totals)
    allowances: Allowances = field(default_factory=Allowances)
    caps_hold: bool = False
    """Every board accepts a limit, as far as is known."""
    changed_mono_s: float = 0.0
    """When the observed state last changed: right after, readings still mix both states."""
    resume_asked_mono_s: float | None = None
    """When a paused training was last asked to resume; None once it has."""
    still: bool | None = None
    still_changed_s: float = 0.0
    """Whether the job is still (paused, unloaded or not started), and since when it is or is not (job clock)."""
    loss: protocol.Loss | None = None
    epoch: int | None = None
    """The epoch last reported by the script, as an integer."""
    last_metrics: Mapping[str, float] = field(default_factory=dict)
    """The script's last reported metrics, by name."""
    unloading: Unloading = unloading.NEVER
    tried: Tried = NOT_TRIED
    trial: str = ""
    """Of a sweep: the last reported current trial."""
    site: Headroom | None = None
    """This job's share of the machine's power budget."""
    calibrating: Calibrating = NO_CALIBRATION
    plan_fault: protocol.Statement | None = None
    """Why the last plan could not be made; None once one has been."""
    limit_s: float | None = None
    """When its scheduler will end it, as last heard (infinite: no limit)."""
    renewed_mono_s: float = 0.0
    """When leases were last renewed: with a decision, never without one."""

    @property
    def last_loss(self) -> float | None:
        return None if self.loss is None else self.loss.value

    @property
    def start_s(self) -> float:
        """The budget's start on the job's clock: when `run` was called."""
        return self.clock.at_wall(self.spec.created_s)

    @property
    def ends_s(self) -> float | None:
        """When its scheduler will end it; None without a limit."""
        known = self.spec.ends_s if self.limit_s is None else self.limit_s
        return None if known is None or known == math.inf else known

    @property
    def budget_deadline_s(self) -> float | None:
        return self.budget.deadline_s(self.start_s, self.progress.total_s)

    @property
    def comes_back(self) -> bool:
        """Whether it goes on after its scheduler's end: in a successor, or requeued, once it has made a step. One that
        only waited would wait on its nodes again."""
        return bool(self.spec.resubmit) or (self.spec.requeue and self.progress.step > 0)

    @property
    def cut_short(self) -> bool:
        """Whether the scheduler ends it, and nothing continues it, before its budget is over."""
        deadline, ends = self.budget_deadline_s, self.ends_s
        ends = None if self.comes_back or self.clock.replay else ends
        return deadline is not None and ends is not None and ends - LIMIT_SPARE_S < deadline

    @property
    def deadline_s(self) -> float | None:
        """By when a plan has the work done: the budget's end, or the scheduler's if that comes first."""
        return self.ends_s - LIMIT_SPARE_S if self.cut_short and self.ends_s is not None else self.budget_deadline_s

    @property
    def most_cap_w(self) -> float | None:
        """The cap (watts per GPU) that fleet and allowances leave to plans; None: they leave full speed."""
        return min((w for w in (self.allowances.cap_w, self.spec.fleet_cap_w) if w is not None), default=None)

    @property
    def live(self) -> bool:
        return self.decision.state in protocol.LIVE_STATES

    def may_unload(self, leader: Rank | None) -> bool:
        """Whether a plan may unload: where the data would come in another order, only if an end of an epoch is always
        near, else a pause avoids that. The training of a replay is known to resume, one that reads a pipe cannot; one
        that its scheduler requeues would not wait."""
        epoch_s = unloading.epoch_s(leader, self.clock.speed)
        short = epoch_s is not None and epoch_s[1] <= EPOCH_WAIT_S
        resumes = self.unloading.resumes is True and (self.unloading.data_order != "other" or short)
        return (resumes or self.clock.replay) and self.waits_unloaded

    @property
    def why_kept(self) -> protocol.Statement:
        """Why it cannot be unloaded, where it cannot be."""
        if self.spec.inside:
            return protocol.statement("begun_inside")
        without = protocol.statement("nothing_to_checkpoint_with")
        return protocol.statement("reads_a_pipe") if self.spec.reads_once else without

    @property
    def waits_unloaded(self) -> bool:
        """Whether an unload can last: what reads a pipe is not started again, what Slurm requeues is within minutes."""
        return not self.spec.reads_once and not (self.spec.requeue and self.spec.slurm_job and not self.spec.resubmit)


# --- from inputs to knowledge -------------------------------------------------------------------------------------


def with_inputs(state: JobState, inputs: Inputs) -> JobState:
    """The state updated with the inputs of a tick, before any decision."""
    for rank in inputs.ranks:
        state = with_rank(state, rank, inputs)
    settled = inputs.mono_s - state.changed_mono_s > SETTLE_WALL_S
    plain_full = state.decision.state == "running" and state.asked.limit_w is None and state.asked.duty is None
    running = state.decision.state in ("running", "throttled", "pausing")
    if running:
        table = state.plan.table if state.plan and state.decision.state != "pausing" else {}
        level = table.get(state.decision.level.name)
        speed = level.speed if level else 1.0
        reference = plain_full and settled
        capped = settled and state.decision.state == "throttled" and state.asked.duty is None
        work = progress.ran(
            state.progress,
            inputs.dt_s,
            inputs.dt_wall_s,
            speed,
            reference=reference,
            capped=capped,
            core_wait_s=inputs.core_wait_s,
        )
    else:
        work = progress.rested(state.progress)
    # a duty cycle lets boards rest, and one that no process of it is on is not its
    plain = running and state.asked.duty is None
    busy = [one.util for one in inputs.devices if one.util is not None and one.pids != () and not one.lost]
    activity = state.activity if plain else measured.NO_ACTIVITY
    if busy and plain and settled and inputs.readings_age_s < FRESH_WATTS_S:
        activity = activity.plus(busy, inputs.dt_wall_s)
    known = state.measured
    # the reading itself must be from the new state, not the time of looking at it
    if inputs.readings.mono_s - state.changed_mono_s > SETTLE_WALL_S and inputs.readings_age_s < FRESH_WATTS_S:
        known = _learn_watts(state, inputs, plain_full=plain_full)
    leader = inputs.leader
    return replace(
        state,
        child=inputs.child,
        limit_s=state.limit_s if inputs.ends_s is None else inputs.ends_s,
        progress=work,
        measured=known,
        activity=activity,
        boards=_see_boards(state, inputs),
        membership=membership.update(state.membership, inputs),
        caps_hold=state.spec.cap and boards.take_limits(inputs.devices),
        epoch=int(leader.epoch) if leader and leader.epoch is not None and leader.epoch >= 0 else state.epoch,
        last_metrics=leader.metrics if leader and leader.metrics else state.last_metrics,
        trial=(leader.trial if leader else None) or state.trial,
        loss=_loss(state, leader, inputs.printed),
    )


def _loss(state: JobState, leader: Rank | None, printed: protocol.Loss | None) -> protocol.Loss | None:
    """The newest: what the script reports goes before what it prints, which may be of a validation or of one rank."""
    before = state.loss
    if leader is not None and (leader.loss is not None or leader.loss_word is not None):
        now = protocol.Loss(leader.loss, leader.loss_word is None, word=leader.loss_word)
    elif printed is not None and (before is None or before.printed):
        now = printed
    else:
        return before
    if now.finite:
        return now
    since = (state.progress.step or None) if before is None or before.finite else before.not_finite_since_step
    return structs.replace(now, not_finite_since_step=since)


def with_rank(state: JobState, rank: Rank, inputs: Inputs) -> JobState:
    """The state after one training process has reported its steps; an exiting one sends its last count on leaving."""
    if rank.state == "running" and state.resume_asked_mono_s is not None:
        took = min(RESUME_MAX_S, inputs.mono_s - state.resume_asked_mono_s)
        known = replace(state.measured, resume_s=state.measured.resume_s.plus(took))
        state = replace(state, measured=known, resume_asked_mono_s=None)
    if rank.rank != 0:
        return state
    known, work = state.measured, state.progress
    if inputs.starts > work.starts > 0 and rank.process in (work.processes or ()):
        return with_rank_left(state, rank, inputs)  # of the start before, heard late: it counts from where that began
    if inputs.starts > work.starts and rank.step > 0:
        known = replace(known, reload_s=known.reload_s.plus(inputs.child.age_s))
    fresh = inputs.starts <= work.starts and rank.restart == 0 and rank.start_step == 0
    work = progress.with_start(work, inputs.starts)
    work = progress.with_process(work, rank.process, inputs.alive, fresh=fresh)
    if inputs.starts > state.progress.starts and rank.start_known:
        # it reports its start step, earlier than its last one if it resumes from an older checkpoint or from none
        began = work.before + rank.start_step
        work = structs.replace(work, step=min(work.step, began), base=began)
    work = progress.with_step(work, rank.step, rank.start_step, rank.total)
    if rank.saved_b is not None and state.unloading.saved_b != rank.saved_b:
        state = replace(state, unloading=replace(state.unloading, saved_b=rank.saved_b))
    work = progress.with_guess(work, rank.guess, rank.total, rank.guess_range, rank.process)
    return replace(state, measured=known, progress=work)


def with_rank_left(state: JobState, rank: Rank, inputs: Inputs) -> JobState:
    """Count the steps that a training process left in a file, unless another process has been heard since."""
    if rank.rank != 0 or rank.process in state.progress.past:
        return state
    work = progress.with_process(
        state.progress, rank.process, inputs.alive, fresh=not (rank.restart or rank.start_step)
    )
    return replace(state, progress=progress.with_step(work, rank.step, rank.start_step, rank.total))


def _learn_watts(state: JobState, inputs: Inputs, *, plain_full: bool) -> Measured:
    known, host = state.measured, inputs.readings.host
    kind: measured.PowerState
    if state.decision.state == "throttled" and inputs.ranks and host.cpu_w is not None and known.rest_w.value is None:
        # under a cap the host does the same work
        return measured.with_rest(known, host.cpu_w + (host.dram_w or 0.0), host.idle_w, parked=False)
    if plain_full and inputs.ranks:
        kind = "full"
    elif state.decision.state == "paused":
        kind = "parked"
    elif state.decision.state in ("waiting", "unloaded") or _bare(state, inputs):
        kind = "idle"
    else:
        return known
    # a busy machine hears late of a pause: a board that still computes alone is not parked
    still = [r for r in inputs.devices if kind != "parked" or r.share is not None or (r.util or 0.0) <= measured.IDLE]
    read = [(r.uuid, r.own_w) for r in still if r.own_w is not None and not r.lost]
    known = measured.with_watts(known, kind, read)
    if host.cpu_w is not None and kind in ("full", "parked"):
        known = measured.with_rest(known, host.cpu_w + (host.dram_w or 0.0), host.idle_w, parked=kind == "parked")
    return known


def _bare(state: JobState, inputs: Inputs) -> bool:
    """Whether no process is on the boards yet; where their watts are the user's figures, they follow the command."""
    alone = all(one.pids == () and one.power_kind != "model" for one in inputs.devices)
    return not inputs.ranks and state.progress.step == 0 and alone


def _see_boards(state: JobState, inputs: Inputs) -> Boards:
    if state.spec.simulated is not None:
        return state.boards
    named = boards.named(state.boards, inputs.ranks, inputs.mono_s)
    return boards.settled(boards.shown(named, inputs), inputs)


# --- from decision to state ----------------------------------------------------------------------------------------


def expire(state: JobState, now_s: float) -> JobState:
    """The state at `now_s`: an expired override is cleared."""
    held = override.expire(state.override, now_s)
    return state if held is state.override else replace(state, override=held)


def enter(state: JobState, asked: Desired, decision: Decision, inputs: Inputs) -> JobState:
    """The state after `decision`, with the latencies measured and timers started by a change of state."""
    before = state.decision.state
    new = replace(state, asked=asked, decision=decision)
    planned = state.plan.at(inputs.now_s).level if state.plan and decision.held_by == "plan" else None
    if planned is not None and "full" not in (planned.kind, decision.level.kind) and not state.worth.acted:
        new = replace(new, worth=replace(state.worth, acted=True))
    if asked.limit_w is not None and asked.limit_w != state.asked.limit_w:
        new = replace(new, boards=replace(new.boards, left=boards.NONE_LEFT))
    still = decision.state in ("waiting", "unloaded", "paused", "pausing") or decision.level.still
    if still != state.still:
        new = replace(new, still=still, still_changed_s=inputs.now_s)
    if decision.state == before:
        return new
    new = replace(new, changed_mono_s=inputs.mono_s)
    if decision.state == "paused":
        took = min(PAUSE_MAX_S, inputs.mono_s - asked.asked_mono_s)
        new = replace(new, measured=replace(new.measured, pause_s=new.measured.pause_s.plus(took)))
    if before in ("paused", "pausing") and decision.state in ("running", "throttled"):
        new = replace(new, resume_asked_mono_s=inputs.mono_s)
    return new
