"""The control policy: one pure function, (asked, observation) -> (asked, decision).

Every decision about what the training process is asked to do is made here. Order of authority: the end of the job, a
user's override, a used-up allowance, missing information (then at full speed), the deadline, the longest pause, the
plan. An allowance expected to be exceeded caps the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from carbontui import protocol
from carbontui.client.detection.unseen import Cause
from carbontui.job.supervisor.core.rules import site_claim
from carbontui.job.supervisor.core.rules.site_claim import Room
from carbontui.job.supervisor.core.state import levels
from carbontui.job.supervisor.core.state.decision import Decision, Desired
from carbontui.job.supervisor.core.state.inputs import Rank
from carbontui.job.supervisor.core.state.levels import FULL, OFF, PAUSE, Chosen, Level
from carbontui.job.supervisor.core.state.unloading import EPOCH_WAIT_S
from carbontui.job.terms.child import Child, ending
from carbontui.protocol import Statement, Why, statement

NO_BOUNDARY_S = 10.0
"""No step for this long after a pause request: the state says so."""
NO_CLIENT_S = 30.0
"""No training step for this long in a running command: the state says so."""
HOLD_S = 3600.0
"""A start held back without a known end is held for this long at a time."""


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
    must_run: bool = False
    ends_s: float | None = None
    """When its scheduler ends it, as the machine's clock has it."""
    cut_short: bool = False
    """That comes before the end of the budget."""
    late: bool = False
    max_pause_s: float = 12 * 3600.0
    idle_limit_s: float = math.inf
    """The longest stillness on boards that are held, before the start too: at any level but those of `given_back`."""
    given_back: frozenset[str] = frozenset()
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
    fleet_cap_w: float | None = None
    """Watts per GPU at which the cluster's fleet has started it."""
    epoch_left_s: float | None = None
    """To the end of the epoch at full speed, where the data of an unload before that may come in another order."""
    keeps_order: bool = True
    """The data of an unload within an epoch is not known to come in another order."""


def decide(before: Desired, observation: Observation) -> tuple[Desired, Decision]:
    """The complete policy of one job, evaluated about once a second and at every event."""
    choice = _choose(before, observation)
    spent, at_epoch_end = choice.why.code == "max_pause", choice.why.code == "epoch_end"
    choice = _within_allowance(choice, observation)
    wanted = choice.level
    choice = site_claim.within(choice, observation.room, can_cap=observation.can_cap)
    if observation.lost and choice.level.still and observation.child.state == "running":
        choice = Chosen(FULL, Why("no_client", statement("lease_ended", reason=choice.why.said)), choice.held_by)
    level = choice.level
    asked = _ask(before, observation, level, at_epoch_end=at_epoch_end and not level.still)
    asked = replace(asked, spent_pause=spent, epoch_by_s=_epoch_by_s(before, observation))
    asked = _since(before, asked, choice, observation.now_s)
    state, why = _observe(asked, observation, level, choice.why)
    held_by = choice.held_by if state in protocol.LIVE_STATES else "end"
    if observation.silent and state in protocol.LIVE_STATES:
        why = Why(why.code, statement("with_silent", reason=why.said, silent=observation.silent))
    return asked, Decision(
        state,
        why,
        level,
        held_by,
        choice.until_s,
        _applied(state, level, asked),
        observation.refused_code if state == "running" and _refused(asked, observation) else None,
        _hold(observation, level),
        wanted,
    )


def _since(before: Desired, asked: Desired, choice: Chosen, now_s: float) -> Desired:
    """The request, and since when its level has been decided by the same."""
    same = (before.level, before.held_by) == (choice.level.name, choice.held_by) and before.since_s is not None
    since_s = before.since_s if same else now_s
    return replace(asked, level=choice.level.name, held_by=choice.held_by, since_s=since_s)


def _refused(asked: Desired, observation: Observation) -> bool:
    return asked.limit_w is not None and asked.limit_w == observation.refused_w


