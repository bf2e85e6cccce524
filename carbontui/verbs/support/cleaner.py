"""When another machine's grid is cleaner for the work that is left: `move --when-cleaner`."""

from __future__ import annotations

import time
from typing import NamedTuple

from carbontui import protocol, units
from carbontui.account.expected_end import Stretch, to_come

STEP_S = 900.0
"""Moments are compared every quarter of an hour: no forecast is finer."""
AWAY_S = 60.0
"""What a move costs is counted as this much work, made again in the other grid."""
AHEAD_S = 24 * 3600.0
GAIN_LEAST = 0.01
"""It moves only to save at least this share of the CO2 that is left."""
UNKNOWN_WORK_S = 6 * 3600.0


class Outlook(NamedTuple):
    """Mean intensities (g/kWh) of slots of `step_s` from `start_s`; gaps count as the last known value."""

    start_s: float
    step_s: float
    mean_g: tuple[float | None, ...]

    def grams(self, begin_s: float, end_s: float) -> float | None:
        """Of a kilowatt in this time; None if nothing is known."""
        if end_s <= begin_s:
            return 0.0
        return to_come([Stretch(begin_s, end_s, 1000.0)], self.start_s, self.step_s, self.mean_g)


def moment(here: Outlook, there: Outlook, now_s: float, left_s: float, by_s: float) -> float | None:
    """When to move so that the `left_s` of work emit least, at this machine's speed and watts; None: it stays."""
    end_s = now_s + left_s
    stays_g = here.grams(now_s, end_s)
    choices: list[tuple[float, float]] = []
    at_s = now_s
    while at_s < min(end_s, by_s, now_s + AHEAD_S):
        before, after = here.grams(now_s, at_s), there.grams(at_s, end_s + AWAY_S)
        if before is not None and after is not None:
            choices.append((round(before + after, 9), at_s))
        at_s += STEP_S
    if stays_g is None or not choices:
        return None
    least_g, best_s = min(choices)
    return best_s if least_g < (1.0 - GAIN_LEAST) * stays_g else None


def left_of(status: protocol.Status) -> float:
    """Seconds of work left at the speed of now; where that is not known, a few hours."""
    if status.finish_expected is None:
        return UNKNOWN_WORK_S
    return max(0.0, units.from_iso(status.finish_expected) - time.time())


def of_band(band: protocol.Band | None) -> Outlook:
    """What a job plans with."""
    return Outlook(0.0, STEP_S, ()) if band is None else Outlook(units.from_iso(band.start), band.step_s, band.mean_g)
