"""The control policy: one pure function, (state, inputs) -> (asked, decision).

Every decision about what the training process is asked to do is made here. Order of authority: the end of the job, a
user's override, a used-up allowance, missing information (then at full speed), the deadline, the longest pause, the
plan. An allowance expected to be exceeded caps the result.
"""

import math

from carbontui import protocol
from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.rules import allowance_rules, capabilities, site_claim, trying, unload_rules
from carbontui.job.supervisor.core.state import boards, forbidden, membership, plan, unloading
from carbontui.job.supervisor.core.state.decision import Decision, Desired
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import FULL, OFF, PAUSE, Level, PlanChoice, PlannedLevel
from carbontui.job.terms.child import ending
from carbontui.protocol import Why, statement

NO_BOUNDARY_S = 10.0
"""No step for this long after a pause request: the state says so."""
NO_CLIENT_S = 30.0
"""No training step for this long in a running command: the state says so."""
HOLD_S = 3600.0
"""A start held back without a known end is held for this long at a time."""
USED_UP_HOLD_S = 86400.0
"""A used-up allowance stays so until a user raises it: the start is held a day at a time."""


def decide(state: JobState, inputs: Inputs) -> tuple[Desired, Decision]:
    """The complete policy of one job, evaluated about once a second and at every event."""
    says, required = finish.planned(state, inputs), _required(state, inputs)
    if required is not None:
        used_up = required.held_by == "allowance"
        says = says._replace(next_at_s=inputs.now_s + USED_UP_HOLD_S if used_up else required.until_s)
    chosen = _choose(state, inputs, says, required)
    choice = _within_allowance(chosen, state, inputs)
    wanted = choice.level
    can_cap = state.spec.cap and bool(inputs.devices)
    choice = site_claim.within(choice, site_claim.room(state, inputs), can_cap=can_cap)
    if choice.level.still and inputs.child.state == "running" and membership.lost(state.membership, inputs):
        choice = PlanChoice(FULL, Why("no_client", statement("lease_ended", reason=choice.why.said)), choice.held_by)
    asked = _ask(state, inputs, says, chosen, choice, can_cap=can_cap)
    # only of the cap asked for so far it is known whether the boards refuse it
    refused = boards.refused_cap(asked.limit_w if asked.limit_w == state.asked.limit_w else None, inputs)
    reached, why = _observe(state, inputs, asked, choice, refused.why)
    live = reached in protocol.LIVE_STATES
    if live and (silent := membership.silent(state.membership, inputs)):
        why = Why(why.code, statement("with_silent", reason=why.said, silent=silent))
    return asked, Decision(
        reached,
        why,
        choice.level,
        choice.held_by if live else "end",
        choice.until_s,
        _applied(reached, choice.level),
        refused.code if reached == "running" else None,
        _hold(state, inputs, choice.level, says.next_at_s),
        wanted,
    )


def _applied(state: protocol.State, level: Level) -> Level:
    """What is in force in a state: a level that cannot be set, or is not taken up yet, is not."""
    if state in ("waiting", "done", "failed", "stopped", "lost"):
        return OFF
    if state == "unloaded":
        return plan.UNLOAD
    if state == "paused":
        return level if level.still else PAUSE
    return level if state == "throttled" else FULL


def _required(state: JobState, inputs: Inputs) -> PlanChoice | None:
    """What a move, an end of the machine, a used-up allowance or the scheduler's end requires; None if none does."""
    return (
        unload_rules.moves(state, inputs)
        or unload_rules.machine_ends(state, inputs)
        or allowance_rules.holds(state)
        or unload_rules.holds(state, inputs)
    )


