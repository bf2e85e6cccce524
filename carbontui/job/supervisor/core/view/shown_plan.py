"""The plan as it will really be carried out, with what is to be said of it.

The plan in force where it decides, else the course that an override, the site budget, forbidden hours or an allowance
gives."""

import itertools
import math
from typing import NamedTuple

from msgspec import structs

from carbontui import protocol, units
from carbontui.job.supervisor.core.planning import expected_end, finish
from carbontui.job.supervisor.core.planning.answers import coded, point_of
from carbontui.job.supervisor.core.planning.course import CourseAhead, course, follows_plan, in_force
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
        shown, factor = _of_now(planned, ahead), _by_the_account(state, inputs, planned, ahead)
        said = _as_planned(state, planned, now_s, stale=factor != 1.0)
        return ShownPlan(shown if factor == 1.0 else scaled(shown, factor), said, _curve(state, now_s))
    shown = _carried_out(state, inputs, planned, ahead)
    by_person = state.decision.held_by == "person" and state.decision.refused is None
    said = _overridden(state, planned, shown.gco2_g, now_s) if by_person else ()
    if ahead.finish_s is not None and shown.late_s > finish.late_tolerance_s(state):
        said = (*said, statement("plan_late", late_s=shown.late_s, finish_s=ahead.finish_s))
    return ShownPlan(shown, said, _curve(state, now_s))


def frontier(state: JobState, shown: protocol.PlanView | None, end: protocol.AtEnd | None) -> protocol.Frontier | None:
    """The frontier of the plan in force, its chosen point what will really be carried out: in grams what is expected at
    the `end`, to the digits that are shown. In grams it never rises: more time cannot cost more, so a budget that would
    is none to choose under what holds now."""
    known = state.frontier
    if known is None or shown is None or known.chosen is None or state.plan is None:
        return known
    chosen, was, planned = point_of(state.totals, shown, state.start_s), known.points[known.chosen], state.plan.view
    if end is not None:
        chosen = structs.replace(chosen, gco2_g=float(f"{end.gco2_g:.3g}"))
    works = {one.name for one in shown.table if one.speed > 0}
    if works.isdisjoint(name for name, _ in shown.levels):
        return protocol.Frontier((chosen,), 0, known.reference_s)  # it does no work: its few grams are no choice
    others = [point for index, point in enumerate(known.points) if index != known.chosen]
    if shown.levels == planned.levels and planned.gco2_g > 0:
        # by the account's watts they differ by as much more as the plan itself
        more = shown.gco2_g / planned.gco2_g
        at = [chosen.gco2_g + (point.gco2_g - was.gco2_g) * more for point in others]
        others = [structs.replace(point, gco2_g=grams) for point, grams in zip(others, at, strict=True)]
    falls, kept = state.spec.objective == "carbon" and state.spec.weight is None, [chosen]
    for point in reversed([point for point in others if point.finish_s < chosen.finish_s]):
        kept[:0] = [point] if not falls or point.gco2_g >= kept[0].gco2_g else []
    for point in (point for point in others if point.finish_s > chosen.finish_s):
        kept += [point] if not falls or point.gco2_g <= kept[-1].gco2_g else []
    return protocol.Frontier(tuple(kept), kept.index(chosen), known.reference_s)


# --- as planned ---------------------------------------------------------------------------------------------------


def _of_now(planned: Plan, ahead: CourseAhead) -> protocol.PlanView:
    """The plan with the finish expected now: work that falls behind or gets ahead moves it before the next plan."""
    view = planned.view
    if ahead.finish_s is None or units.iso(ahead.finish_s) == view.finish:
        return view
    late_s = max(0.0, ahead.finish_s - units.from_iso(view.deadline))
    return structs.replace(view, finish=units.iso(ahead.finish_s), late_s=late_s)


STEP = 1.02
"""The figures of a plan follow the account's watts in steps of this factor, so that they stand still between."""


