"""A try before the start: a job that waits for 06:00 must not find its import error at 06:00.

The command runs at once until enough is known. What was measured (the speed of a step, watts, the total, whether it
can be unloaded) is kept; then it is unloaded with its checkpoint, or ended, and really starts when the plan says.
"""

from __future__ import annotations

from dataclasses import replace

from carbontui import units
from carbontui.job.supervisor.core import progress, unload_rules, unloading
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState
from carbontui.job.supervisor.core.tried import Tried

STEPS = 20
TRY_S = 120.0
"""A try ends after this many steps, or this long."""
LEARN_S = 20.0
"""Fast steps are timed until their rate is known, at most this long from the first one: imports may take longer."""


def enough(state: JobState, seen: Inputs) -> bool:
    """Whether the current try has shown all it can."""
    since_s = state.tried.stepped_s
    timed = state.progress.ref_rate is not None or (since_s is not None and seen.mono_s - since_s >= LEARN_S)
    return seen.child.trying and ((state.progress.steps_done >= STEPS and timed) or seen.child.age_s >= TRY_S)


def ends(state: JobState, seen: Inputs) -> bool:
    """Whether to end it now: it has shown enough, and is not about to exit with a checkpoint."""
    return enough(state, seen) and state.unloading.phase == "none"


def words(state: JobState) -> str:
    if state.unloading.by == unloading.TRY:
        return f"trying the command: {unloading.words(state.unloading)}"
    return f"trying the command before its start: at least {STEPS} steps, {units.fmt_duration(TRY_S)} at most"


def saw(state: JobState, seen: Inputs) -> JobState:
    """The state one tick later: the progress of an unload and of a try."""
    state = unload_rules.saw(state, seen)
    tried = state.tried
    if seen.child.trying:
        first = tried.stepped_s is None and state.progress.steps_done > 0
        tried = replace(tried, under_way=True, stepped_s=seen.mono_s if first else tried.stepped_s)
        state = replace(state, tried=tried)
        leader = seen.leader
        # what it saved at its end is resumed at the real start; if that fails, training starts from scratch
        fresh = state.unloading.phase == "none" and state.unloading.held is None
        if enough(state, seen) and fresh and leader is not None and leader.can_unload:
            return replace(state, unloading=unload_rules.begun(unloading.TRY, seen))
        return state
    if tried.under_way and seen.child.state in ("waiting", "unloaded"):
        text = _told(state, kept=seen.child.state == "unloaded")
        state = replace(state, tried=Tried(text, ended_s=seen.now_s))
    if state.tried.text and seen.child.state == "waiting" and state.progress.step:
        # this also discards counts of an exited process that arrive only now
        state = replace(state, progress=progress.begun_again(state.progress, 0))
    return state


def _told(state: JobState, *, kept: bool) -> str:
    """What was measured, in one line."""
    work = state.progress
    if not work.step:
        return "tried: it ran, but no training step was seen"
    parts = [f"tried: {work.steps_done} steps"]
    if work.ref_rate:
        parts.append(f"{1 / work.ref_rate:.3g} s a step")
    watts = [mean.value for mean in state.measured.full_w.values() if mean.value is not None]
    if watts:
        parts.append(f"{sum(watts):.0f} W on its GPUs")
    elif state.measured.rest_w.value is not None:
        parts.append(f"{state.measured.rest_w.value:.0f} W of CPU and memory")
    if work.steps_total is not None:
        takes = "" if work.total_s is None else f" ({units.fmt_duration(work.total_s)})"
        parts.append(f"{work.steps_total} total steps{takes}")
    elif work.work_s is None and work.guess is not None:
        parts.append(f"{work.guess[0]} total steps are a guess, from {work.guess[1]} (--guess plans with it)")
    elif work.work_s is None:
        parts.append("the total is not known")
    parts.append(f"unloaded at step {work.step}, checkpoint kept" if kept else "it cannot be unloaded: it starts over")
    return ", ".join(parts)
