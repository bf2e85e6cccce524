"""The plan as viewers see it: under a user's override it shows the effect of the override and its cost.

An override without an end fixes only the current slot for the planner, as if it ended soon. Shown like that, a pause
without an end would read as twelve minutes, then flat out.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from msgspec import structs

from carbontui import protocol, units
from carbontui.job.supervisor.core import calibration, finish, forbidden, plan
from carbontui.job.supervisor.core.plan import Plan
from carbontui.job.supervisor.core.state import JobState
from carbontui.plan import course
from carbontui.power import curve as curves

CALIBRATION_COST_S = 120.0
"""The flat-out work that a calibration costs, in seconds: it runs its levels in sequence, most of them slow."""
DOING = {"off": "waiting", "unload": "unloading", "pause": "pausing"}
"""What a job does at a level without training steps."""
SAME = 0.005
"""Two totals that differ by less than this share of the larger are shown as equal."""


def view(state: JobState, now_s: float) -> protocol.PlanView | None:
    """The plan in force, or as changed by the user's override while that holds."""
    held, planned = state.override, state.plan
    if planned is None:
        return None
    planned = _of_now(planned, now_s)
    if held.current is None:
        plain, note = _with_hours(state, planned, now_s), curve_note(state, now_s)
        return structs.replace(plain, curve_note=note) if note else plain
    shown, told = planned.view, _until_cleared(state, planned, now_s) if held.until_s is None else planned.view
    words = _words(state, planned, told or shown, now_s)
    if held.until_s is not None and finish.late(state):
        words = f"{words} {plan.late_words(shown)}"
    return structs.replace(told or shown, explanation=words)


def _of_now(planned: Plan, now_s: float) -> Plan:
    """The plan with an explanation that is true now: its own starts with the stretch that was first when it was made,
    and its gains refer to that moment. In a fast replay, or while no new plan can be made, that stretch is over."""
    first_end_s = next(
        (start for name, start in zip(planned.names, planned.edges_s, strict=False) if name != planned.names[0]),
        planned.edges_s[-1],
    )
    if planned.view.late_s > 0 or now_s < first_end_s or not planned.names:
        return planned
    made = units.fmt_clock(units.from_iso(planned.view.made_at), now_s)
    words = _course(planned, now_s)
    told = f"{words[0].upper()}{words[1:]}, as planned at {made}." if words else f"The plan made at {made} is over."
    return replace(planned, view=structs.replace(planned.view, explanation=told))


def _course(planned: Plan, now_s: float) -> str:
    """The stretches from now on; '' after the plan's end."""
    index = planned.index_at(now_s)
    if index is None:
        return ""
    ahead = zip(planned.names[index:], planned.edges_s[index + 1 :], strict=True)
    runs = [(name, list(slots)[-1][1]) for name, slots in itertools.groupby(ahead, key=lambda slot: slot[0]) if name]
    ends_s = [end_s for _, end_s in runs[:-1]] + [units.from_iso(planned.view.finish)]
    levels = [(name, planned.table[name]) for name, _ in runs]
    return course.course(
        [
            course.StretchWords(
                DOING.get(level.kind) or f"running at {name}", level.still, units.fmt_clock(end_s, now_s)
            )
            for (name, level), end_s in zip(levels, ends_s, strict=False)
        ]
    )


