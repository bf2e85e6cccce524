"""Whether this job can resume from an unload: the rehearsal of one, and the cost of each unload.

A training that cannot resume loses the night if a plan unloads it at 03:00. So no plan unloads a job that has not
resumed once before: in a rehearsal started by the user, early on, or after a restart by the scheduler.
"""

from dataclasses import replace

from carbontui import protocol, units
from carbontui.job.keeper.messages import Leave
from carbontui.job.supervisor.core.planning.problem import DEFAULT_RELOAD_S, DEFAULT_UNLOAD_S
from carbontui.job.supervisor.core.state import plan, progress
from carbontui.job.supervisor.core.state.inputs import Inputs, Rank
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import PlanChoice
from carbontui.job.supervisor.core.state.unloading import Phase, Unloading, awaits_start, said
from carbontui.protocol import Statement, Why, statement

REPEAT_MOST_S = 600.0
"""If the resume of a rehearsal fails, training starts over: at most this much work is repeated."""
LEAVE_S = 600.0
RETURN_S = 600.0
"""Time limits for the checkpoint and for the first step after the resume; beyond them the rehearsal has failed."""
ENOUGH_STEPS = 3
"""This many steps after the resume show that it trains."""
SLACK_S = 1800.0
"""A rehearsal is offered only if the budget leaves this much room for pauses."""


def refusal(state: JobState, inputs: Inputs) -> Statement | None:
    """Why no rehearsal can begin now; None when it can."""
    leader, known, done_s = inputs.leader, state.unloading, state.progress.done_s
    if awaits_start(known):
        return statement("unloaded_until_start", step=known.step)
    if known.rehearsing:
        return statement("rehearses_already", by=known.by, phase=said(known))
    # after a resume the last word is that of the process that left
    if leader is None or (inputs.starts > state.progress.starts and not leader.can_unload):
        return statement("no_step_yet")
    if state.spec.reads_once or not leader.can_unload:
        return state.why_kept
    if state.override.current is not None:
        return statement("overridden", by=state.override.current.by)
    if state.calibrating.level is not None:
        return statement("calibration_runs", progress=state.calibrating.said)
    now = state.decision
    if now.state not in ("running", "throttled") and (now.state, now.why.code) != ("paused", "plan"):
        return statement("job_is_because", state=now.state, why=now.why.said)
    if not inputs.guarded:
        return statement("nothing_restarts_it")
    if done_s > REPEAT_MOST_S:
        worked = (statement("resumed_before"),) if known.resumes else ()
        return statement("too_much_to_repeat", done_s=done_s, most_s=REPEAT_MOST_S, worked=worked)
    return None


def begun(by: str, inputs: Inputs) -> Unloading:
    """A rehearsal requested by `by`."""
    return Unloading("asked", by, since_s=inputs.mono_s)


def offered(state: JobState, inputs: Inputs) -> bool:
    """Whether to offer one: it could be unloaded, that was never tried, and there is slack for pauses."""
    left, deadline = state.progress.left_s, state.deadline_s
    if state.unloading.resumes is not None or state.clock.replay or left is None or deadline is None:
        return False
    return state.waits_unloaded and deadline - inputs.now_s - left > SLACK_S and not refusal(state, inputs)


def given_up(known: Unloading, inputs: Inputs) -> bool:
    """Whether a start without a step for too long is to be ended, and restarted without its checkpoint."""
    return known.rehearsing and known.phase == "returning" and inputs.mono_s - known.since_s > RETURN_S


# --- from inputs to knowledge -------------------------------------------------------------------------------------


def update(state: JobState, inputs: Inputs) -> JobState:
    """The state one tick later: the phase of the unload, its cost and its result."""
    known = state.unloading
    if known.phase == "asked":
        return _asked(state, inputs)
    if known.phase == "leaving":
        return _leaving(state, inputs)
    if known.phase == "none" and inputs.child.state == "unloaded":
        return replace(state, unloading=_left(state, replace(known, by="", starts=inputs.starts), inputs))
    if known.phase == "away" and inputs.child.state == "running":
        return replace(state, unloading=_turn(state, known, "returning", inputs))
    return _returning(state, inputs) if known.phase == "returning" else state


