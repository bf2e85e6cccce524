"""Expected totals of a job at its end, and those of run-now.

A shifted job has waited through hours in which run-now would have worked, so its avoided CO2 so far says little until
its end. The total is what has been emitted, plus the planned watts of the rest at the forecast.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from carbontui.protocol import Account, Amounts
from carbontui.units import joules_to_kwh

BAND_SIGMAS = 1.2815515655446004
"""Half the width of an 80 % interval of a normal distribution, in standard deviations: the band holds the truth in this
share of cases, as the forecast's own band does."""
ERROR_MEMORY_S = 6 * 3600.0
"""How fast the errors of two slots of one forecast decorrelate (e-folding): the time in which the departures of
intensity from a typical day fade. Assuming independent errors would give a band far too narrow."""


class WorkSegment(NamedTuple):
    """A time at constant watts at the wall (PUE and host included). Epoch seconds of the job's clock."""

    start_s: float
    end_s: float
    watts: float
    gpus_kept: bool = True
    """The job holds the boards meanwhile, so their rent is due."""
    error: float = 0.0
    """Relative standard error of its energy, where speeds are not measured on this job."""


@dataclass(frozen=True, slots=True)
class Slots:
    """A forecast in equal slots: gCO2/kWh each, and an 80 % band. None: unknown."""

    start_s: float
    step_s: float
    mean: Sequence[float | None]
    lo: Sequence[float | None]
    hi: Sequence[float | None]


class Interval(NamedTuple):
    """A number and its 80 % band; the band is None where the forecast gives none."""

    value: float
    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """Grams at the end. `run_now_g` and `avoided_g` are None where run-now is not known."""

    gco2_g: Interval
    run_now_g: float | None
    avoided_g: Interval | None
    rest_kwh: float


def expect(
    emitted_g: float,
    rest: Sequence[WorkSegment],
    slots: Slots,
    *,
    run_now_past_g: float | None = None,
    run_now_rest: WorkSegment | None = None,
) -> ExpectedEnd | None:
    """`emitted_g` so far and the `rest` at the forecast; run-now likewise, from what it would have emitted by now.

    None where no slot of the forecast has a value. Grams of both share the forecast's errors, so the band of the
    difference is that of the difference in kWh per slot.
    """
    means = without_gaps(slots.mean)
    if not means:
        return None
    size = (slots.start_s, slots.step_s, len(means))
    ours = _kwh(rest, *size)
    spread, fade = _spread(slots), math.exp(-slots.step_s / ERROR_MEMORY_S)
    total = emitted_g + _sum(ours, means)
    # the speeds of one curve are wrong together, whatever the grid does
    unsure = BAND_SIGMAS * math.fsum(part.error * _sum(_kwh([part], *size), means) for part in rest if part.error)
    ending_g = _with_band(total, ours, spread, fade, unsure)
    rest_kwh = math.fsum(ours)
    if run_now_past_g is None:
        return ExpectedEnd(ending_g, None, None, rest_kwh)
    theirs = _kwh([] if run_now_rest is None else [run_now_rest], *size)
    run_now = run_now_past_g + _sum(theirs, means)
    less = [a - b for a, b in zip(theirs, ours, strict=True)]
    return ExpectedEnd(ending_g, run_now, _with_band(run_now - total, less, spread, fade, unsure), rest_kwh)


def stated(so_far: Amounts, whole: Amounts) -> Account:
    """The account of a live job: ahead is the whole less what was used, so that the printed figures add up."""

    def rest(total: float | None, used: float | None, digits: int) -> float | None:
        return None if total is None or used is None else round(total - used, digits)

    return Account(
        so_far=so_far,
        ahead=Amounts(
            elapsed_s=round(whole.elapsed_s - so_far.elapsed_s, 3),
            steps=None if whole.steps is None or so_far.steps is None else whole.steps - so_far.steps,
            energy_gpu_kwh=round(whole.energy_gpu_kwh - so_far.energy_gpu_kwh, 9),
            energy_wall_kwh=round(whole.energy_wall_kwh - so_far.energy_wall_kwh, 9),
            gco2_g=rest(whole.gco2_g, so_far.gco2_g, 6),
            # before any lever has acted, the job has been its own run-now
            run_now_g=rest(whole.run_now_g, so_far.run_now_g, 6),
            avoided_g=rest(whole.avoided_g, so_far.avoided_g, 6),
        ),
        whole=whole,
    )