def curve_note(state: JobState, now_s: float) -> str:
    """The basis of the plan's caps if this job was not calibrated, and whether calibrating would pay: the error on the
    joules ahead under caps exceeds the work that calibrating costs. '' if no cap is planned."""
    curve, planned = state.curve, state.plan
    if curve is None or planned is None or curve.basis == "measured":
        return ""
    if curve.simulated:
        return "Limits and speeds under caps are simulated, from public measurements (Zeus, NSDI 2023)."
    ahead_j = unsure_j = worst = 0.0
    for name, (start, until) in zip(planned.names, itertools.pairwise(planned.edges_s), strict=False):
        level = planned.table.get(name)
        error = curves.energy_error(curve, level.cap_w) if level else 0.0
        if level is None or not error or until <= now_s:
            continue
        joules = level.power_w * (until - max(start, now_s))
        ahead_j, unsure_j, worst = ahead_j + joules, unsure_j + error * joules, max(worst, error)
    if not ahead_j:
        return ""
    where = {"public": "public measurements of other trainings", "imported": "another board of this model"}
    known = f"Speeds under caps are from {where[curve.basis]}: joules per step ±{worst:.0%}."
    full_w = max((level.power_w for level in planned.table.values()), default=0.0)
    if unsure_j <= CALIBRATION_COST_S * full_w:
        return known
    low, high = (units.fmt_duration(seconds) for seconds in calibration.TAKES_S)
    return f"{known} Measuring them on this job would pay: carbontui calibrate ({low} to {high})."


def _with_hours(state: JobState, planned: Plan, now_s: float) -> protocol.PlanView:
    """The plan in force, with the cost of the user's forbidden hours."""
    hours, free = forbidden.current(state.forbidden, now_s), planned.free_gco2_g
    if not hours or free is None:
        return planned.view
    more = planned.view.gco2_g - free
    kept = f"Not running {', '.join(one.text(now_s) for one in hours)}"
    costs = f"costs {units.fmt_grams(more)}" if more > SAME * max(free, planned.view.gco2_g) else "costs nothing"
    return structs.replace(planned.view, explanation=f"{planned.view.explanation} {kept} {costs}.")


def _until_cleared(state: JobState, planned: Plan, now_s: float) -> protocol.PlanView | None:
    """One level until the work is done, or to the deadline at a still level; None if the level is not known."""
    assert state.override.current is not None
    level = plan.level_under(state.override.current, planned.table.values())
    left, was = planned.work_left_s, planned.view
    if level is None or left is None:
        return None
    # from the plan's own start and work: what is shown stays constant until there is a new plan
    start_s = units.from_iso(was.start)
    end_s = start_s + left / level.speed if level.speed else max(now_s, units.from_iso(was.deadline))
    slots = 1 + max(0, math.ceil((end_s - start_s - was.first_s) / was.slot_s))
    shown = structs.replace(was, levels=((level.name, slots),), finish=units.iso(end_s))
    run_now = next((base for base in was.baselines if base.name == "run now"), None)
    if level.kind == "full" and run_now is not None:
        shown = structs.replace(shown, gco2_g=run_now.gco2_g, cost=run_now.cost, avoided_g=0.0)
    return shown


def _words(state: JobState, planned: Plan, shown: protocol.PlanView, now_s: float) -> str:
    held = state.override
    assert held.current is not None
    mode, by = held.current.mode, held.current.by
    done = {"pause": "Paused", "boost": "Boosted", "cap": f"Capped at {held.current.value_w or 0:g} W"}[mode]
    until = "until cleared" if held.until_s is None else f"until {units.fmt_clock(held.until_s, now_s)}"
    first = f"{done} by {by} {until}"
    if held.open_pause:
        late = "; the budget becomes unreachable" if finish.unreachable_by_pause(state, now_s) else ""
        return f"{first}: no work is done meanwhile{late}."
    free = planned.free_gco2_g
    if free is None or (held.until_s is None and mode == "cap"):
        return f"{first}; the rest is planned around it."
    more = shown.gco2_g - free
    if abs(more) <= SAME * max(shown.gco2_g, free):
        return f"{first}: the work left emits {units.fmt_grams(shown.gco2_g)}, as the plan alone would."
    side = "more" if more > 0 else "less"
    alone = f"{units.fmt_grams(abs(more))} {side} than the plan alone ({units.fmt_grams(free)})"
    return f"{first}: the work left emits {units.fmt_grams(shown.gco2_g)}, {alone}."
