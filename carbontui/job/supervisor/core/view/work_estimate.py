"""What the whole work takes at full speed, with an interval that narrows as steps are made."""

import math
from typing import TypeAlias

from carbontui import protocol, units
from carbontui.account.expected_end import BAND_SIGMAS, Slots, WorkSegment, at_full_speed, remaining_total
from carbontui.client.prediction import Prediction
from carbontui.job.supervisor.core.planning import expected_end, machine
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.protocol import Statement, statement


def estimate(state: JobState, inputs: Inputs) -> protocol.Estimate | None:
    """None while the number of steps is unknown, too few have been timed, or once the job is over."""
    work = state.progress
    steps = None if work.steps_total is None else work.steps_total - work.before
    found = (
        None if steps is None or not (state.live or state.spec.estimate) else work.blocks.whole(steps, work.core_wait)
    )
    if found is None:
        return None
    full_w = machine.full_wall_w(state, inputs)
    grams, cost = _grams(state, found, full_w), _money(state, inputs, found, full_w)

    def kwh(seconds: float) -> float | None:
        return None if full_w is None else round(units.joules_to_kwh(seconds * full_w), 9)

    return protocol.Estimate(
        work_s=round(found.value, 3),
        work_lo_s=round(found.lo, 3),
        work_hi_s=round(found.hi, 3),
        energy_wall_kwh=kwh(found.value),
        energy_lo_kwh=kwh(found.lo),
        energy_hi_kwh=kwh(found.hi),
        gco2_g=grams[0],
        gco2_lo_g=grams[1],
        gco2_hi_g=grams[2],
        cost=cost[0],
        cost_lo=cost[1],
        cost_hi=cost[2],
        currency=None if cost == UNKNOWN else state.spec.currency,
        drifting=found.drifting,
        drift=round(found.drift, 4),
        steps_seen=len(work.blocks.times) * work.blocks.size,
        core_wait=round(work.core_wait, 4),
    )


def per_1000_steps(state: JobState, inputs: Inputs) -> protocol.UnitEstimate | None:
    """What the next thousand steps take at full speed: known without a total."""
    work = state.progress
    found = work.blocks.next(1000, work.core_wait) if state.live or state.spec.estimate else None
    if found is None or found.value <= 0:
        return None
    full_w, outlook = machine.full_wall_w(state, inputs), state.outlook
    kwh = None if full_w is None else units.joules_to_kwh(found.value * full_w)
    intensity = None if outlook is None else outlook.value_at(inputs.now_s)
    grams = None if kwh is None or intensity is None else round(kwh * intensity, 6)
    times = {"s": round(found.value, 3), "s_lo": round(found.lo, 3), "s_hi": round(found.hi, 3)}
    return protocol.UnitEstimate(**times, steps=1000.0, kwh=None if kwh is None else round(kwh, 9), gco2_g=grams)


Ends: TypeAlias = tuple[float | None, float | None, float | None]
"""Expected value, low and high end."""
UNKNOWN: Ends = (None, None, None)
TO_95 = 1.96 / BAND_SIGMAS
"""Factor from the half-width of an 80 % band to that of a 95 % band."""


def _grams(state: JobState, prediction: Prediction, full_w: float | None) -> Ends:
    """CO2 at full speed from the job's start; the errors of time and forecast are independent and add in quadrature."""
    outlook = state.outlook
    if full_w is None or outlook is None:
        return UNKNOWN
    slots = Slots(outlook.start_s, outlook.step_s, outlook.mean, outlook.lo, outlook.hi)
    whole = at_full_speed(WorkSegment(state.start_s, state.start_s + prediction.value, full_w), slots)
    if whole is None or whole.value <= 0:
        return UNKNOWN
    shares = [
        (prediction.hi - prediction.value) / prediction.value,
        (prediction.value - prediction.lo) / prediction.value,
    ]
    band = 0.0 if whole.hi is None else TO_95 * (whole.hi - whole.value) / whole.value
    up, down = (math.hypot(share, band) for share in shares)
    lo = max(0.0, whole.value * (1 - down))
    return round(whole.value, 6), round(lo, 6), round(whole.value * (1 + up), 6)


def _money(state: JobState, inputs: Inputs, prediction: Prediction, full_w: float | None) -> Ends:
    """Cost at full speed from the job's start at the known prices, rent included; its interval is that of the time."""
    spec, prices = state.spec, expected_end.prices(state)
    if spec.currency is None or full_w is None or prices is None:
        return UNKNOWN
    rent = (spec.gpu_price or 0.0) * len(inputs.devices)

    def cost(seconds: float) -> float | None:
        part = WorkSegment(state.start_s, state.start_s + seconds, full_w)
        value = remaining_total([part], *prices, rent_per_h=rent)
        return None if value is None else round(value, 6)

    ends = [one for at in (prediction.value, prediction.lo, prediction.hi) if (one := cost(at)) is not None]
    return (ends[0], min(ends), max(ends)) if len(ends) == 3 else UNKNOWN  # below zero more time costs less


def source(state: JobState) -> Statement:
    """Source of the estimate. Timings cannot tell what else will run on the machine."""
    work = state.progress.blocks
    return statement("source_estimate", timings=len(work.times), steps=work.size)