def _turn(state: JobState, known: Unloading, phase: Phase, inputs: Inputs) -> Unloading:
    return replace(known, phase=phase, since_s=inputs.mono_s, since_kwh=state.totals.wall_kwh)


def _asked(state: JobState, inputs: Inputs) -> JobState:
    known = state.unloading
    if state.override.current is not None:
        return _over(state, None, _given_up(state.override.current))
    if inputs.child.retry:
        turned = _turn(state, known, "leaving", inputs)
        return replace(state, unloading=replace(turned, starts=inputs.starts, loss=state.last_loss))
    return state


def _leaving(state: JobState, inputs: Inputs) -> JobState:
    known, leader, asked = state.unloading, inputs.leader, state.asked
    if leader is not None:
        known = replace(known, step=state.progress.step, loss=leader.loss if leader.loss is not None else known.loss)
    if inputs.child.state == "unloaded":
        return replace(state, unloading=_left(state, known, inputs))
    if inputs.child.state not in ("running", "unloaded"):
        return _over(replace(state, unloading=known), False, statement("unload_ended"))
    if state.override.current is not None:
        return _over(state, None, _given_up(state.override.current))
    stands = leader is not None and leader.state == "paused" and leader.want_gen == asked.gen and asked.mode == "unload"
    if stands:
        return _over(state, False, statement("unload_checkpoint_failed"))
    if inputs.mono_s - known.since_s > LEAVE_S:
        return _over(state, False, statement("unload_no_checkpoint", within_s=LEAVE_S))
    return replace(state, unloading=known)


def _left(state: JobState, known: Unloading, inputs: Inputs) -> Unloading:
    """It has written its checkpoint and exited."""
    asked = state.asked
    began_s = known.since_s if known.phase == "leaving" else asked.asked_mono_s
    timed = known.phase == "leaving" or (asked.mode == "unload" and not asked.epoch_end)
    took = max(0.0, inputs.mono_s - began_s) if timed else None
    joules = _joules(state, known) if known.phase == "leaving" else None
    known = replace(known, step=state.progress.step, loss=known.loss if known.loss is not None else state.last_loss)
    return _turn(state, replace(known, save_s=took, save_j=joules), "away", inputs)


def _joules(state: JobState, known: Unloading) -> float:
    """Energy of the phase as a plan counts it: before PUE."""
    return max(0.0, state.totals.wall_kwh - known.since_kwh) * units.J_PER_KWH / state.spec.pue


def _returning(state: JobState, inputs: Inputs) -> JobState:
    known, leader = state.unloading, inputs.leader
    if known.by and inputs.child.retried:
        why = statement("unload_restart_ended", how=inputs.child.retried, step=known.step)
        return _over(state, False, why, anew=True)
    if inputs.child.state == "unloaded":
        return replace(state, unloading=_turn(state, known, "away", inputs))
    if inputs.child.state != "running":
        return _over(state, False, statement("unload_restarted_ended"))
    if leader is None or inputs.starts <= known.starts or leader.step < ENOUGH_STEPS:
        return state
    return _back(state, inputs, leader)


def _back(state: JobState, inputs: Inputs, leader: Rank) -> JobState:
    """It trains again: check that it continues where it stopped."""
    known, began = state.unloading, leader.start_step
    failed = inputs.child.fell_back
    if failed or (leader.start_known and began < known.step):
        if failed:
            why = statement("unload_fell_back", how=failed, left=known.step, began=began)
        else:
            why = statement("unload_resumed_elsewhere", left=known.step, began=began)
        return _over(state, False, why, anew=True, began=began)
    took_s = inputs.mono_s - known.since_s
    joules, measured = _joules(state, known), state.measured
    measured = replace(measured, reload_j=measured.reload_j.plus(joules))
    if known.save_s is not None:
        measured = replace(measured, unload_s=measured.unload_s.plus(known.save_s))
    if known.save_j is not None:
        measured = replace(measured, unload_j=measured.unload_j.plus(known.save_j))
    same = {"step": known.step, "data_order": leader.data_order, "loss_before": known.loss, "loss_after": leader.loss}
    result = statement(
        "unload_works",
        **same,
        restarts=leader.restarts,
        step_stated=leader.start_known,
        save_s=known.save_s,
        saved_b=known.saved_b,
        restart_s=took_s,
    )
    facts = {
        **same,
        "held": True,
        "resumed_step": began,
        "resumed_step_told": leader.start_known,
        "checkpoint_s": known.save_s,
        "checkpoint_bytes": known.saved_b,
        "checkpoint_j": known.save_j,
        "reload_s": took_s,
        "reload_j": joules,
    }
    over = Unloading(resumes=True, data_order=leader.data_order, result=result, facts=facts)
    return replace(state, measured=measured, unloading=over)


