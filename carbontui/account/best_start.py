"""The cleanest start for work that runs in one piece, as for a job that does not exist yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from carbontui.account.expected_end import Stretch, to_come
from carbontui.units import J_PER_KWH

STEP_S = 900.0
"""Starts are considered every quarter of an hour: no forecast is finer."""
GAIN_LEAST = 0.01
"""A start is delayed only to save at least this share of the CO2 of a start now."""


class StartWindow(NamedTuple):
    """The chosen start. Intensities are means in g/kWh over the whole work."""

    begin_s: float
    mean_g: float
    now_g: float
    latest_s: float

    @property
    def saved(self) -> float:
        """Share of CO2 saved against a start now; 0 for a start now."""
        return 1.0 - self.mean_g / self.now_g if self.now_g > 0 else 0.0


def best_start(
    mean_g: Sequence[float | None], start_s: float, step_s: float, *, now_s: float, work_s: float, deadline_s: float
) -> StartWindow | None:
    """The start from `now_s` on with the lowest mean intensity, so that `work_s` seconds end by `deadline_s`; the
    earliest among equals. `mean_g` are slots of `step_s` from `start_s`; gaps and the time beyond the end count as the
    last known value. None if nothing is known."""
    if not any(value is not None for value in mean_g):
        return None

    def mean(at_s: float) -> float:
        one_kwh = Stretch(at_s, at_s + work_s, J_PER_KWH / work_s)
        return to_come([one_kwh], start_s, step_s, mean_g) or 0.0

    latest = max(now_s, deadline_s - work_s)
    starts = [now_s]
    while starts[-1] + STEP_S <= latest:
        starts.append(starts[-1] + STEP_S)
    if starts[-1] < latest:
        starts.append(latest)
    now_g = mean(now_s)
    chosen_g, begin_s = min((round(mean(at), 6), at) for at in starts)
    if chosen_g > (1.0 - GAIN_LEAST) * now_g:
        chosen_g, begin_s = now_g, now_s
    return StartWindow(begin_s, chosen_g, now_g, latest)


def gains(
    slots: tuple[Sequence[float | None], float, float], hours: Sequence[float], now_s: float
) -> list[tuple[float, StartWindow]]:
    """For work of as many `hours`: its best start within the slots (mean intensities, start, seconds of each); those
    that they do not wholly cover are left out."""
    mean, start_s, step_s = slots
    end_s = start_s + len(mean) * step_s
    found = []
    for length in hours:
        work_s = length * 3600.0
        if None not in mean and now_s + work_s <= end_s:
            best = best_start(*slots, now_s=now_s, work_s=work_s, deadline_s=end_s)
            found += [(length, best)] if best is not None else []
    return found