def _choose(state: JobState, inputs: Inputs, says: PlannedLevel, required: PlanChoice | None) -> PlanChoice:
    """The level decided, by whom and why."""
    if inputs.child.stopped:
        # a paused script could not obey: to end at its next step, it must reach that step
        return PlanChoice(FULL, Why("stop", statement("stopping")), "person")
    if required is not None and required.level.kind == "unload":
        # the user asked for this end, too: only a larger allowance revokes it
        return required
    if state.override.current is not None:
        return _overridden(state.override.current, state.override.until_s)
    until_s, planned = forbidden.until_s(state.forbidden, inputs.now_s), says.level
    if until_s is not None:
        # a user's command outranks the deadline and the longest pause; the plan chooses how to stand still
        still = OFF if inputs.child.state == "waiting" else PAUSE
        if planned is not None and planned.still and finish.why_no_shifting(state, inputs) is None:
            still = _in_order(planned, inputs)
        return PlanChoice(still, Why("override", statement("forbidden_hours", until_s=until_s)), "forbidden", until_s)
    if (chosen := required or trying.rehearses(state, inputs)) is not None:
        return chosen
    if (trial := state.calibrating.level) is not None:
        return PlanChoice(trial, Why("calibrating", statement("measuring", level=trial.name)), "calibration")
    return _by_plan(state, inputs, planned, says.next_at_s)


def _by_plan(state: JobState, inputs: Inputs, planned: Level | None, next_at_s: float | None) -> PlanChoice:
    """The planned level, or full speed where the plan may not stand still."""
    if (unknown := finish.why_no_shifting(state, inputs)) is not None:
        # missing information never causes a pause or delay; caps stay as planned
        kept = planned if planned and planned.kind in ("cap", "full") else FULL
        return PlanChoice(kept, unknown, "plan", next_at_s if kept is planned else None)
    if planned is None:
        return PlanChoice(FULL, Why("starting", statement("first_plan")))
    if planned.still:
        if finish.must_run(state, inputs):
            limit = statement("no_slack_in_limit", ends_s=state.ends_s)
            return PlanChoice(FULL, Why("deadline", limit if state.cut_short else statement("no_slack")))
        spec, since_s = state.spec, state.asked.still_since_s
        # a delayed start does not count as a pause, as long as it keeps nothing from others: the deadline ends it
        longest_s = math.inf if planned.kind == "off" else spec.max_pause_s
        if spec.idle_limit_s is not None and not (spec.gives_back and planned.kind in ("off", "unload")):
            longest_s = min(longest_s, spec.idle_limit_s)
        over = since_s is not None and inputs.now_s - since_s > longest_s
        if longest_s < math.inf and (state.asked.spent_pause or over):
            return PlanChoice(FULL, Why("max_pause", statement("longest_pause_over", max_pause_s=longest_s)))
        ends_s = _epoch_end_s(state, inputs, planned, next_at_s)
        if ends_s is not None:
            said = statement("epoch_end", ends_s=ends_s, until_s=next_at_s)
            return PlanChoice(FULL, Why("epoch_end", said), "plan", ends_s)
        planned = _in_order(planned, inputs)
    if planned.kind == "full" and finish.late(state):
        limit = statement("late_for_limit", ends_s=state.ends_s)
        return PlanChoice(planned, Why("late", limit if state.cut_short else statement("late")), "plan", next_at_s)
    code: protocol.ReasonCode = "plan_wait" if planned.kind == "off" else "plan"
    said, scarce = _as_planned(planned, next_at_s), state.plan and state.plan.scarce_s
    if planned.kind == "pause" and scarce and scarce[0] <= inputs.now_s < scarce[1]:
        said = statement("site_planned", until_s=next_at_s)
    elif planned.kind == "off" and inputs.child.state == "running":
        said = statement("plan_pause", until_s=next_at_s)  # it has begun already
    return PlanChoice(planned, Why(code, said), "plan", next_at_s)


def _in_order(planned: Level, inputs: Inputs) -> Level:
    """A pause in place of an unload after which the data would come in another order."""
    other = inputs.leader is not None and inputs.leader.data_order == "other"
    return PAUSE if other and planned.kind == "unload" and inputs.child.state == "running" else planned


def _epoch_by_s(state: JobState, inputs: Inputs, planned: Level | None) -> float | None:
    """By when the epoch has to end at which a planned unload leaves; None where it does not wait for one."""
    if planned is None or planned.kind != "unload" or inputs.child.state != "running":
        return None
    known = state.asked.epoch_by_s
    return inputs.now_s + unloading.EPOCH_WAIT_S if known is None else known


