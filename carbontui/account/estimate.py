"""How long a whole training takes, predicted from the steps made so far in blocks.

The statistics are client/prediction.py's, which serves training scripts as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from carbontui import protocol
from carbontui.client.prediction import Prediction, mean_error, remaining, warmup

BLOCKS_MOST = 200
"""Most blocks kept; beyond that, pairs are merged."""
NonNegative = Annotated[float, Meta(ge=0)]


def error_of_mean(values: Sequence[float]) -> float | None:
    """Relative standard error of the mean of consecutive timings or readings, warm-up left out."""
    return mean_error(values[warmup(values) :])


@dataclass(frozen=True, slots=True)
class Blocks:
    """Times of equal blocks of steps, for a training of any length: when there are too many, pairs are merged."""

    size: Annotated[int, Meta(ge=1)] = 1
    """Steps of a block."""
    times: tuple[NonNegative, ...] = ()
    open_steps: NonNegative = 0.0
    open_s: NonNegative = 0.0

    def plus(self, steps: int, seconds: float) -> Blocks:
        """With `steps` that took `seconds` in all. A block is never shorter than what was timed as one: parts of one
        timing are alike, and would look like steps that never vary."""
        if steps <= 0:
            return self
        found = self
        while steps > found.size:
            found = found._coarser()
        done, held_steps, held_s = list(found.times), found.open_steps, found.open_s
        short = found.size - held_steps
        if steps < short:
            return replace(found, open_steps=held_steps + steps, open_s=held_s + seconds)
        spent = seconds * short / steps
        done.append(held_s + spent)
        found = replace(found, times=tuple(done), open_steps=steps - short, open_s=seconds - spent)
        return found._coarser() if len(done) > BLOCKS_MOST else found

    def _coarser(self) -> Blocks:
        """Blocks of twice the steps; the newest one waits for its other half."""
        times, held_steps, held_s = self.times, self.open_steps, self.open_s
        if len(times) % 2:
            times, held_steps, held_s = times[:-1], held_steps + self.size, held_s + times[-1]
        pairs = tuple(a + b for a, b in zip(times[::2], times[1::2], strict=True))
        return Blocks(2 * self.size, pairs, held_steps, held_s)

    def next(self, steps: int, core_wait: float = 0.0) -> Prediction | None:
        """The time of `steps` steps from now on; `core_wait` as in `whole`."""
        found = remaining(self.times, steps / self.size)
        if found is None:
            return None
        others = core_wait * found.value
        down, up = math.hypot(found.value - found.lo, others), math.hypot(found.hi - found.value, others)
        return replace(found, lo=max(0.0, found.value - down), hi=found.value + up)

    def whole(self, steps: int, core_wait: float = 0.0) -> Prediction | None:
        """The time of `steps` steps, as an interval; the steps already made count as measured.

        `core_wait` is the share of the time for which the training was ready and waited for a core. What the other
        programs will do, no timing tells. Were they gone, the rest would take 1 - core_wait of what is expected; were
        they twice as many, 1 + core_wait of it: the interval holds both."""
        seen = len(self.times) * self.size
        found = self.next(max(0, steps - seen), core_wait)
        if found is None:
            return None
        # the warm-up is not repeated, so it counts as measured
        spent = math.fsum(self.times)
        return replace(found, value=spent + found.value, lo=spent + found.lo, hi=spent + found.hi)


def of_steps(pace: protocol.UnitEstimate, steps: float) -> protocol.UnitEstimate:
    """What another number of steps takes at that pace."""
    times = steps / pace.steps
    kwh, grams = (None if value is None else value * times for value in (pace.kwh, pace.gco2_g))
    lo, hi = pace.s_lo * times, pace.s_hi * times
    return protocol.UnitEstimate(s=pace.s * times, s_lo=lo, s_hi=hi, steps=steps, kwh=kwh, gco2_g=grams)


NARROW = 0.02
"""An interval of this half-width (as a share) is good enough."""


def is_narrow(estimate: protocol.Estimate) -> bool:
    """Whether more seconds would hardly improve it; the watts must be known as well."""
    if estimate.energy_wall_kwh is None or estimate.drifting:
        return False
    return estimate.work_hi_s - estimate.work_lo_s <= 2 * NARROW * estimate.work_s