def _applied(state: protocol.State, level: Level, asked: Desired) -> Level:
    """What is in force in a state: a level that cannot be set, or is not taken up yet, is not."""
    if state in ("waiting", "done", "failed", "stopped", "lost"):
        return OFF
    if state == "unloaded":
        return levels.UNLOAD
    if state == "paused":
        return level if level.still else PAUSE
    return level if state == "throttled" else FULL


def _choose(before: Desired, observation: Observation) -> Chosen:
    """The level decided, by whom and why."""
    if observation.child.stopped:
        # a paused script could not obey: to end at its next step, it must reach that step
        return Chosen(FULL, Why("stop", statement("stopping")), "person")
    if observation.used_up is not None and observation.used_up.level.kind == "unload":
        # the user asked for this end, too: only a larger allowance revokes it
        return observation.used_up
    if observation.override is not None:
        return _overridden(observation.override, observation.override_until_s)
    planned = observation.planned
    if observation.forbidden_until_s is not None:
        # a user's command outranks the deadline and the longest pause; the plan chooses how to stand still
        still = OFF if observation.child.state == "waiting" else PAUSE
        if planned is not None and planned.still and observation.no_shifting is None:
            still = _in_order(planned, observation)
        said = statement("forbidden_hours", until_s=observation.forbidden_until_s)
        return Chosen(still, Why("override", said), "forbidden", observation.forbidden_until_s)
    if observation.used_up is not None:
        return observation.used_up
    if observation.rehearsing is not None:
        return observation.rehearsing
    if observation.trial is not None:
        said = statement("measuring", level=observation.trial.name)
        return Chosen(observation.trial, Why("calibrating", said), "calibration")
    if observation.no_shifting is not None:
        # missing information never causes a pause or delay; caps stay as planned
        kept = planned if planned and planned.kind in ("cap", "full") else FULL
        return Chosen(kept, observation.no_shifting, "plan", observation.next_at_s if kept is planned else None)
    if planned is None:
        return Chosen(FULL, Why("starting", statement("first_plan")))
    if planned.still:
        if observation.must_run:
            limit = statement("no_slack_in_limit", ends_s=observation.ends_s)
            return Chosen(FULL, Why("deadline", limit if observation.cut_short else statement("no_slack")))
        still_s = 0.0 if before.still_since_s is None else observation.now_s - before.still_since_s
        # a delayed start does not count as a pause, as long as it keeps nothing from others: the deadline ends it
        longest_s = math.inf if planned.kind == "off" else observation.max_pause_s
        if planned.kind not in observation.given_back:
            longest_s = min(longest_s, observation.idle_limit_s)
        if longest_s < math.inf and (before.spent_pause or still_s > longest_s):
            return Chosen(FULL, Why("max_pause", statement("longest_pause_over", max_pause_s=longest_s)))
        ends_s = _epoch_end_s(before, observation)
        if ends_s is not None:
            said = statement("epoch_end", ends_s=ends_s, until_s=observation.next_at_s)
            return Chosen(FULL, Why("epoch_end", said), "plan", ends_s)
        planned = _in_order(planned, observation)
    if observation.late and planned.kind == "full":
        limit = statement("late_for_limit", ends_s=observation.ends_s)
        said = limit if observation.cut_short else statement("late")
        return Chosen(planned, Why("late", said), "plan", observation.next_at_s)
    code: protocol.ReasonCode = "plan_wait" if planned.kind == "off" else "plan"
    return Chosen(planned, Why(code, _as_planned(planned, observation.next_at_s)), "plan", observation.next_at_s)


def _in_order(planned: Level, observation: Observation) -> Level:
    """A pause in place of an unload after which the data would come in another order."""
    leaves = planned.kind == "unload" and observation.child.state == "running" and not observation.keeps_order
    return PAUSE if leaves else planned


