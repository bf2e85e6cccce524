"""A try before the start: a job that waits for 06:00 must not find its import error at 06:00.

The command runs at once until enough is known. What was measured (the speed of a step, watts, the total, whether it
can be unloaded) is kept; then it is unloaded with its checkpoint, or ended, and really starts when the plan says.
"""

from dataclasses import replace

from carbontui.job.supervisor.core.rules import unload_rules
from carbontui.job.supervisor.core.state import progress, unloading
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import FULL, PlanChoice
from carbontui.job.supervisor.core.state.unloading import Tried
from carbontui.protocol import Statement, Why, statement

STEPS = 20
TRY_S = 120.0
"""A try ends after this many steps, or this long."""
LEARN_S = 20.0
"""Fast steps are timed until their rate is known, at most this long from the first one: imports may take longer."""


def enough(state: JobState, inputs: Inputs) -> bool:
    """Whether the current try has shown all it can."""
    since_s = state.tried.stepped_s
    timed = state.progress.ref_rate is not None or (since_s is not None and inputs.mono_s - since_s >= LEARN_S)
    return inputs.child.trying and ((state.progress.steps_done >= STEPS and timed) or inputs.child.age_s >= TRY_S)


def ends(state: JobState, inputs: Inputs) -> bool:
    """Whether to end it now: it has shown enough, and is not about to exit with a checkpoint."""
    return enough(state, inputs) and state.unloading.phase == "none"


def said(state: JobState) -> Statement:
    """How far it has come."""
    if state.unloading.by == unloading.TRY:
        return statement("trying_unload", phase=unloading.said(state.unloading))
    return statement("trying", steps=STEPS, most_s=TRY_S)


def rehearses(state: JobState, inputs: Inputs) -> PlanChoice | None:
    """The level a rehearsal of an unload, or a try before the start, asks for, and its progress."""
    level = unloading.level(state.unloading)
    if inputs.child.trying:
        return PlanChoice(level or FULL, Why("calibrating", said(state)), "try")
    if level is None:
        return None
    phase = unloading.said(state.unloading)
    return PlanChoice(level, Why("calibrating", statement("rehearsing", phase=phase)), "calibration")


def update(state: JobState, inputs: Inputs) -> JobState:
    """The state one tick later: the progress of an unload and of a try."""
    state = unload_rules.update(state, inputs)
    tried = state.tried
    if inputs.child.trying:
        first = tried.stepped_s is None and state.progress.steps_done > 0
        tried = replace(tried, under_way=True, stepped_s=inputs.mono_s if first else tried.stepped_s)
        state = replace(state, tried=tried)
        leader = inputs.leader
        # what it saved at its end is resumed at the real start; if that fails, training starts from scratch
        fresh = state.unloading.phase == "none" and state.unloading.resumes is None
        if enough(state, inputs) and fresh and leader is not None and leader.can_unload:
            return replace(state, unloading=unload_rules.begun(unloading.TRY, inputs))
        return state
    if tried.under_way and inputs.child.state in ("waiting", "unloaded"):
        result = _result(state, kept=inputs.child.state == "unloaded")
        state = replace(state, tried=Tried(result, ended_s=inputs.now_s))
    if state.tried.result is not None and inputs.child.state == "waiting" and state.progress.step:
        # this also discards counts of an exited process that arrive only now
        state = replace(state, progress=progress.begun_again(state.progress, 0))
    return state


def _result(state: JobState, *, kept: bool) -> Statement:
    """What was measured."""
    work = state.progress
    if not work.step:
        return statement("tried_without_steps")
    watts = [mean.value for mean in state.measured.full_w.values() if mean.value is not None]
    guess = work.guess if work.steps_total is None and work.work_s is None else None
    return statement(
        "tried",
        steps=work.steps_done,
        step_s=1 / work.ref_rate if work.ref_rate else None,
        gpus_w=sum(watts) if watts else None,
        host_w=state.measured.rest_w.value,
        total=work.steps_total,
        takes_s=work.total_s,
        total_known=work.steps_total is not None or work.work_s is not None,
        guess=guess and guess[0],
        guessed_from=guess and guess[1],
        kept_at=work.step if kept else None,
    )