def _epoch_end_s(state: JobState, inputs: Inputs, planned: Level, next_at_s: float | None) -> float | None:
    """When the epoch ends at which the planned unload leaves; None where that is too late, or there is none."""
    by_s, epoch_s = _epoch_by_s(state, inputs, planned), unloading.epoch_s(inputs.leader, state.clock.speed)
    if by_s is None or epoch_s is None:
        return None
    ends_s = inputs.now_s + epoch_s[0]
    return ends_s if ends_s <= by_s and ends_s < (next_at_s or math.inf) else None


def _overridden(override: protocol.Override, until_s: float | None) -> PlanChoice:
    by = override.by
    level, said = FULL, statement("boosted_by", by=by, until_s=until_s)
    if override.mode == "pause":
        level, said = PAUSE, statement("paused_by", by=by, until_s=until_s)
    elif override.mode == "cap" and (watts := override.value_w) is not None:
        level, said = plan.cap(watts), statement("capped_by", watts=watts, by=by, until_s=until_s)
    return PlanChoice(level, Why("override", said), "person", until_s)


def _within_allowance(choice: PlanChoice, state: JobState, inputs: Inputs) -> PlanChoice:
    """No faster than under the caps of its allowances and of the fleet; a user's override ranks above them."""
    if state.override.current is not None or state.calibrating.level is not None or inputs.child.stopped:
        return choice
    kept, fleet = state.allowances.cap_w, state.spec.fleet_cap_w
    if kept is not None and (slower := plan.under(choice.level, kept)) is not choice.level:
        why = Why("budget_stop", statement("capped_to_last", watts=kept))
        choice = PlanChoice(slower, why, "allowance", choice.until_s)
    if fleet is not None and (slower := plan.under(choice.level, fleet)) is not choice.level:
        choice = PlanChoice(slower, Why("site", statement("fleet_capped", watts=fleet)), "site", choice.until_s)
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


def _ask(
    state: JobState, inputs: Inputs, says: PlannedLevel, chosen: PlanChoice, choice: PlanChoice, *, can_cap: bool
) -> Desired:
    """Turn the choice into requests to the process and boards; a new generation only when the request changes.

    `chosen`: before allowances, fleet and site.
    """
    before, level, leader = state.asked, choice.level, inputs.leader
    at_epoch_end = chosen.why.code == "epoch_end" and not level.still
    unloads = at_epoch_end or (level.kind == "unload" and leader is not None and leader.can_unload)
    mode: protocol.Mode = "unload" if unloads else "pause" if level.still else "run"
    not_before = says.next_at_s if unloads and not trying.rehearses(state, inputs) else None
    duty = level.duty
    limit = level.cap_w if level.kind == "cap" and can_cap else None
    if inputs.child.over:
        mode, duty, limit = "run", None, None
    alone = not inputs.ranks and not state.progress.step and inputs.child.state == "running"
    gen, asked_mono_s = before.gen, before.asked_mono_s
    newest = max((rank.want_gen for rank in inputs.ranks), default=0)
    if (mode, duty, at_epoch_end) != (before.mode, before.duty, before.epoch_end) or newest > gen:
        # a rank may have heard a predecessor: exceed any generation it knows
        gen, asked_mono_s = max(gen, newest) + 1, inputs.mono_s
    still_since_s = inputs.now_s if before.still_since_s is None else before.still_since_s
    same = (before.level, before.held_by) == (level.name, choice.held_by) and before.since_s is not None
    return Desired(
        mode=mode,
        gen=gen,
        duty=duty,
        limit_w=limit,
        not_before_s=not_before,
        epoch_end=at_epoch_end,
        epoch_by_s=_epoch_by_s(state, inputs, says.level),
        asked_mono_s=asked_mono_s,
        still_since_s=still_since_s if level.still else None,
        freeze=alone and mode == "pause" and _may_freeze(state, inputs),
        spent_pause=chosen.why.code == "max_pause",
        level=level.name,
        held_by=choice.held_by,
        since_s=before.since_s if same else inputs.now_s,
    )


