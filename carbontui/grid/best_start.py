"""The gain of starting a job later, from one pass over an outlook."""

from __future__ import annotations

import math
from typing import NamedTuple

from carbontui.grid.types import Outlook


class BestStart(NamedTuple):
    """The cleanest start of an uninterrupted job of `hours`, and its saving as a share of starting now."""

    hours: float
    start_s: float
    gain: float


def best_start(outlook: Outlook, now_s: float, hours: float) -> BestStart | None:
    """The cleanest start from now on, on slot edges; None where the outlook is shorter than the job, or has gaps.

    Constant watts are assumed, so the share is that of the mean intensity over the job's hours.
    """
    step_s, slots = outlook.step_s, max(1, math.ceil(hours * 3600 / outlook.step_s))
    first = int((now_s - outlook.start_s) // step_s)
    values = outlook.mean[max(0, first) :]
    if first < 0 or len(values) < slots or any(value is None for value in values):
        return None
    known = [value for value in values if value is not None]
    total = sum(known[:slots])
    now_g = best_g = total
    best = 0
    for begin in range(1, len(known) - slots + 1):
        total += known[begin + slots - 1] - known[begin - 1]
        if total < best_g - 1e-9:
            best_g, best = total, begin
    if now_g <= 0:
        return None
    start_s = now_s if best == 0 else outlook.start_s + (first + best) * step_s
    return BestStart(hours, start_s, (now_g - best_g) / now_g)
