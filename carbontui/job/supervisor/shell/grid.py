"""How a job's options become a feed of the grid."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from carbontui import paths
from carbontui.grid import recorded
from carbontui.grid.feed import Feed
from carbontui.grid.settings import GridSettings, KeyFileError, read_keys
from carbontui.job.clock import Clock
from carbontui.job.spec import Options


def open_feed(options: Options, clock: Clock, log: Callable[[str], None]) -> Feed:
    """The feed of the job's zone; a recorded file replaces every live source."""
    series = None
    if options.grid is not None:
        try:
            series = recorded.load(Path(options.grid), zone=options.zone or "recorded")
        except (OSError, ValueError) as error:
            log(f"the recorded grid of this job is gone, other sources take its place: {error}")
    try:
        keys = read_keys(paths.config_file().parent / "keys.env")
    except KeyFileError as error:
        log(str(error))  # a key file that cannot be used must not cost the job its keyless sources
        keys = {}
    settings = GridSettings(
        keys=keys,
        offline=options.offline or os.environ.get("CARBONTUI_OFFLINE") == "1",
        currency=options.currency,
        price_per_kwh=options.price_per_kwh,
    )
    return Feed(options.zone, settings=settings, now=clock.now, recorded=series, cache=paths.cache_dir() / "grid")