def _by_the_account(state: JobState, inputs: Inputs, planned: Plan, ahead: CourseAhead) -> float:
    """What is ahead of the account against what the plan had thought of the same time, whose watts are of when it was
    made; 1 where they agree, one is not known, or too little of the plan is left to tell."""
    thought, rest = 0.0, expected_end.at_the_wall(state, inputs, ahead) or ()
    for one in planned.view.windows:
        start_s, end_s = units.from_iso(one.start), units.from_iso(one.end)
        thought += one.gco2_g * max(0.0, end_s - max(start_s, inputs.now_s)) / ((end_s - start_s) or 1.0)
    grams = expected_end.grams(state, inputs, rest) or 0.0
    told = grams > 0 and thought > planned.view.gco2_g / 4 > 0
    return STEP ** round(math.log(grams / thought, STEP)) if told else 1.0


def scaled(view: protocol.PlanView, factor: float) -> protocol.PlanView:
    """The plan with its figures in the account's watts."""

    def more(one: protocol.PlanWindow) -> protocol.PlanWindow:
        return structs.replace(one, kwh=one.kwh * factor, gco2_g=one.gco2_g * factor, gain_g=one.gain_g * factor)

    proof, price = view.certificate, view.price_of_time_g_per_h
    return structs.replace(
        view,
        gco2_g=view.gco2_g * factor,
        kwh=view.kwh * factor,
        cost=view.cost * factor,
        certificate=proof and structs.replace(proof, lower_bound=proof.lower_bound * factor),
        price_of_time_g_per_h=None if price is None else price * factor,
        avoided_g=None,
        baselines=(),
        windows=tuple(map(more, view.windows)),
    )


def _as_planned(state: JobState, planned: Plan, now_s: float, *, stale: bool) -> tuple[Statement, ...]:
    """The explanation of the plan in force. Its gains refer to the moment when it was made: once its first stretch is
    over (in a fast replay, or while no new plan can be made), or in other watts, only what is left of it is said."""
    if planned.view.late_s > finish.late_tolerance_s(state):
        late = statement("plan_late", late_s=planned.view.late_s, finish_s=units.from_iso(planned.view.finish))
        return (late, *_constraints(state, planned, now_s))
    first_end_s = next(
        (start for name, start in zip(planned.names, planned.edges_s, strict=False) if name != planned.names[0]),
        planned.edges_s[-1],
    )
    if now_s >= first_end_s or planned.explanation is None or stale:
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
    within = tuple(one._replace(end_s=min(one.end_s, end_s)) for one in ahead.segments if one.start_s < end_s)
    taken = expected_end.parts(state, inputs, CourseAhead(within, ahead.finish_s))
    return structs.replace(
        was,
        levels=coded(names),
        table=tuple(known.values()),
        finish=units.iso(end_s),
        late_s=0.0 if ahead.finish_s is None else max(0.0, ahead.finish_s - units.from_iso(was.deadline)),
        avoided_g=None,
        certificate=None,
        baselines=(),
        windows=tuple(map(_window, taken)),
        gco2_g=math.fsum(one.gco2_g or 0.0 for one in taken),
        kwh=math.fsum(one.kwh for one in taken),
    )


def _window(one: expected_end.SegmentUse) -> protocol.PlanWindow:
    """A stretch of the course; it gains nothing that a plan had chosen it for."""
    start, end, name = units.iso(one.segment.start_s), units.iso(one.segment.end_s), one.segment.level.name
    grams = one.gco2_g or 0.0
    return protocol.PlanWindow(start, end, name, grams / one.kwh if one.kwh else 0.0, one.kwh, grams, 0.0)


def _overridden(state: JobState, planned: Plan, left: float, now_s: float) -> tuple[Statement, ...]:
    """What the override does to the rest, and what that costs where the plan was made around it to its end."""
    held = state.override
    if held.current is None:
        return ()
    missed = finish.unreachable_by_pause(state, now_s) if held.until_s is None else None
    # both by the account's watts
    more, alone = left / planned.view.gco2_g if planned.view.gco2_g > 0 else 1.0, planned.free_gco2_g
    alone = None if alone is None else alone * more
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
