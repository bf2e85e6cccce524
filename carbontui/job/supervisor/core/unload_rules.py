"""Whether this job can resume from an unload: the rehearsal of one, and the cost of each unload.

A training that cannot resume loses the night if a plan unloads it at 03:00. So no plan unloads a job that has not
resumed once before: in a rehearsal started by the user, early on, or after a restart by the scheduler.
"""

from __future__ import annotations

from dataclasses import replace

from carbontui import units
from carbontui.job.supervisor.core import progress
from carbontui.job.supervisor.core.observation import Inputs, Rank
from carbontui.job.supervisor.core.state import JobState
from carbontui.job.supervisor.core.unloading import Phase, Unloading, awaits_start, words

NO_STEP_YET = "no training step has been seen yet"
REPEAT_MOST_S = 600.0
"""If the resume of a rehearsal fails, training starts over: at most this much work is repeated."""
ARM_S = 10.0
"""A keeper of this version answers sooner than this."""
LEAVE_S = 600.0
RETURN_S = 600.0
"""Time limits for the checkpoint and for the first step after the resume; beyond them the rehearsal has failed."""
ENOUGH_STEPS = 3
"""This many steps after the resume show that it trains."""
SLACK_S = 1800.0
"""A rehearsal is offered only if the budget leaves this much room for pauses."""
JOULES_PER_KWH = 3.6e6


def refusal(state: JobState, seen: Inputs) -> str:
    """Why no rehearsal can begin now; '' when it can."""
    leader, known, done_s = seen.leader, state.unloading, state.progress.done_s
    if awaits_start(known):
        return f"it was tried, and unloaded at step {known.step} to wait for its start, which will show if it resumes"
    if known.rehearsing:
        return f"{known.by} rehearses it already ({words(known)})"
    if leader is None:
        return NO_STEP_YET
    if not leader.can_unload:
        return "it has no checkpoint function: carbontui.on_checkpoint(save); see docs/frameworks.md"
    if state.override.current is not None:
        return f"the job is under an override of {state.override.current.by}; clear it first: carbontui resume"
    if seen.trial is not None:
        return f"a calibration is running ({seen.trial_text})"
    now = state.decision
    if now.state not in ("running", "throttled") and (now.state, now.why.code) != ("paused", "plan"):
        return f"the job is {now.state}"
    if not seen.guarded:
        return "the keeper is gone: nothing would restart it"
    if done_s > REPEAT_MOST_S:
        done, most = units.fmt_duration(done_s), units.fmt_duration(REPEAT_MOST_S)
        tried = "; a resume has worked before" if known.held else ""
        return f"{done} of work is done and would be repeated if the resume fails; at most {most} may be{tried}"
    return ""


def begun(by: str, seen: Inputs) -> Unloading:
    """A rehearsal requested by `by`."""
    return Unloading("asked", by, since_s=seen.mono_s)


def offered(state: JobState, seen: Inputs) -> bool:
    """Whether to offer one: it could be unloaded, that was never tried, and there is slack for pauses."""
    left, deadline = state.progress.left_s, state.deadline_s
    if state.unloading.held is not None or state.clock.replay or left is None or deadline is None:
        return False
    return deadline - seen.now_s - left > SLACK_S and not refusal(state, seen)


def may(state: JobState) -> bool:
    """Whether a plan may unload. The training of a replay is known to resume."""
    return state.unloading.held is True or state.clock.replay


def given_up(known: Unloading, seen: Inputs) -> bool:
    """Whether a start without a step for too long is to be ended, and restarted without its checkpoint."""
    return known.rehearsing and known.phase == "returning" and seen.mono_s - known.since_s > RETURN_S


# --- from inputs to knowledge -------------------------------------------------------------------------------------


def saw(state: JobState, seen: Inputs) -> JobState:
    """The state one tick later: the phase of the unload, its cost and its result."""
    known = state.unloading
    if known.phase == "asked":
        return _asked(state, seen)
    if known.phase == "leaving":
        return _leaving(state, seen)
    if known.phase == "none" and seen.child.state == "unloaded":
        return replace(state, unloading=_left(state, replace(known, by="", starts=seen.starts), seen))
    if known.phase == "away" and seen.child.state == "running":
        return replace(state, unloading=_turn(state, known, "returning", seen))
    return _returning(state, seen) if known.phase == "returning" else state


def _turn(state: JobState, known: Unloading, phase: Phase, seen: Inputs) -> Unloading:
    return replace(known, phase=phase, since_s=seen.mono_s, since_kwh=state.totals.wall_kwh)


def _asked(state: JobState, seen: Inputs) -> JobState:
    known = state.unloading
    if state.override.current is not None:
        return _over(state, None, f"given up: {state.override.current.mode} by {state.override.current.by}")
    if seen.child.retry:
        turned = _turn(state, known, "leaving", seen)
        return replace(state, unloading=replace(turned, starts=seen.starts, loss=state.last_loss))
    if seen.mono_s - known.since_s > ARM_S:
        return _over(state, None, "not tried: its keeper is of an older version and would not start it again")
    return state