def _given_up(override: protocol.Override) -> Statement:
    return statement("unload_given_up", mode=override.mode, by=override.by)


def _over(state: JobState, resumes: bool | None, why: Statement, *, anew: bool = False, began: int = 0) -> JobState:
    """End the rehearsal. `anew`: the training counts from step `began` again."""
    was = state.unloading
    resumes = was.resumes if resumes is None else resumes
    facts = {"held": resumes, "step": was.step}
    work = progress.begun_again(state.progress, began) if anew else state.progress
    return replace(state, progress=work, unloading=Unloading(resumes=resumes, result=why, facts=facts))


LEAD_S = 60.0
"""Time reserved to submit the successor, besides the time for a checkpoint."""
QUEUE_S = 300.0
"""A start that is further away than this is waited for in the scheduler's queue, not on its nodes."""


def leaves(state: JobState, now_s: float) -> Leave | None:
    """The order to leave for the queue before the start; None while there is no such wait."""
    decided, until = state.decision, state.decision.until_s
    waits = state.spec.resubmit and not state.clock.replay and decided.state == "waiting"
    if not waits or until is None or decided.held_by not in ("plan", "forbidden"):
        return None
    return Leave(state.clock.to_wall(until)) if until - now_s >= QUEUE_S else None


OUTLIVED_S = 300.0
"""A machine that is still there this long after it was to end has been left to us: training goes on."""


def machine_ends(state: JobState, inputs: Inputs) -> PlanChoice | None:
    """The unload that a termination notice of the machine requires at once, until it has outlived its end."""
    ends_s, leader = inputs.machine_ends_s, inputs.leader
    if ends_s is None or inputs.now_s > ends_s + OUTLIVED_S:
        return None
    leaving = state.decision.level.kind == "unload"  # on its way out it has no rank any more
    if inputs.child.state == "running" and not (leaving if leader is None else leader.can_unload):
        return None
    until_s = ends_s + OUTLIVED_S
    return PlanChoice(plan.UNLOAD, Why("plan", statement("machine_ends", ends_s=ends_s)), "plan", until_s)


def moves(state: JobState, inputs: Inputs) -> PlanChoice | None:
    """The unload of a job that is being moved to another machine, or whose right to train on this one runs out."""
    child = inputs.child
    if child.moving:
        return PlanChoice(plan.UNLOAD, Why("moved", statement("moving", host=child.moving)), "person")
    if not child.lease_unloads(_leaving_s(state, inputs)):
        return None
    return PlanChoice(plan.UNLOAD, Why("moved", statement("lease_unheard")), "plan")


def _leaving_s(state: JobState, inputs: Inputs) -> float:
    """How long an unload takes; a long step must end first."""
    return unload_s(state) + 2.0 * (inputs.leader.quiet_s if inputs.leader else 0.0)


def unload_s(state: JobState) -> float:
    measured = state.measured.unload_s.value
    return DEFAULT_UNLOAD_S if measured is None else measured


def start_s(state: JobState) -> float:
    measured = state.measured.reload_s.value
    return DEFAULT_RELOAD_S if measured is None else measured


def holds(state: JobState, inputs: Inputs) -> PlanChoice | None:
    """The unload required by the approaching end of the scheduler's job, and why; None if not required."""
    ends_s, leader = state.ends_s, inputs.leader
    if ends_s is None or not state.comes_back or state.clock.replay or leader is None or not leader.can_unload:
        return None
    if inputs.now_s < ends_s - LEAD_S - _leaving_s(state, inputs):
        return None
    return PlanChoice(plan.UNLOAD, Why("plan", statement("time_limit", ends_s=ends_s)))
