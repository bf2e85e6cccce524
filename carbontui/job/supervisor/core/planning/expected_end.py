"""Expected totals of the job at its end: the remaining levels at their watts, on the outlook."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from carbontui import protocol, units
from carbontui.account import expected_end as account
from carbontui.account.accounts import band
from carbontui.account.expected_end import WorkSegment
from carbontui.grid.types import GridForecast
from carbontui.job.supervisor.core.planning import finish, machine
from carbontui.job.supervisor.core.planning.course import CourseAhead, Segment, course, if_planned
from carbontui.job.supervisor.core.state import boards
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState, Totals
from carbontui.power.curves import curve as curves


def at_end(state: JobState, inputs: Inputs) -> protocol.AtEnd | None:
    """None where no honest figure exists: work or grid unknown, a pause without end."""
    return statement(state, inputs, course(state, inputs))[1]


def _at_end(
    state: JobState, inputs: Inputs, ahead: CourseAhead, rest: tuple[WorkSegment, ...]
) -> protocol.AtEnd | None:
    totals, outlook, left_s = state.totals, state.outlook, state.progress.left_s
    if not state.live or totals.gco2_g is None or outlook is None or left_s is None or ahead.finish_s is None:
        return None
    done_s = inputs.now_s if totals.run_now_until_s is None else totals.run_now_until_s
    run_now_end_s = max(inputs.now_s, done_s + left_s)
    found = account.expect(
        totals.gco2_g,
        rest,
        _slots(outlook, inputs.now_s, max(run_now_end_s, rest[-1].end_s if rest else inputs.now_s)),
        run_now_past_g=totals.run_now_past_g,
        run_now_rest=WorkSegment(inputs.now_s, run_now_end_s, machine.likely_wall_w(state, inputs)),
    )
    if found is None:
        return None
    grams, avoided = found.gco2_g, found.avoided_g
    return protocol.AtEnd(
        finish=units.iso(ahead.finish_s),
        energy_wall_kwh=round(totals.wall_kwh + found.rest_kwh, 9),
        gco2_g=round(grams.value, 6),
        gco2_lo_g=None if grams.lo is None else round(max(min(0.0, grams.value), grams.lo), 6),
        gco2_hi_g=rounded_g(grams.hi),
        run_now_g=rounded_g(found.run_now_g),
        avoided_g=None if avoided is None else round(avoided.value, 6),
        avoided_lo_g=None if avoided is None else rounded_g(avoided.lo),
        avoided_hi_g=None if avoided is None else rounded_g(avoided.hi),
        cost=_cost(state, inputs, rest),
    )


def so_far(state: JobState) -> protocol.Amounts:
    """What the work has used, as it is printed."""
    totals = state.totals
    grams, avoided = rounded_g(totals.gco2_g), rounded_g(totals.avoided_g)
    known = grams is not None and avoided is not None and totals.run_now_g is not None
    lo_kwh, hi_kwh = _band(totals.wall_kwh, totals.shares, state, idle=_idle(totals))
    return protocol.Amounts(
        energy_wall_lo_kwh=lo_kwh,
        energy_wall_hi_kwh=hi_kwh,
        elapsed_s=round(totals.elapsed_s, 3),
        steps=state.progress.steps_done - totals.steps_apart,
        energy_gpu_kwh=round(totals.gpu_kwh, 9),
        energy_wall_kwh=round(totals.wall_kwh, 9),
        gco2_g=grams,
        # as printed, the difference of the two is what is avoided
        run_now_g=rounded_g((grams or 0.0) + (avoided or 0.0)) if known else None,
        avoided_g=avoided,
    )


def _idle(totals: Totals) -> float:
    return totals.idle_doubt_kwh / totals.wall_kwh if totals.wall_kwh > 0 else 0.0


def _band(kwh: float, shares: Mapping[str, float], state: JobState, *, idle: float = 0.0) -> tuple[float, float]:
    counters = [one.ratio for one in state.totals.counters.values() if one.ratio and one.verdict == "doubted"]
    return band(kwh, shares, max((abs(ratio - 1.0) for ratio in counters), default=0.0), idle)


def whole_machine(state: JobState, inputs: Inputs) -> protocol.WholeMachine:
    """What the machine has drawn for the job in all: of one that is on anyway, with what idles and the host."""
    totals, host = state.totals, machine.host(state, inputs, whole=True)
    kwh, grams, shares = totals.wall_kwh, totals.gco2_g, totals.shares
    if state.spec.boundary == "always-on" and totals.metered_kwh > 0:
        beside_kwh = units.joules_to_kwh(host.watts * totals.here_s * state.spec.pue)
        kwh = totals.metered_kwh + beside_kwh
        shares = {how: share * totals.metered_kwh / kwh for how, share in shares.items()} | {host.how: beside_kwh / kwh}
        grams = grams * kwh / totals.wall_kwh if grams is not None and totals.wall_kwh > 0 else None
    lo_kwh, hi_kwh = _band(kwh, shares, state)
    return protocol.WholeMachine(energy_kwh=round(kwh, 9), lo_kwh=lo_kwh, hi_kwh=hi_kwh, gco2_g=rounded_g(grams))


def statement(state: JobState, inputs: Inputs, ahead: CourseAhead) -> tuple[protocol.Account, protocol.AtEnd | None]:
    """The account at this moment, and the expected totals at its end."""
    # the boards are not read yet: without them the rest would draw what the host draws
    unreadable = boards.unread(inputs) or (not inputs.devices and boards.unseen(state.boards, inputs))
    # nor what the first plan will say: until then the work would seem to run through
    early = state.plan is None and finish.plan_due(state, inputs)
    rest = None if unreadable or early else at_the_wall(state, inputs, ahead)
    end = None if rest is None else _at_end(state, inputs, ahead, rest)
    used = so_far(state)
    if rest is None or end is None:
        return protocol.Account(so_far=used), end
    total, step = state.progress.steps_total, state.progress.step
    known = machine.machine(state, inputs)
    counted = [one for one in ahead.segments if known.counted(one.level) != "nothing"]
    lo_kwh, hi_kwh = _band(end.energy_wall_kwh, state.totals.shares, state, idle=_idle(state.totals))
    gpu_j = math.fsum(one.level.power_w * (one.end_s - one.start_s) for one in counted)
    whole = protocol.Amounts(
        elapsed_s=round(used.elapsed_s + max(0.0, (ahead.finish_s or inputs.now_s) - inputs.now_s), 3),
        steps=None if total is None or used.steps is None else used.steps + max(0, total - step),
        energy_gpu_kwh=round(used.energy_gpu_kwh + (units.joules_to_kwh(gpu_j) if inputs.devices else 0.0), 9),
        energy_wall_kwh=end.energy_wall_kwh,
        gco2_g=end.gco2_g,
        run_now_g=end.run_now_g,
        avoided_g=end.avoided_g,
        energy_wall_lo_kwh=lo_kwh,
        energy_wall_hi_kwh=hi_kwh,
    )
    return account.stated(used, whole), end


class SegmentUse(NamedTuple):
    """What a segment of the course takes, in the boundary of the account; grams are None where no grid is known."""

    segment: Segment
    kwh: float
    gco2_g: float | None


def parts(state: JobState, inputs: Inputs, ahead: CourseAhead) -> tuple[SegmentUse, ...]:
    """Segment by segment what is ahead of the account: with a known end their sum is the account's."""
    known, found = machine.machine(state, inputs), []
    for one in ahead.segments:
        stretch = WorkSegment(one.start_s, one.end_s, known.charged_w(one.level) * known.pue)
        kwh = units.joules_to_kwh(stretch.watts * (one.end_s - one.start_s))
        found.append(SegmentUse(one, kwh, grams(state, inputs, [stretch])))
    return tuple(found)


