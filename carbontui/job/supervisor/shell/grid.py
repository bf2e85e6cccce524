"""How a job's options become a feed of the grid."""

from __future__ import annotations

from collections.abc import Callable

from carbontui.grid import opening
from carbontui.grid.feed import Feed
from carbontui.job.clock import Clock
from carbontui.job.spec import Options


def open_feed(options: Options, clock: Clock, log: Callable[[str], None]) -> Feed:
    """The feed of the job's zone; what cannot be used is said and must not cost the job its other sources."""
    settings = opening.settings(
        asked_offline=options.offline, currency=options.currency, price_per_kwh=options.price_per_kwh, forgiving=True
    )
    if settings.remark:
        log(settings.remark)
    try:
        return opening.open_feed(options.zone, settings=settings, now=clock.now, grid_file=options.grid)
    except ValueError as error:
        log(f"the recorded grid of this job is gone, other sources take its place: {error}")
        return opening.open_feed(options.zone, settings=settings, now=clock.now)