def at_full_speed(part: WorkSegment, slots: Slots) -> Interval | None:
    """Grams of one stretch at the forecast, with its 80 % band; None where no slot has a value."""
    found = expect(0.0, [part], slots)
    return None if found is None else found.gco2_g


def remaining_total(
    rest: Sequence[WorkSegment],
    start_s: float,
    step_s: float,
    per_kwh: Sequence[float | None],
    *,
    rent_per_h: float = 0.0,
) -> float | None:
    """The total of the `rest` at a value per kWh of each slot (a price, gCO2/kWh, 1 for kWh), plus rent while boards
    are held; None where no slot has a value."""
    known = without_gaps(per_kwh)
    if not known:
        return None
    held_s = math.fsum(part.end_s - part.start_s for part in rest if part.gpus_kept)
    return _sum(_kwh(rest, start_s, step_s, len(known)), known) + rent_per_h * held_s / 3600.0


def used_up_at(
    left: float,
    rest: Sequence[WorkSegment],
    start_s: float,
    step_s: float,
    per_kwh: Sequence[float | None],
    *,
    rent_per_h: float = 0.0,
) -> float | None:
    """When the `rest` has used up `left` of the total of `remaining_total`, epoch seconds; None if it lasts."""
    known = without_gaps(per_kwh)
    if not known:
        return None
    for part in rest:
        at = part.start_s
        if left <= 0:
            return at
        while at < part.end_s - 1e-6:
            index, until = _slot(at, part.end_s, start_s, step_s, len(known))
            per_s = joules_to_kwh(part.watts) * known[index] + (rent_per_h / 3600.0 if part.gpus_kept else 0.0)
            if per_s > 0 and per_s * (until - at) >= left:
                return at + left / per_s
            left -= per_s * (until - at)
            at = until
    return None


def without_gaps(values: Sequence[float | None]) -> list[float]:
    """Gaps hold the last known value (a gap must not look clean), those at the start the first one; empty where nothing
    is known."""
    known = next((value for value in values if value is not None), None)
    if known is None:
        return []
    filled = []
    for value in values:
        known = known if value is None else value
        filled.append(known)
    return filled


def _kwh(stretches: Iterable[WorkSegment], start_s: float, step_s: float, slots: int) -> list[float]:
    """kWh per slot; energy before the first or after the last slot counts in that slot."""
    kwh = [0.0] * slots
    for part in stretches:
        at, whole = part.start_s, joules_to_kwh(part.watts * step_s)
        while at < part.end_s - 1e-6:
            index, until = _slot(at, part.end_s, start_s, step_s, slots)
            kwh[index] += joules_to_kwh(part.watts * (until - at))
            end = min(slots - 1, int((part.end_s - start_s) // step_s))
            for inside in range(index + 1, end):
                kwh[inside] += whole
            at = max(until, start_s + end * step_s)
    return kwh


def _slot(at_s: float, end_s: float, start_s: float, step_s: float, slots: int) -> tuple[int, float]:
    """The slot that counts at a moment, and until when, at most to `end_s`; the first and last extend without end."""
    index = min(slots - 1, max(0, math.floor((at_s - start_s) / step_s + 1e-9)))
    return index, end_s if index == slots - 1 else min(end_s, max(start_s + (index + 1) * step_s, at_s + 1e-3))


def _sum(kwh: Sequence[float], means: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(kwh, means, strict=True))


def _spread(slots: Slots) -> list[float] | None:
    """Standard deviation per slot, from the band; None where no slot has one."""
    widths = [None if lo is None or hi is None else hi - lo for lo, hi in zip(slots.lo, slots.hi, strict=True)]
    filled = without_gaps(widths)
    return [width / (2 * BAND_SIGMAS) for width in filled] if any(filled) else None


def _with_band(
    value: float, kwh: Sequence[float], spread: Sequence[float] | None, fade: float, unsure_g: float
) -> Interval:
    """The band of a sum over slots; `fade` is the correlation of the errors of neighbours, `unsure_g` what the error of
    the watts and speeds adds to either side."""
    if spread is None and not unsure_g:
        return Interval(value, None, None)
    grid = math.sqrt(_variance([a * b for a, b in zip(kwh, spread, strict=True)], fade)) if spread else 0.0
    half = math.hypot(BAND_SIGMAS * grid, unsure_g)
    return Interval(value, value - half, value + half)


def _variance(parts: Sequence[float], fade: float) -> float:
    """Sum over all pairs of part x part x fade ** distance, in one pass."""
    total = before = 0.0
    for part in parts:
        total += part * part + 2.0 * part * before
        before = fade * (before + part)
    return max(0.0, total)