def grams(state: JobState, inputs: Inputs, rest: Sequence[WorkSegment]) -> float | None:
    """What the rest emits on the forecast; None where no grid is known."""
    if state.outlook is None or not rest:
        return None
    slots = _slots(state.outlook, inputs.now_s, rest[-1].end_s)
    return account.remaining_total(rest, slots.start_s, slots.step_s, slots.mean)


def source(state: JobState, inputs: Inputs) -> protocol.Statement:
    """Source of the expected totals: the forecast, and watts of which some may be assumed."""
    known = machine.machine(state, inputs)
    return protocol.statement(
        "source_at_end",
        planned=state.plan is not None,
        grid=state.outlook.source if state.outlook else None,
        parked_assumed=state.plan is not None and not known.parked_measured,
        full_assumed=not known.full_measured,
        capped=state.curve is not None and bool(known.caps),
    )


ENDLESS_S = 30 * 86400.0
"""How far ahead to look when the end is not known."""


def endless(state: JobState, inputs: Inputs) -> tuple[WorkSegment, ...] | None:
    """At full speed from now on, for work without a known end; None until the full-speed watts are measured."""
    watts = machine.full_wall_w(state, inputs)
    return None if watts is None else (WorkSegment(inputs.now_s, inputs.now_s + ENDLESS_S, watts),)


def stretches(state: JobState, inputs: Inputs, cap_w: float | None = None) -> tuple[WorkSegment, ...] | None:
    """The remaining work at the wall as override and plan have it, from now to its end, nothing faster than under
    `cap_w` (watts per GPU); None while the work is unknown or has no end."""
    return at_the_wall(state, inputs, if_planned(state, inputs, cap_w))


def at_the_wall(state: JobState, inputs: Inputs, ahead: CourseAhead) -> tuple[WorkSegment, ...] | None:
    """A course in watts at the wall; None while it has no end."""
    if ahead.finish_s is None:
        return None
    known = machine.machine(state, inputs)
    return tuple(
        WorkSegment(
            one.start_s,
            one.end_s,
            known.charged_w(one.level) * known.pue,
            gpus_kept=known.counted(one.level) != "nothing",
            error=curves.energy_error(state.curve, one.level.cap_w),
        )
        for one in ahead.segments
    )


def _slots(outlook: GridForecast, now_s: float, end_s: float) -> account.Slots:
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


def _cost(state: JobState, inputs: Inputs, rest: tuple[WorkSegment, ...]) -> protocol.Cost | None:
    """Expected cost: what has been spent, the rest at forecast prices, and rent while boards are held."""
    spent, priced = state.totals.cost, prices(state)
    if spent is None or priced is None:
        return None
    rent = (state.spec.gpu_price or 0.0) * len(inputs.devices)
    more = account.remaining_total(rest, *priced, rent_per_h=rent)
    return None if more is None else protocol.Cost(round(spent.value + more, 9), spent.currency)


def prices(state: JobState) -> tuple[float, float, Sequence[float | None]] | None:
    """(start, slot seconds, price per kWh and slot): the outlook's, else the user's own, 0 where rent alone is known;
    None if nothing is."""
    outlook, flat = state.outlook, state.spec.price_per_kwh
    if outlook is not None and any(price is not None for price in outlook.price):
        return outlook.start_s, outlook.step_s, outlook.price
    if flat is None and not state.spec.gpu_price:
        return None
    return 0.0, 900.0, (flat or 0.0,)


def rounded_g(value: float | None) -> float | None:
    """Grams as they are printed and kept."""
    return None if value is None else round(value, 6)
