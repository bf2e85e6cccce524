"""What bare `carbontui` shows while no job runs: boards, host, grid and finished jobs.

An agent reads the boards in its own process, as it does for a job; it only monitors, and ends with the
screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from carbontui import config, units
from carbontui.job import store
from carbontui.verbs import talk
from carbontui.verbs.failure import Failure

if TYPE_CHECKING:
    from carbontui.power.messages import Reading, Readings
    from carbontui.tui.screens.station import Seen

FINISHED_SHOWN = 20
LEAVE_WAIT_S = 5.0
Fact = tuple[str, str, bool]


class StationWatch:
    """Boards and grid, kept up to date by a thread with its own event loop while the context is open."""

    def __init__(self) -> None:
        self._readings: Readings | None = None
        self._grid: tuple[Fact, ...] = (("grid", "connecting ...", True),)
        self._restored: tuple[Fact, ...] = ()
        self._fault = ""
        self._loop = asyncio.new_event_loop()
        self._leave = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="station watch", daemon=True)

    def __enter__(self) -> StationWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(LEAVE_WAIT_S)

    def seen(self) -> Seen:
        """What the screen shows now: jobs from disk and their sockets, the rest as last read."""
        from carbontui.tui.screens.station import Seen

        jobs = store.jobs()
        shown = [job for job in jobs if job.live] + [job for job in jobs if not job.live][:FINISHED_SHOWN]
        return Seen((*self._boards(), *self._restored, *self._grid), tuple(talk.live_status(job) for job in shown))

    def _boards(self) -> tuple[Fact, ...]:
        if self._fault:
            return (("boards", self._fault, False),)
        if self._readings is None or not self._readings.mono_s:
            return (("boards", "reading ...", True),)
        found = [_board(reading) for reading in self._readings.devices]
        host = self._readings.host
        if host.cpu_w is not None:
            watts = host.cpu_w + (host.dram_w or 0.0)
            found.append(("host", f"{units.fmt_watts(watts)} CPU and memory, {host.how} ({host.source})", True))
        if not self._readings.devices:
            found.insert(0, ("boards", "no NVIDIA GPU answers", True))
        return tuple(found)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._follow())
        except Exception as error:
            # a fault of a sensor is shown; it must not end the screen
            self._fault = f"cannot be read: {error}"

    async def _follow(self) -> None:
        from carbontui.power import leases
        from carbontui.power.handle import AgentHandle

        if leases.stale_leases():
            outcomes = await asyncio.to_thread(leases.restore_stale)
            self._restored = tuple(("limits", f"{o.uuid}: {o.text or o.code}", o.ok) for o in outcomes)
        grid = asyncio.ensure_future(self._follow_grid())
        handle = AgentHandle(log=lambda _line: None, cwd=Path("/"), job="station", monitor=True)
        try:
            await handle.start()
            while not self._leave.is_set():
                self._readings = handle.readings
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._leave.wait(), 0.5)
        finally:
            grid.cancel()
            await handle.close()

    async def _follow_grid(self) -> None:
        from carbontui.grid import opening
        from carbontui.verbs.grid import settings_of
        from carbontui.verbs.place import sure_zone

        try:
            settings = config.load().settings
            place = sure_zone(settings.zone)
            feed = opening.open_feed(place.key, settings=settings_of(settings), now=time.time)
        except (config.ConfigError, Failure) as error:
            self._grid = (("grid", getattr(error, "message", str(error)), False),)
            return
        while True:
            await feed.refresh()
            seen = feed.outlook(time.time(), 0.0, 3600.0, 3600.0)
            value = seen.mean[0] if seen else None
            now = "not known" if value is None or seen is None else f"{value:.0f} gCO2/kWh ({seen.how}: {seen.source})"
            self._grid = (("grid", f"{place.key} {now}", value is not None),)
            if feed.note:
                self._grid += (("", feed.note, True),)
            await asyncio.sleep(max(60.0, feed.next_refresh_s() - time.time()))


def _board(reading: Reading) -> Fact:
    limit = "" if reading.limit_w is None else f" of {reading.limit_w:.0f} W"
    memory = "" if reading.memory_used_b is None else f", {reading.memory_used_b / 2**30:.1f} GiB in use"
    others = f", {len(reading.foreign_pids)} processes" if reading.foreign_pids else ""
    lost = ", lost" if reading.lost else ""
    watts = units.fmt_watts(reading.power_w)
    return (f"gpu {reading.index}", f"{reading.name}  {watts}{limit}{memory}{others}{lost}", not reading.lost)