def _may_freeze(state: JobState, inputs: Inputs) -> bool:
    """Automatically only once a program has had time to show a step and has not; a user's override does not wait."""
    asked = state.override.current is not None or forbidden.until_s(state.forbidden, inputs.now_s) is not None
    patient = asked or inputs.child.age_s >= NO_BOUNDARY_S
    return patient and state.spec.sigstop and not capabilities.freeze_why(state, inputs)


def _hold(state: JobState, inputs: Inputs, level: Level, next_at_s: float | None) -> float | None:
    """When a child that is not running should start; None means now."""
    if inputs.child.state not in ("waiting", "unloaded") or not level.still:
        return None
    longest_s = inputs.now_s + HOLD_S
    if state.override.current is not None:
        at_s = state.override.until_s
    elif (until_s := forbidden.until_s(state.forbidden, inputs.now_s)) is not None:
        at_s = min(until_s, longest_s)
    else:
        at_s = next_at_s
    return longest_s if at_s is None else at_s


def _observe(
    state: JobState, inputs: Inputs, asked: Desired, choice: PlanChoice, refused: str
) -> tuple[protocol.State, Why]:
    """The state as observed, not as asked; `refused`: why the boards refuse the cap."""
    child, why = inputs.child, choice.why
    if child.over:
        return ending(child, None if state.clock.replay else state.ends_s)
    if child.state == "waiting" or child.state == "unloaded":
        return child.state, why
    if not inputs.ranks:
        return _unreached(state, inputs, asked, choice)
    if asked.mode in ("pause", "unload") and not asked.epoch_end:
        if all(rank.state == "paused" and rank.want_gen == asked.gen for rank in inputs.ranks):
            return "paused", why
        waited = inputs.mono_s - asked.asked_mono_s
        if waited >= NO_BOUNDARY_S and not any(rank.state in ("checkpointing", "unloading") for rank in inputs.ranks):
            said = statement("no_boundary", quiet_s=max(rank.quiet_s for rank in inputs.ranks))
            if (unresponsive := finish.why_unpausable(inputs)) is not None:
                said = statement("no_boundary_because", why=unresponsive)
            return "pausing", Why("no_boundary", said)
        return "pausing", why
    if refused:
        return "running", Why(why.code, statement("cap_refused", watts=asked.limit_w, why=refused))
    if asked.duty is not None or asked.limit_w is not None:
        return "throttled", why
    return "running", why


def _unreached(state: JobState, inputs: Inputs, asked: Desired, choice: PlanChoice) -> tuple[protocol.State, Why]:
    """The state of a running command of which no training process is heard."""
    child, why, still = inputs.child, choice.why, choice.level.still
    stepped = state.progress.step > 0
    if still and stepped:
        return "pausing", why  # the process is exiting, or its link is being re-established
    if child.frozen and asked.freeze:
        return "paused", Why(why.code, statement("by_sigstop", reason=why.said))
    if still:
        waits = child.age_s < NO_BOUNDARY_S and not asked.freeze
        return "pausing", why if waits else Why("no_client", _cannot_hold(state, inputs, asked))
    if inputs.unseen is not None and why.code not in ("stop", "calibrating"):
        return "running", Why("no_client", statement("no_step_because", cause=inputs.unseen.text))
    if stepped or child.age_s < NO_CLIENT_S:
        return ("starting" if child.age_s < 3 and not stepped else "running"), why
    if why.code in ("plan", "starting", "no_work"):
        return "running", Why("no_client", statement("no_step"))
    return "running", why


def _cannot_hold(state: JobState, inputs: Inputs, asked: Desired) -> protocol.Statement:
    """Why a program without steps cannot be paused, and what helps."""
    why = capabilities.freeze_why(state, inputs) or inputs.child.freeze_why
    if why:
        return statement("sigstop_refused", why=why)
    if asked.freeze:
        return statement("sigstop_under_way")
    if state.spec.sigstop:
        return statement("sigstop_waits")
    if inputs.unseen is not None:
        return statement("pause_unseen", cause=inputs.unseen.text)
    return statement("pause_needs_steps")
