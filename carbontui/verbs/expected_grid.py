"""Expected intensity for plans made on a login node: from a zone's outlook or a recorded file."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from carbontui.verbs.failure import Failure
from carbontui.verbs.place import sure_zone


def intensity(
    zone: str | None, grid_file: str | None, start_s: float, ahead_s: float, step_s: float
) -> tuple[Sequence[float | None], float, str]:
    """Mean g/kWh per slot of `step_s`, the start of the first slot, and the source. Raises Failure."""
    if grid_file:
        return _recorded(grid_file, start_s, start_s + ahead_s, step_s)
    return _expected(zone, start_s, ahead_s, step_s)


def filled(
    zone: str | None, grid_file: str | None, start_s: float, slot_s: float, slots: int
) -> tuple[list[float], str]:
    """g/kWh per slot; slots beyond the known hours repeat the last known value. Raises Failure."""
    mean, begins_s, source = intensity(zone, grid_file, start_s, slots * slot_s, slot_s)
    known = [value for value in mean if value is not None]
    if not known:
        raise Failure(f"no grid data from now on ({source})", 3)
    filled, held = [], known[0]
    for value in mean:
        held = held if value is None else value
        filled.append(held)
    places = [int((start_s + (slot + 0.5) * slot_s - begins_s) // slot_s) for slot in range(slots)]
    return [filled[min(max(place, 0), len(filled) - 1)] for place in places], source


def _recorded(path: str, start_s: float, end_s: float, step_s: float) -> tuple[Sequence[float | None], float, str]:
    """The rows of a file as slots from `start_s` on."""
    from carbontui.backtest.assumed_job import Grid
    from carbontui.grid import recorded

    try:
        grid = Grid(recorded.load(Path(path)))
        start_s += math.ceil(max(0.0, grid.start_s - start_s) / step_s) * step_s
        edges = [start_s + i * step_s for i in range(int((min(end_s, grid.end_s) - start_s) // step_s) + 1)]
        return grid.slots(edges), start_s, path
    except (ValueError, IndexError) as error:
        raise Failure(f"--grid: {path}: has no values from now on ({error})", 2) from None


def _expected(
    zone: str | None, start_s: float, ahead_s: float, step_s: float
) -> tuple[Sequence[float | None], float, str]:
    """The zone's forecast."""
    from carbontui.grid import opening, settings

    place = sure_zone(zone or os.environ.get("CARBONTUI_ZONE"))
    try:
        feed = opening.open_feed(place.key, settings=opening.settings(), now=time.time)
    except (settings.KeyFileError, ValueError) as error:
        raise Failure(str(error), 2) from None
    asyncio.run(feed.refresh())
    seen = feed.outlook(start_s, 0.0, ahead_s, step_s)
    if seen is None:
        raise Failure(f"no grid data for {place.key}; submit it with sbatch", 3)
    return seen.mean, seen.start_s, f"{seen.source} ({seen.how})"
