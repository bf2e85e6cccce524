"""Expected totals of the job at its end: the remaining levels at their watts, on the outlook."""

from __future__ import annotations

import math

from carbontui import protocol, units
from carbontui.account import expected_end as account
from carbontui.account.expected_end import Stretch
from carbontui.grid.types import Outlook
from carbontui.job.supervisor.core import machine
from carbontui.job.supervisor.core.course import CourseAhead, course, if_planned
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState
from carbontui.power import curve as curves


def at_end(state: JobState, seen: Inputs) -> protocol.AtEnd | None:
    """None where no honest figure exists: flat-out watts not measured, work or grid unknown, a pause without end."""
    totals, outlook, whole_s = state.totals, state.outlook, state.progress.whole_s
    full_w = machine.full_wall_w(state, seen)
    if not state.live or totals.gco2_g is None or full_w is None or outlook is None or whole_s is None:
        return None
    ahead = course(state, seen)
    rest = at_the_wall(state, seen, ahead)
    if rest is None or ahead.finish_s is None:
        return None
    run_now_end_s = state.start_s + whole_s
    found = account.expect(
        totals.gco2_g,
        rest,
        _slots(outlook, seen.now_s, max(run_now_end_s, rest[-1].end_s if rest else seen.now_s)),
        run_now_past_g=totals.run_now_past_g,
        run_now_rest=Stretch(max(seen.now_s, state.start_s), run_now_end_s, full_w),
    )
    if found is None:
        return None
    grams, avoided = found.gco2_g, found.avoided_g
    return protocol.AtEnd(
        finish=units.iso(ahead.finish_s),
        energy_wall_kwh=round(totals.wall_kwh + found.rest_kwh, 9),
        gco2_g=round(grams.value, 6),
        gco2_lo_g=_rounded(grams.lo),
        gco2_hi_g=_rounded(grams.hi),
        run_now_g=_rounded(found.run_now_g),
        avoided_g=None if avoided is None else round(avoided.value, 6),
        avoided_lo_g=None if avoided is None else _rounded(avoided.lo),
        avoided_hi_g=None if avoided is None else _rounded(avoided.hi),
        cost=_cost(state, seen, rest, outlook),
    )


def provenance(state: JobState, seen: Inputs) -> protocol.Provenance:
    """Source of the expected totals: the forecast, and watts of which some may be assumed."""
    known = machine.machine(state, seen)
    assumed = "" if known.parked_measured or not state.plan else "; parked watts assumed"
    source = state.outlook.source if state.outlook else "no grid source"
    follows = "the plan in force" if state.plan else "flat out"
    capped = state.curve is not None and bool(known.caps)
    band = f"80 % band of the forecast's error{' and of the speeds under caps' if capped else ' alone'}"
    return protocol.Provenance("forecast", f"metered so far, then {follows} on {source}{assumed}; {band}")


ENDLESS_S = 30 * 86400.0
"""How far ahead to look when the end is not known."""


def endless(state: JobState, seen: Inputs) -> tuple[Stretch, ...] | None:
    """Flat out from now on, for work without a known end; None until the flat-out watts are measured."""
    watts = machine.full_wall_w(state, seen)
    return None if watts is None else (Stretch(seen.now_s, seen.now_s + ENDLESS_S, watts),)


def stretches(state: JobState, seen: Inputs, cap_w: float | None = None) -> tuple[Stretch, ...] | None:
    """The remaining work at the wall as override and plan have it, from now to its end, nothing faster than under
    `cap_w` (watts per GPU); None while the work is unknown or has no end."""
    return at_the_wall(state, seen, if_planned(state, seen, cap_w))


def at_the_wall(state: JobState, seen: Inputs, ahead: CourseAhead) -> tuple[Stretch, ...] | None:
    """A course in watts at the wall; None while it has no end."""
    if ahead.finish_s is None:
        return None
    known = machine.machine(state, seen)
    return tuple(
        Stretch(
            one.start_s,
            one.end_s,
            0.0 if one.level.kind == "off" else (one.level.power_w + known.rest_w) * known.pue,
            held=one.level.kind not in ("off", "unload"),
            error=curves.energy_error(state.curve, one.level.cap_w),
        )
        for one in ahead.segments
    )


def _slots(outlook: Outlook, now_s: float, end_s: float) -> account.Slots:
    """The slots from now to the end only: this is recomputed every second, and others would cost time."""
    values = outlook.mean, outlook.lo, outlook.hi
    first = min(max(0, math.floor((now_s - outlook.start_s) / outlook.step_s)), len(outlook.mean) - 1)
    after = max(first, math.floor((end_s - outlook.start_s) / outlook.step_s) + 1) + 1
    # a gap holds the last known value
    while first > 0 and any(series[first] is None for series in values):
        first -= 1
    mean, lo, hi = (series[first:after] for series in values)
    if all(value is None for value in mean):
        first, (mean, lo, hi) = 0, values
    return account.Slots(outlook.start_s + first * outlook.step_s, outlook.step_s, mean, lo, hi)


def _cost(state: JobState, seen: Inputs, rest: tuple[Stretch, ...], outlook: Outlook) -> protocol.Cost | None:
    """Expected cost: what has been spent, the rest at forecast prices, and rent while boards are held."""
    spent, prices = state.totals.cost, outlook.price
    if spent is None:
        return None
    if all(price is None for price in prices):
        prices = (state.spec.price_per_kwh,)
    rent = (state.spec.gpu_price or 0.0) * len(seen.devices)
    more = account.to_come(rest, outlook.start_s, outlook.step_s, prices, rent_per_h=rent)
    return None if more is None else protocol.Cost(round(spent.value + more, 9), spent.currency)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
