"""The plan as it will really be carried out, with what is to be said of it.

The plan in force where it decides, else the course that an override, the site budget, forbidden hours or an allowance
gives."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from msgspec import structs

from carbontui import protocol, units
from carbontui.job.supervisor.core.planning import expected_end, finish, problem
from carbontui.job.supervisor.core.planning.answers import coded, point_of
from carbontui.job.supervisor.core.planning.course import CourseAhead, Segment, course, follows_plan, in_force
from carbontui.job.supervisor.core.rules import calibration
from carbontui.job.supervisor.core.state import forbidden
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import Plan
from carbontui.power.curves import curve as curves
from carbontui.protocol import Statement, statement

CALIBRATION_COST_S = 120.0
"""The full-speed work that a calibration costs, in seconds: it runs its levels in sequence, most of them slow."""
SAME = 0.005
"""Two totals that differ by less than this share of the larger are shown as equal."""


class ShownPlan(NamedTuple):
    """The plan for viewers, its explanation and the basis of its caps not yet in words."""

    view: protocol.PlanView
    explanation: tuple[Statement, ...] = ()
    curve: Statement | None = None


def view(state: JobState, inputs: Inputs) -> ShownPlan | None:
    """None without a plan."""
    planned, now_s = state.plan, inputs.now_s
    if planned is None:
        return None
    ahead = course(state, inputs)
    if follows_plan(state, inputs) and state.most_cap_w is None:
        return ShownPlan(_of_now(planned, ahead), _as_planned(state, planned, now_s), _curve(state, now_s))
    shown = _carried_out(state, inputs, planned, ahead)
    by_person = state.decision.held_by == "person" and state.decision.refused is None
    said = _overridden(state, planned, now_s) if by_person else ()
    if ahead.finish_s is not None and shown.late_s > finish.late_tolerance_s(state):
        said = (*said, statement("plan_late", late_s=shown.late_s, finish_s=ahead.finish_s))
    return ShownPlan(shown, said, _curve(state, now_s))


def frontier(state: JobState, shown: protocol.PlanView | None) -> protocol.Frontier | None:
    """The frontier of the plan in force, its chosen point what will really be carried out."""
    known = state.frontier
    if known is None or shown is None or known.chosen is None or state.plan is None or shown is state.plan.view:
        return known
    chosen = point_of(state.totals, shown, state.start_s)
    others = (point for index, point in enumerate(known.points) if index != known.chosen)
    points = tuple(sorted((*others, chosen), key=lambda point: point.finish_s))
    return protocol.Frontier(points, points.index(chosen), known.reference_s)


# --- as planned ---------------------------------------------------------------------------------------------------


def _of_now(planned: Plan, ahead: CourseAhead) -> protocol.PlanView:
    """The plan with the finish expected now: work that falls behind or gets ahead moves it before the next plan."""
    view = planned.view
    if ahead.finish_s is None or units.iso(ahead.finish_s) == view.finish:
        return view
    late_s = max(0.0, ahead.finish_s - units.from_iso(view.deadline))
    return structs.replace(view, finish=units.iso(ahead.finish_s), late_s=late_s)


def _as_planned(state: JobState, planned: Plan, now_s: float) -> tuple[Statement, ...]:
    """The explanation of the plan in force. Its gains refer to the moment when it was made: once its first stretch is
    over (in a fast replay, or while no new plan can be made) only what is left of it is said."""
    if planned.view.late_s > finish.late_tolerance_s(state):
        late = statement("plan_late", late_s=planned.view.late_s, finish_s=units.from_iso(planned.view.finish))
        return (late, *_constraints(state, planned, now_s))
    first_end_s = next(
        (start for name, start in zip(planned.names, planned.edges_s, strict=False) if name != planned.names[0]),
        planned.edges_s[-1],
    )
    if now_s >= first_end_s or planned.explanation is None:
        made_s = units.from_iso(planned.view.made_at)
        since = statement("plan_since", stretches=_stretches(planned, now_s), made_s=made_s)
        return (since, *_constraints(state, planned, now_s))
    figures = {"stretches": _stretches(planned, planned.edges_s[0]), **structs.asdict(planned.explanation)}
    first = Statement("plan_explained", figures)
    return (first, *_constraints(state, planned, now_s))


def _stretches(planned: Plan, from_s: float) -> tuple[tuple[str, bool, float], ...]:
    """(level, whether it stands still, end) of the plan's stretches from then on; () after its end."""
    index = planned.index_at(from_s)
    if index is None:
        return ()
    ahead = zip(planned.names[index:], planned.edges_s[index + 1 :], strict=True)
    runs = [(name, list(slots)[-1][1]) for name, slots in itertools.groupby(ahead, key=lambda slot: slot[0]) if name]
    ends_s = [end_s for _, end_s in runs[:-1]] + [units.from_iso(planned.view.finish)]
    return tuple(
        (name, planned.table[name].still, end_s)
        for (name, _), end_s in zip(runs, ends_s, strict=False)
        if name in planned.table
    )


