"""Side effects as data: one small value each, produced here and performed by the shell."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from carbontui import protocol, units
from carbontui.job.keeper.messages import EndStart, FallBack, Freeze, Hold, Leave, Retry, Stop, Thaw
from carbontui.job.supervisor.core.rules import allowance_rules, trying, unload_rules
from carbontui.job.supervisor.core.state import boards, unloading
from carbontui.job.supervisor.core.state.decision import Decision
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.protocol import Fact, Statement, statement


@dataclass(frozen=True, slots=True)
class SendWants:
    """Send every rank the current want, valid for one lease."""

    want: protocol.DesiredState


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Limit in watts per GPU on the job's boards, except those in `left`; None restores the original limits."""

    watts: float | None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Simulate:
    """The activity that simulated boards, and those whose power cannot be read, follow: None no process, 0 parked,
    1 training, for a share `duty` of the time."""

    activity: float | None
    duty: float = 1.0


@dataclass(frozen=True, slots=True)
class WatchBoards:
    """The job's boards (None: all visible), and the processes that may use them."""

    boards: tuple[str, ...] | None
    own_pids: tuple[int, ...]
    elsewhere: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The processes on each other machine of the job, by machine name."""


@dataclass(frozen=True, slots=True)
class ReverseBooking:
    """Subtract energy booked for boards that turned out not to be the job's."""

    boards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """An event for the journal; `at_s` on the job's clock if not now. Its statements are stored as words."""

    kind: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for carbontui.log."""

    said: Statement


@dataclass(frozen=True, slots=True)
class Replan:
    """Make a new plan at the next opportunity."""

    why: Statement


@dataclass(frozen=True, slots=True)
class Keep:
    """Write what a successor needs now, not at the next commit."""


@dataclass(frozen=True, slots=True)
class DoNotResume:
    """The command is not resumed after its next exit, even with a checkpoint; `ends`: it is interrupted now. None
    revokes that."""

    why: Statement | None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class StartCalibration:
    """Measure the speed-per-watt curve."""

    by: str


KeeperOrder = Hold | Freeze | Thaw | Stop | Leave | Retry | FallBack | EndStart
"""What the keeper is asked to do, as it is sent. `Hold` and `Freeze` are leases too: a keeper that hears neither for a
minute starts the child, and thaws it as soon as the lease has run out."""
Effect = (
    SendWants
    | KeeperOrder
    | SetLimit
    | Simulate
    | WatchBoards
    | ReverseBooking
    | Record
    | LogLine
    | Replan
    | Keep
    | DoNotResume
    | StartCalibration
)


def effects(before: JobState, after: JobState, inputs: Inputs, *, renew: bool) -> tuple[Effect, ...]:
    """The effects of the step from `before` to `after`. `renew`: leases are due for renewal."""
    return (
        *_announcements(before, after, inputs),
        *_wants(before, after, renew=renew),
        *_hold(before, after, inputs, renew=renew),
        *_freeze(before, after, inputs, renew=renew),
        *_limit(before, after),
        *_last(before, after, renew=renew),
        *_unloading(before, after, inputs, renew=renew),
        *_boards(after, inputs),
    )


def desired_of(state: JobState) -> protocol.DesiredState:
    """What is asked of the training, as sent to every rank."""
    asked = state.asked
    not_before = None if asked.not_before_s is None else units.iso(state.clock.to_wall(asked.not_before_s))
    duty, epoch_end = _felt_duty(state), asked.epoch_end or None
    return protocol.DesiredState(
        asked.mode, asked.gen, protocol.LEASE_S, duty=duty, not_before=not_before, epoch_end=epoch_end
    )


def _felt_duty(state: JobState) -> float | None:
    """A simulated cap slows the child by duty; a real one needs no help."""
    asked = state.asked
    if state.spec.simulated is None or asked.duty is not None or asked.limit_w is None:
        return asked.duty
    speed = state.spec.simulated.speed(asked.limit_w)
    return speed if speed < 1.0 else None


def _wants(before: JobState, after: JobState, *, renew: bool) -> tuple[Effect, ...]:
    limit_felt = after.spec.simulated is not None and after.asked.limit_w != before.asked.limit_w
    return (SendWants(desired_of(after)),) if renew or limit_felt or after.asked.gen != before.asked.gen else ()


def _hold(before: JobState, after: JobState, inputs: Inputs, *, renew: bool) -> tuple[Effect, ...]:
    if inputs.child.state not in ("waiting", "unloaded"):
        return ()
    hold = after.decision.hold_until_s
    if (leave := unload_rules.leaves(after, inputs.now_s)) is not None:
        return (leave,) if renew else ()
    same = hold == before.decision.hold_until_s and before.child.state == inputs.child.state
    return () if same and not renew else (Hold(None if hold is None else after.clock.to_wall(hold)),)


def _freeze(before: JobState, after: JobState, inputs: Inputs, *, renew: bool) -> tuple[Effect, ...]:
    if after.asked.freeze:
        return (Freeze(protocol.LEASE_S),) if renew or not before.asked.freeze else ()
    return (Thaw(),) if before.asked.freeze or inputs.child.frozen else ()


def _last(before: JobState, after: JobState, *, renew: bool) -> tuple[Effect, ...]:
    """A stop by an allowance: the command exits with a checkpoint, and the keeper must not resume it."""
    was, why = allowance_rules.why_last(before), allowance_rules.why_last(after)
    if not why:
        return (DoNotResume(None),) if was else ()
    interrupts = after.allowances.act == "stop!"
    return (DoNotResume(why, interrupts),) if renew or why != was else ()


def _unloading(before: JobState, after: JobState, inputs: Inputs, *, renew: bool) -> tuple[Effect, ...]:
    """What a rehearsal and a try ask of the keeper, and their results."""
    found: list[Effect] = []
    known, was = after.unloading, before.unloading
    if known.rehearsing != inputs.child.retry and (renew or known.rehearsing != was.rehearsing):
        found.append(Retry(known.rehearsing))
    falls = unloading.falls_back(known)
    if falls != inputs.child.fall_back and (renew or falls != unloading.falls_back(was)):
        found.append(FallBack(falls))
    if renew and (trying.ends(after, inputs) or unload_rules.given_up(known, inputs)):
        found.append(EndStart())
    if known.phase != was.phase:
        found.append(Record("unloading", {"phase": known.phase, "by": known.by, "step": known.step}))
    if known.result is not None and known.result != was.result:
        found += [Record("rehearsal", unloading.facts(known)), LogLine(statement("unload", result=known.result))]
        found += [Replan(statement("cause_unload_known")), Keep()]
    told = after.tried.result
    if told is not None and told != before.tried.result:
        found += [Record("tried", {"text": told}), LogLine(told), Replan(statement("cause_tried")), Keep()]
    return tuple(found)


def _limit(before: JobState, after: JobState) -> tuple[Effect, ...]:
    watts, left = after.asked.limit_w, before.boards.left
    if watts == before.asked.limit_w:
        return ()
    return (SetLimit(watts, left.boards if watts is not None and watts == left.watts else ()),)


def _boards(after: JobState, inputs: Inputs) -> tuple[Effect, ...]:
    if after.spec.simulated is not None:
        return (_at_work(after, inputs),) if inputs.ranks or inputs.child.state != "running" else ()
    node_of = {node.host: node.name for node in inputs.nodes}
    own = {rank.pid for rank in inputs.ranks if rank.host not in node_of} | (
        {inputs.child_pid} if inputs.child_pid else set()
    )
    elsewhere = tuple(
        (name, tuple(sorted(rank.pid for rank in inputs.ranks if rank.host == host))) for host, name in node_of.items()
    )
    foreign_boards = boards.foreign_boards(after.boards, inputs)
    disown = (ReverseBooking(foreign_boards),) if foreign_boards else ()
    declared = () if after.spec.declared is None else (_at_work(after, inputs),)
    return (*disown, *declared, WatchBoards(after.boards.named, tuple(sorted(own)), elsewhere))


def _at_work(after: JobState, inputs: Inputs) -> Simulate:
    """The assumed activity of simulated boards, and of those whose power cannot be read; without steps, a running
    command counts as busy."""
    if inputs.child.state != "running":
        return Simulate(None)
    parked = bool(inputs.ranks) and all(rank.state == "paused" for rank in inputs.ranks)
    active = not parked and after.decision.state in ("starting", "running", "throttled", "pausing")
    return Simulate(1.0 if active else 0.0, after.asked.duty or 1.0)


def _allowance_changes(before: JobState, after: JobState, inputs: Inputs) -> list[Effect]:
    """Changes of the allowances; a least-time plan is re-made with what is left."""
    if before.allowances.doing == after.allowances.doing:
        return []
    now = after.allowances
    figures = [(p.allowance.kind, p.allowance.most, p.used, p.expected) for p in now.prospects]
    facts = {"over": now.over, "spent": now.spent, "act": now.act, "cap_w": now.cap_w, "asked": now.asked_s is not None}
    why, told = statement("cause_allowances"), list[Effect]()
    if before.allowances.level != now.level:  # not each time that the watts of a cap change
        said = next(iter(allowance_rules.notices(after, inputs)), statement("allowances_suffice"))
        told = [LogLine(said)]
    return [Record("allowance", {**facts, "figures": figures}), *told, Replan(why), Keep()]


def _key(decision: Decision) -> tuple[object, ...]:
    """What counts as a change: state, reason, level of the plan, why no step is seen once known; else only figures."""
    unseen = decision.why.said if decision.why.code == "no_client" and decision.state == "running" else None
    return decision.state, decision.why.code, decision.level.name if decision.why.code == "plan" else "", unseen


def _announcements(before: JobState, after: JobState, inputs: Inputs) -> tuple[Effect, ...]:
    """Entries for journal and log, and requests for a new plan."""
    found: list[Effect] = []
    over, new = before.override.current, after.decision
    if over is not None and after.override.current is None:
        ended = statement("cause_override_over")
        found += [Record("override_over", {"mode": over.mode, "by": over.by}), Replan(ended)]
    if after.caps_hold != before.caps_hold:
        found.append(Replan(statement("cause_caps") if after.caps_hold else statement("cause_no_caps")))
    if (before.decision.state, new.state) == ("waiting", "starting") and after.plan is not None and after.curve is None:
        found.append(Replan(statement("cause_start")))  # without the caps that were expected
    if after.epoch is not None and after.epoch != before.epoch:
        found.append(Record("epoch", {"number": after.epoch, "step": after.progress.step, "loss": after.last_loss}))
    found += _allowance_changes(before, after, inputs)
    if after.trial != before.trial:
        found.append(Record("trial", {"name": after.trial, "step": after.progress.step}))
    if _key(new) != _key(before.decision):
        facts = {"state": new.state, "reason": new.why.code, "text": new.why.said, "level": new.level.name}
        facts["level_kind"] = new.level.kind
        at_s = None if after.live else inputs.child.ended_s(after.clock)
        found.append(Record("state", facts | {"want_gen": after.asked.gen, "mode": after.asked.mode}, at_s))
        word = "slowed" if new.state == "throttled" and new.level.kind == "duty" else new.state
        found.append(LogLine(statement("state_is", state=word, reason=new.why.said)))
    return tuple(found)