def _leaving(state: JobState, seen: Inputs) -> JobState:
    known, leader, asked = state.unloading, seen.leader, state.asked
    if leader is not None:
        known = replace(known, step=state.progress.step, loss=leader.loss if leader.loss is not None else known.loss)
    if seen.child.state == "unloaded":
        return replace(state, unloading=_left(state, known, seen))
    if seen.child.state not in ("running", "unloaded"):
        return _over(replace(state, unloading=known), False, "failed: the command ended instead of unloading")
    if state.override.current is not None:
        return _over(state, None, f"given up: {state.override.current.mode} by {state.override.current.by}")
    stands = leader is not None and leader.state == "paused" and leader.want_gen == asked.gen and asked.mode == "unload"
    if stands:
        return _over(state, False, "failed: its checkpoint function failed (see carbontui log); training continues")
    if seen.mono_s - known.since_s > LEAVE_S:
        return _over(state, False, f"failed: no checkpoint within {units.fmt_duration(LEAVE_S)}; training continues")
    return replace(state, unloading=known)


def _left(state: JobState, known: Unloading, seen: Inputs) -> Unloading:
    """It has written its checkpoint and exited."""
    asked = state.asked
    began_s = known.since_s if known.phase == "leaving" else asked.asked_mono_s
    took = max(0.0, seen.mono_s - began_s) if known.phase == "leaving" or asked.mode == "unload" else None
    joules = _joules(state, known) if known.phase == "leaving" else None
    known = replace(known, step=state.progress.step, loss=known.loss if known.loss is not None else state.last_loss)
    return _turn(state, replace(known, save_s=took, save_j=joules), "away", seen)


def _joules(state: JobState, known: Unloading) -> float:
    """Energy of the phase as a plan counts it: before PUE."""
    return max(0.0, state.totals.wall_kwh - known.since_kwh) * JOULES_PER_KWH / state.spec.pue


def _returning(state: JobState, seen: Inputs) -> JobState:
    known, leader = state.unloading, seen.leader
    if known.by and seen.child.retried:
        again = f"failed: the restart ended with {seen.child.retried}; the run starts over without that checkpoint"
        return _over(state, False, f"{again}, repeating {known.step} steps", anew=True)
    if seen.child.state == "unloaded":
        return replace(state, unloading=_turn(state, known, "away", seen))
    if seen.child.state != "running":
        return _over(state, False, "failed: the restarted command ended")
    if leader is None or seen.starts <= known.starts or leader.step < ENOUGH_STEPS:
        return state
    return _back(state, seen, leader)


def _back(state: JobState, seen: Inputs, leader: Rank) -> JobState:
    """It trains again: check that it continues where it stopped."""
    known, began = state.unloading, leader.start_step
    failed = seen.child.fell_back
    if failed or (leader.start_known and began < known.step):
        where = f"left at step {known.step}, resumed from step {began}"
        why = f"the restart ended with {failed}; it continues from an earlier checkpoint: " if failed else ""
        return _over(state, False, f"failed: {why}{where}", anew=True, began=began)
    took_s = seen.mono_s - known.since_s
    joules, measured = _joules(state, known), state.measured
    measured = replace(measured, reload_j=measured.reload_j.plus(joules))
    if known.save_s is not None:
        measured = replace(measured, unload_s=measured.unload_s.plus(known.save_s))
    if known.save_j is not None:
        measured = replace(measured, unload_j=measured.unload_j.plus(known.save_j))
    loss = ""
    if known.loss is not None and leader.loss is not None:
        loss = f"; loss {known.loss:.4g} before, {leader.loss:.4g} after"
    size = "" if known.saved_b is None else f", {_bytes(known.saved_b)}"
    save = "" if known.save_s is None else f" (checkpoint {known.save_s:.0f} s{size}; restart {took_s:.0f} s)"
    away = took_s + (known.save_s or 0.0)
    told = "" if leader.start_known else ", by the step count passed to it"
    text = f"it works: left at step {known.step} and resumed there{told}{loss}; {away:.0f} s without a step{save}"
    facts = {
        "held": True,
        "step": known.step,
        "resumed_step": began,
        "resumed_step_told": leader.start_known,
        "loss_before": known.loss,
        "loss_after": leader.loss,
        "checkpoint_s": known.save_s,
        "checkpoint_bytes": known.saved_b,
        "checkpoint_j": known.save_j,
        "reload_s": took_s,
        "reload_j": joules,
    }
    over = Unloading(held=True, verdict=text, facts=facts)
    return replace(state, measured=measured, unloading=over)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _over(state: JobState, held: bool | None, verdict: str, *, anew: bool = False, began: int = 0) -> JobState:
    """End the rehearsal. `anew`: the training counts from step `began` again."""
    was = state.unloading
    held = was.held if held is None else held
    facts = {"held": held, "step": was.step, "why": verdict}
    work = progress.begun_again(state.progress, began) if anew else state.progress
    return replace(state, progress=work, unloading=Unloading(held=held, verdict=verdict, facts=facts))
