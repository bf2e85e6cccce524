"""What the job will really do from now on: what holds now until that ends, then the plan (without one full speed),
around forbidden hours and under the cap of its allowances.

Finish, next change, expected totals and the plan as viewers see it all come from here.
"""

import bisect
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from carbontui import units
from carbontui.job.supervisor.core.planning import answers, finish, machine, plan_request, problem
from carbontui.job.supervisor.core.state import forbidden, plan, unloading
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import FULL, OFF, STILL, Level
from carbontui.protocol import HeldBy

Known = dict[str, Level]
"""The levels at the watts measured so far, by name."""


class Segment(NamedTuple):
    """[start_s, end_s) at one level, job clock; without a known end `end_s` is infinite."""

    start_s: float
    end_s: float
    level: Level
    held_by: HeldBy


@dataclass(frozen=True, slots=True)
class CourseAhead:
    """The segments from now to the end of the work, and that end; None while the work is unknown or nothing ends it."""

    segments: tuple[Segment, ...] = ()
    finish_s: float | None = None

    def level_at(self, at_s: float) -> Level | None:
        return next((one.level for one in self.segments if one.start_s <= at_s < one.end_s), None)


Ahead = Iterator[tuple[float, Level, HeldBy]]
"""(until, level, by whom) in order of time."""


def course(state: JobState, inputs: Inputs) -> CourseAhead:
    """As decided now; nothing for a job that is over."""
    if not state.live:
        return CourseAhead()
    known = known_levels(state, inputs)
    return _walked(state, inputs, known, _from_now(state, inputs, known), state.most_cap_w, inputs.now_s + 1e-6)


def if_planned(state: JobState, inputs: Inputs, cap_w: float | None) -> CourseAhead:
    """What override and plan alone would give under a cap of `cap_w` watts per GPU, whatever else holds the job now."""
    known = known_levels(state, inputs)
    return _walked(state, inputs, known, _planned(state, inputs, known, inputs.now_s), cap_w, inputs.now_s)


def known_levels(state: JobState, inputs: Inputs) -> Known:
    """Those of the plan, and the caps that anybody else has set, assumed where no curve tells."""
    started, model = not unloading.before_start(inputs.child, state.unloading), machine.machine(state, inputs)
    known = {level.name: level for level in problem.levels_of(model, started=started)}
    held, boards = state.override.current, len(inputs.devices)
    for cap_w in (state.decision.level.cap_w, held and held.value_w, state.most_cap_w) if boards else ():
        if cap_w:
            known.setdefault(plan.cap_name(cap_w), machine.assumed_cap(model, cap_w, boards))
    return known


def in_force(state: JobState) -> Level:
    """What is in force; of a pause that is still to take hold, the pause; of a command that has yet to come to its
    first step, the level that is ready for it."""
    decided = state.decision
    ready = decided.state == "running" and decided.refused is None and state.clock.stood is not None
    coming = decided.state == "pausing" or (ready and state.progress.step == 0)
    return decided.level if coming else decided.applied


def follows_plan(state: JobState, inputs: Inputs) -> bool:
    """Whether the plan decides, and its level is in force."""
    now = None if state.plan is None else state.plan.at(inputs.now_s).level
    if state.decision.held_by != "plan" or now is None or now.name != in_force(state).name:
        return False
    return finish.why_no_shifting(state, inputs) is None


def _walked(
    state: JobState, inputs: Inputs, known: Known, ahead: Ahead, cap_w: float | None, capped_from_s: float
) -> CourseAhead:
    """The levels ahead until the work is done. What holds now is as it is; after it nothing is faster than the cap."""
    left_s, resume_s = state.progress.left_s, machine.resume_s(state)
    found: list[Segment] = []
    at, still = inputs.now_s, plan_request.level_now(state, inputs) in ("pause", "unload")
    for until, planned, by in ahead:
        if left_s == 0.0:
            break
        level = planned
        if cap_w is not None and at >= capped_from_s and by not in ("person", "calibration"):
            level = plan.under(planned, cap_w, known.values())
            by = by if level is planned else "allowance"
        if until <= at:
            continue
        runs_from = at if level.still or not still else min(until, at + resume_s)
        end = until
        if left_s is not None and level.speed > 0:
            done_s = runs_from + left_s / level.speed
            end = min(until, done_s)
            # of epoch seconds a difference is known to a fraction of a microsecond only
            left_s = 0.0 if done_s <= until else left_s - max(0.0, end - runs_from) * level.speed
        begun_s = found.pop().start_s if found and found[-1][2:] == (level, by) else at
        found.append(Segment(begun_s, end, level, by))
        at, still = end, level.kind in STILL - {"off"}
        if end == math.inf:
            break
    return CourseAhead(tuple(found), _as_promised(state, inputs.now_s, at) if left_s == 0.0 else None)