def _epoch_by_s(before: Desired, observation: Observation) -> float | None:
    """By when the epoch has to end at which a planned unload leaves; None where it does not wait for one."""
    planned = observation.planned
    if planned is None or planned.kind != "unload" or observation.child.state != "running":
        return None
    return observation.now_s + EPOCH_WAIT_S if before.epoch_by_s is None else before.epoch_by_s


def _epoch_end_s(before: Desired, observation: Observation) -> float | None:
    """When the epoch ends at which the planned unload leaves; None where that is too late, or there is none."""
    by_s = _epoch_by_s(before, observation)
    if by_s is None or observation.epoch_left_s is None:
        return None
    ends_s = observation.now_s + observation.epoch_left_s
    return ends_s if ends_s <= by_s and ends_s < (observation.next_at_s or math.inf) else None


def _overridden(override: protocol.Override, until_s: float | None) -> Chosen:
    level, said = FULL, statement("boosted_by", by=override.by, until_s=until_s)
    if override.mode == "pause":
        level, said = PAUSE, statement("paused_by", by=override.by, until_s=until_s)
    elif override.mode == "cap" and override.value_w is not None:
        level, said = (
            levels.cap(override.value_w),
            statement("capped_by", watts=override.value_w, by=override.by, until_s=until_s),
        )
    return Chosen(level, Why("override", said), "person", until_s)


def _within_allowance(choice: Chosen, observation: Observation) -> Chosen:
    """No faster than under the caps of its allowances and of the fleet; a user's override ranks above them."""
    if observation.override is not None or observation.trial is not None or observation.child.stopped:
        return choice
    kept, fleet = observation.allowance_cap_w, observation.fleet_cap_w
    if kept is not None and (slower := levels.under(choice.level, kept)) is not choice.level:
        why = Why("budget_stop", statement("capped_to_last", watts=kept))
        choice = Chosen(slower, why, "allowance", choice.until_s)
    if fleet is not None and (slower := levels.under(choice.level, fleet)) is not choice.level:
        choice = Chosen(slower, Why("site", statement("fleet_capped", watts=fleet)), "site", choice.until_s)
    return choice


def _as_planned(planned: Level, next_at_s: float | None) -> protocol.Statement:
    if planned.kind == "off":
        return statement("plan_not_begun") if next_at_s is None else statement("plan_begins", at_s=next_at_s)
    figures: dict[str, float | None] = {"until_s": next_at_s}
    if planned.kind == "duty":
        figures["duty"] = planned.duty or 0.0
    if planned.kind == "cap":
        figures["watts"] = planned.cap_w or 0.0
    return protocol.Statement(f"plan_{planned.kind}", figures)


def _ask(before: Desired, observation: Observation, level: Level, *, at_epoch_end: bool) -> Desired:
    """Turn the level into requests to the process and boards; a new generation only when the request changes."""
    mode: protocol.Mode = "run"
    not_before: float | None = None
    if at_epoch_end:
        mode, not_before = "unload", observation.next_at_s
    if level.still:
        mode = "pause"
        leader = next((rank for rank in observation.ranks if rank.rank == 0), None)
        if level.kind == "unload" and leader is not None and leader.can_unload:
            mode, not_before = "unload", None if observation.rehearsing else observation.next_at_s
    duty = level.duty
    limit = level.cap_w if level.kind == "cap" and observation.can_cap else None
    if observation.child.state not in ("running", "waiting", "unloaded"):
        mode, duty, limit = "run", None, None
    still = level.still
    alone = not observation.ranks and not observation.stepped and observation.child.state == "running"
    freeze = alone and mode == "pause" and _may_freeze(observation)
    since = (
        before.still_since_s if still and before.still_since_s is not None else (observation.now_s if still else None)
    )
    newest = max((rank.want_gen for rank in observation.ranks), default=0)
    same = (mode, duty, at_epoch_end) == (before.mode, before.duty, before.epoch_end)
    if same and newest <= before.gen:
        return replace(before, limit_w=limit, not_before_s=not_before, still_since_s=since, freeze=freeze)
    return Desired(
        mode=mode,
        # a rank may have heard a predecessor: exceed any generation it knows
        gen=max(before.gen, newest) + 1,
        duty=duty,
        limit_w=limit,
        not_before_s=not_before,
        epoch_end=at_epoch_end,
        asked_mono_s=observation.mono_s,
        still_since_s=since,
        freeze=freeze,
    )