def _constraints(state: JobState, planned: Plan, now_s: float) -> tuple[Statement, ...]:
    """What the user's limits and other jobs cost, and what moved the grid."""
    found: list[Statement] = []
    if (limit := planned.view.hour_limit) is not None:
        cost = {"not_above_g": limit.not_above_g, "more_g": limit.more_g, "later_s": limit.later_s}
        found.append(Statement("plan_hour_limit", cost))
    if planned.scarce_s is not None:
        found.append(statement("plan_scarce", begin_s=planned.scarce_s[0], end_s=planned.scarce_s[1]))
    if planned.moved:
        found.append(statement("plan_moved", moved=planned.moved))
    hours, free = forbidden.current(state.forbidden, now_s), planned.free_gco2_g
    if hours and free is not None:
        more = planned.view.gco2_g - free
        kept = more if more > SAME * max(free, planned.view.gco2_g) else None
        found.append(statement("plan_forbidden", hours=tuple(one.said for one in hours), more_g=kept))
    return tuple(found)


def _curve(state: JobState, now_s: float) -> Statement | None:
    """The basis of the plan's caps if this job was not calibrated, and whether calibrating would pay: the error on the
    joules ahead under caps exceeds the work that calibrating costs. None if no cap is planned."""
    curve, planned = state.curve, state.plan
    if curve is None or planned is None or curve.basis == "measured":
        return None
    if curve.simulated:
        return statement("curve_simulated")
    ahead_j = unsure_j = worst = 0.0
    for name, (start, until) in zip(planned.names, itertools.pairwise(planned.edges_s), strict=False):
        level = planned.table.get(name)
        error = curves.energy_error(curve, level.cap_w) if level else 0.0
        if level is None or not error or until <= now_s:
            continue
        joules = level.power_w * (until - max(start, now_s))
        ahead_j, unsure_j, worst = ahead_j + joules, unsure_j + error * joules, max(worst, error)
    if not ahead_j:
        return None
    full_w = max((level.power_w for level in planned.table.values()), default=0.0)
    pays = unsure_j > CALIBRATION_COST_S * full_w
    return statement("curve_assumed", basis=curve.basis, error=worst, takes_s=calibration.TAKES_S if pays else None)


# --- as carried out -----------------------------------------------------------------------------------------------


def _carried_out(state: JobState, inputs: Inputs, planned: Plan, ahead: CourseAhead) -> protocol.PlanView:
    """The plan's slots with the levels of the course, from the slot that holds now on: what is past stays as it was
    planned. No figure compares it with other policies, and none is proved: those were of the plan."""
    was, now_s = planned.view, inputs.now_s
    end_s = ahead.finish_s or max(units.from_iso(was.deadline), now_s + was.slot_s)
    names, known, start_s = list[str](), dict(planned.table), units.from_iso(was.start)
    at, slot = start_s, 0
    while at < end_s - 1.0:
        until = at + (was.first_s if slot == 0 else was.slot_s)
        level = ahead.level_at(now_s if at <= now_s else (at + min(until, end_s)) / 2)
        if level is None and at <= now_s:
            level = in_force(state)
        if until <= now_s and slot < len(planned.names):
            names.append(planned.names[slot])
        elif level is not None:
            known.setdefault(level.name, level)
            names.append(level.name)
        else:
            break  # beyond this nothing is known
        at, slot = until, slot + 1
    rest = expected_end.at_end(state, inputs)
    grams = {} if rest is None else {"gco2_g": rest.gco2_g - (state.totals.gco2_g or 0.0)}
    kwh = {} if rest is None else {"kwh": rest.energy_wall_kwh - state.totals.wall_kwh}
    return structs.replace(
        was,
        levels=coded(names),
        table=tuple(known.values()),
        finish=units.iso(end_s),
        late_s=0.0 if ahead.finish_s is None else max(0.0, ahead.finish_s - units.from_iso(was.deadline)),
        avoided_g=None,
        certificate=None,
        baselines=(),
        hour_limit=None,
        windows=tuple(_window(state, one) for one in ahead.segments if one.end_s < math.inf),
        **grams,
        **kwh,
    )


def _window(state: JobState, one: Segment) -> protocol.PlanWindow:
    """A stretch of the course; it gains nothing that a plan had chosen it for."""
    known = state.outlook
    mean = known and problem.mean_over(known.mean, known.start_s, known.step_s, one.start_s, one.end_s)
    kwh = units.joules_to_kwh(one.level.power_w * (one.end_s - one.start_s))
    start, end = units.iso(one.start_s), units.iso(one.end_s)
    return protocol.PlanWindow(start, end, one.level.name, mean or 0.0, kwh, kwh * (mean or 0.0), 0.0)


def _overridden(state: JobState, planned: Plan, now_s: float) -> tuple[Statement, ...]:
    """What the override does to the rest, and what that costs where the plan was made around it to its end."""
    held = state.override
    if held.current is None:
        return ()
    missed = finish.unreachable_by_pause(state, now_s) if held.open_pause else None
    left, alone = planned.view.gco2_g, planned.free_gco2_g
    known = alone is not None and held.until_s is not None
    if alone is not None and abs(left - alone) <= SAME * max(left, alone):
        alone = left
    figures = {
        "mode": held.current.mode,
        "watts": held.current.value_w,
        "by": held.current.by,
        "until_s": held.until_s,
        "left_g": left if known else None,
        "alone_g": alone if known else None,
        "missed": missed or "",
    }
    return (Statement("plan_overridden", figures),)