def _as_promised(state: JobState, now_s: float, finish_s: float) -> float:
    """The plan's own finish, unless it is past, while the deviation from it is within the tolerance: else it would move
    every second."""
    if state.plan is None or state.override.current is not None:
        return finish_s  # an override ends exactly when stated
    promised_s = units.from_iso(state.plan.view.finish)
    kept = promised_s > now_s and abs(finish_s - promised_s) <= finish.drift_s(state)
    return promised_s if kept else finish_s


def _from_now(state: JobState, inputs: Inputs, known: Known) -> Ahead:
    now, decided = in_force(state), state.decision
    planned = None if state.plan is None else state.plan.table.get(now.name)
    level = known.get(now.name) or planned or now
    if decided.held_by == "plan" and not follows_plan(state, inputs):
        # full speed for want of a plan or of what a plan needs, or although the plan would stand still
        resumes_s = None if state.plan is None else _runs_again_s(state.plan, inputs.now_s)
        then_s = {"max_pause": resumes_s, "epoch_end": decided.until_s}.get(decided.why.code)
        if then_s is not None:
            yield then_s, level, "plan"
            yield from _planned(state, inputs, known, then_s)
            return
        at = inputs.now_s
        if now.kind != "full":
            # a start that waits for its first plan does so until there is one
            at = decided.until_s or (math.inf if decided.level.still else at + problem.MERGE_BELOW_S)
            yield at, level, "plan"
        if at < math.inf:
            yield from _full_speed(state, at, known)
        return
    until = _until_s(state, inputs)
    yield until, level, decided.held_by
    if until < math.inf:
        yield from _planned(state, inputs, known, until)


def _until_s(state: JobState, inputs: Inputs) -> float:
    """When what holds now ends; for what measures, the next slot, when all is planned anew."""
    decided = state.decision
    if decided.held_by == "plan" and state.plan is not None:
        return state.plan.at(inputs.now_s).next_at_s or max(inputs.now_s, state.plan.edges_s[-1])
    if decided.until_s is not None and decided.until_s > inputs.now_s:
        return decided.until_s
    if decided.held_by in ("calibration", "try"):
        return answers.slot_boundary(inputs.now_s, problem.SLOT_S)
    return math.inf


def _runs_again_s(planned: plan.Plan, now_s: float) -> float | None:
    """When the plan's next stretch that trains begins; None if none is left."""
    later = (one for one in zip(planned.names, planned.edges_s, strict=False) if one[1] > now_s)
    return next((at for name, at in later if name in planned.table and not planned.table[name].still), None)


def _planned(state: JobState, inputs: Inputs, known: Known, from_s: float) -> Ahead:
    """The override, then the plan, then full speed, at the watts measured so far."""
    held, at = state.override, from_s
    if held.current is not None and (held.until_s is None or held.until_s > from_s):
        at = math.inf if held.until_s is None else held.until_s
        yield at, answers.level_under(held.current, known.values()) or in_force(state), "person"
    if at == math.inf:
        return
    if state.plan is None or finish.why_no_shifting(state, inputs) is not None:
        yield from _full_speed(state, at, known)
        return
    index, ends_s = 0, None if held.current is None else held.until_s
    for name, slots in itertools.groupby(state.plan.names if ends_s is None else _names_after(state.plan, ends_s)):
        index += len(tuple(slots))
        until, level = state.plan.edges_s[index], known.get(name) or state.plan.table.get(name)
        if until > at and level is not None:
            yield until, level, "plan"
    yield from _full_speed(state, max(at, state.plan.edges_s[-1]), known)


def _names_after(planned: plan.Plan, ends_s: float) -> tuple[str, ...]:
    """The plan's levels after an override that ends then. Was the plan made around it, the slot in which it ends is the
    override's as a whole; what is left of it will be planned anew, and is taken to be as the next slot, of the last one
    at full speed."""
    here = bisect.bisect_right(planned.edges_s, ends_s - 1.0) - 1
    if planned.free_gco2_g is None or not 0 <= here < len(planned.names):
        return planned.names
    after = planned.names[here + 1 :]
    return (*planned.names[:here], after[0] if after else FULL.name, *after)


def _full_speed(state: JobState, from_s: float, known: Known) -> Ahead:
    """Full speed to the end, except in forbidden hours."""
    full, still = known.get("full", FULL), known.get("off") or known.get("pause", OFF)
    left_s = 86400.0 if state.progress.left_s is None else state.progress.left_s
    until = forbidden.soonest_s(state.forbidden, from_s, left_s)
    for start, end in forbidden.stretches(state.forbidden, from_s, until):
        if start > from_s:
            yield start, full, "plan"
        yield end, still, "forbidden"
    yield math.inf, full, "plan"