def _may_freeze(observation: Observation) -> bool:
    """Automatically only once a program has had time to show a step and has not; a user's override does not wait."""
    patient = (
        observation.override is not None
        or observation.forbidden_until_s is not None
        or observation.child.age_s >= NO_BOUNDARY_S
    )
    return observation.can_freeze and not observation.freeze_why and patient


def _hold(observation: Observation, level: Level) -> float | None:
    """When a child that is not running should start; None means now."""
    if observation.child.state not in ("waiting", "unloaded") or not level.still:
        return None
    if observation.override is None and observation.forbidden_until_s is not None:
        return min(observation.forbidden_until_s, observation.now_s + HOLD_S)
    at_s = observation.override_until_s if observation.override else observation.next_at_s
    return observation.now_s + HOLD_S if at_s is None else at_s


def _observe(asked: Desired, observation: Observation, level: Level, why: Why) -> tuple[protocol.State, Why]:
    """The state as observed, not as asked."""
    child = observation.child
    if child.over:
        return ending(child, observation.ends_s)
    if child.state == "waiting":
        return "waiting", why
    if child.state == "unloaded":
        return "unloaded", why
    if not observation.ranks:
        if level.still and observation.stepped:
            return "pausing", why  # the process is exiting, or its link is being re-established
        if child.frozen and asked.freeze:
            return "paused", Why(why.code, statement("by_sigstop", reason=why.said))
        if level.still and child.age_s < NO_BOUNDARY_S and not asked.freeze:
            return "pausing", why
        if level.still:
            return "pausing", Why("no_client", _cannot_hold(asked, observation))
        if observation.unseen is not None and why.code not in ("stop", "calibrating"):
            return "running", Why("no_client", statement("no_step_because", cause=observation.unseen.text))
        if observation.stepped or child.age_s < NO_CLIENT_S:
            return ("starting" if child.age_s < 3 and not observation.stepped else "running"), why
        if why.code in ("plan", "starting"):
            return "running", Why("no_client", statement("no_step"))
        return "running", why
    if asked.mode in ("pause", "unload") and not asked.epoch_end:
        if all(rank.state == "paused" and rank.want_gen == asked.gen for rank in observation.ranks):
            return "paused", why
        waited = observation.mono_s - asked.asked_mono_s
        if waited >= NO_BOUNDARY_S and not any(
            rank.state in ("checkpointing", "unloading") for rank in observation.ranks
        ):
            quiet_s = max(rank.quiet_s for rank in observation.ranks)
            said = statement("no_boundary", quiet_s=quiet_s)
            if observation.deaf is not None:
                said = statement("no_boundary_because", why=observation.deaf)
            return "pausing", Why("no_boundary", said)
        return "pausing", why
    if _refused(asked, observation):
        said = statement("cap_refused", watts=asked.limit_w, why=observation.refused_why)
        return "running", Why(why.code, said)
    if asked.duty is not None or asked.limit_w is not None:
        return "throttled", why
    return "running", why


def _cannot_hold(asked: Desired, observation: Observation) -> protocol.Statement:
    """Why a program without steps cannot be paused, and what helps."""
    why = observation.freeze_why or observation.child.freeze_why
    if why:
        return statement("sigstop_refused", why=why)
    if asked.freeze:
        return statement("sigstop_under_way")
    if observation.can_freeze:
        return statement("sigstop_waits")
    if observation.unseen is not None:
        return statement("pause_unseen", cause=observation.unseen.text)
    return statement("pause_needs_steps")
