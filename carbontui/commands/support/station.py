"""What the screen shows beside the job it was opened for: all jobs, GPUs and grid of this machine, jobs of others.

An agent reads the GPUs in its own process, as it does for a job; it only monitors, and ends with the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from carbontui import config
from carbontui.grid import opening, zones
from carbontui.job.files import store
from carbontui.job.supervisor.core.view.status import gpu_of
from carbontui.job.terms import spec
from carbontui.power.agent import processes
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.limit import leases
from carbontui.power.messages import Readings
from carbontui.system import ssh
from carbontui.text import figures
from carbontui.tui.model.feed import Target
from carbontui.tui.model.jobs_feed import JobsSnapshot

FINISHED_SHOWN = 50
LEAVE_WAIT_S = 5.0
POLL_EVERY_S = 5.0
Fact = tuple[str, str, bool]


class RemoteJobs:
    """The jobs of several machines, followed by one thread per machine while the context is open."""

    def __init__(self, hosts: Sequence[ssh.SshHost]) -> None:
        self._hosts = hosts
        self._leave = threading.Event()
        self._finished: dict[str, tuple[Target, ...]] = {}
        self._faults: dict[str, str] = {}
        self._threads = [threading.Thread(target=self._follow, args=(host,), daemon=True) for host in hosts]

    def __enter__(self) -> RemoteJobs:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()

    def jobs(self) -> tuple[Target, ...]:
        """As last seen, host by host."""
        return tuple(target for host in self._hosts for target in self._finished.get(host.name, ()))

    def facts(self) -> tuple[tuple[str, str, bool], ...]:
        """A line for each host: how many jobs it has, or why it cannot be seen."""
        return tuple((host.name, *self._fact(host.name)) for host in self._hosts)

    def _fact(self, name: str) -> tuple[str, bool]:
        if fault := self._faults.get(name):
            return f"unreachable: {fault}", False
        if name not in self._finished:
            return "asking ...", True
        live = sum(not target.over for target in self._finished[name])
        return f"{live} live, {len(self._finished[name]) - live} over", True

    def _follow(self, host: ssh.SshHost) -> None:
        while not self._leave.is_set():
            try:
                found = host.statuses()
                self._finished[host.name] = tuple(Target.remote(one, host.socket(one.job), host.name) for one in found)
                self._faults.pop(host.name, None)
            except ssh.SshError as error:
                self._faults[host.name] = error.why
            self._leave.wait(POLL_EVERY_S)


class StationWatch:
    """Jobs, GPUs and grid, kept up to date from the first `listing()` on while the context is open."""

    def __init__(self, target_of: Callable[[store.Job], Target], others: RemoteJobs | None = None) -> None:
        """`target_of`: how a job is opened. `others`: jobs of other machines, which the table shows as well."""
        self._target_of, self._others = target_of, others
        self._readings: Readings | None = None
        self._grid: tuple[Fact, ...] = (("grid", "connecting ...", True),)
        self._headline = ""
        self._restored: tuple[Fact, ...] = ()
        self._fault = ""
        self._over: dict[str, Target] = {}
        self._loop = asyncio.new_event_loop()
        self._leave = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="station watch", daemon=True)

    def __enter__(self) -> StationWatch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.ident is None:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(LEAVE_WAIT_S)

    def listing(self) -> JobsSnapshot:
        """What the screen shows now: jobs from disk, the rest as last read."""
        if self._thread.ident is None:
            self._thread.start()
        facts = (*self._boards(), *self._restored, *self._grid, *(self._others.facts() if self._others else ()))
        jobs = (*self._jobs(), *(self._others.jobs() if self._others else ()))
        readings = self._readings or Readings()
        boards, host = tuple(gpu_of(reading, None) for reading in readings.devices), readings.host
        host_w = None if host.cpu_w is None else host.cpu_w + (host.dram_w or 0.0)
        return JobsSnapshot(facts, jobs, host_w, self._headline, boards, os.getloadavg()[0], os.cpu_count() or 1)

    def _jobs(self) -> tuple[Target, ...]:
        """Live jobs, then finished ones, newest first; a finished job is read once."""
        found = [self._over.get(name) or self._read(name) for name in store.names()]
        known = sorted((job for job in found if job is not None), key=lambda job: -job.started_s)
        live = [job for job in known if not job.over]
        return (*live, *[job for job in known if job.over][:FINISHED_SHOWN])

    def _read(self, name: str) -> Target | None:
        job = store.named(name)
        if job is None or job.foreign:
            return None
        target = self._target_of(job)
        if target.over and not job.live:
            self._over[name] = target
        return target

    def _boards(self) -> tuple[Fact, ...]:
        if self._fault:
            return (("GPUs", self._fault, False),)
        if self._readings is None or not self._readings.mono_s:
            return (("GPUs", "reading ...", True),)
        lost = [reading for reading in self._readings.devices if reading.lost]
        found = [(f"gpu {reading.index}", f"{reading.name}: lost", False) for reading in lost]
        host = self._readings.host
        if host.cpu_w is not None:
            watts = host.cpu_w + (host.dram_w or 0.0)
            found.append(("host", f"{figures.watts(watts)} CPU and memory, {host.how} ({host.source})", True))
        if not self._readings.devices:
            found.insert(0, ("GPUs", "no GPU answers", True))
        return tuple(found)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._follow())
        except Exception as error:
            # a sensor's fault is shown; it must not end the screen
            self._fault = f"cannot be read: {error}"

    async def _follow(self) -> None:
        if leases.stale_leases():
            outcomes = await asyncio.to_thread(processes.restore_stale)
            self._restored = tuple(("limits", f"{o.uuid}: {o.text or o.code}", o.ok) for o in outcomes)
        grid = asyncio.ensure_future(self._follow_grid())
        handle = AgentHandle(log=lambda _line: None, cwd=Path("/"), job="station", monitor=True)
        try:
            await handle.start()
            while not self._leave.is_set():
                self._readings = handle.readings
                handle.drain()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._leave.wait(), 0.5)
        finally:
            grid.cancel()
            await handle.close()

    async def _follow_grid(self) -> None:
        try:
            settings = config.load().settings
            configured = settings.zone or ""
            wanted = configured or await asyncio.to_thread(_zone_of_last_job)
            place = zones.sure(wanted or None, settings.intensity)
            feed = opening.open_feed(place.key, settings=opening.configured(settings, own=True), now=time.time)
        except ValueError as error:
            self._grid = (("grid", str(error), False),)
            return
        while True:
            await feed.refresh()
            now = time.time()
            seen = feed.outlook(now, 0.0, 3600.0, 900.0)
            value = None if seen is None else seen.value_at(now)
            told = "not known" if value is None or seen is None else f"{value:.0f} gCO2/kWh ({seen.how}: {seen.source})"
            whose = "" if configured or not wanted else ", the zone of the last job"
            self._grid = (("grid", f"{place.key} {told}{whose}", value is not None),)
            if value is not None and seen is not None:
                self._headline = f"{place.key} {value:.0f} g/kWh {_HOW[seen.how]}"
            if feed.note:
                self._grid += (("", feed.note, True),)
            await asyncio.sleep(max(60.0, min(900.0, feed.next_refresh_s() - time.time())))


def _zone_of_last_job() -> str:
    """Where no zone is configured: that of the newest job here which has one."""
    for job in store.jobs():
        with contextlib.suppress(OSError, ValueError):
            if zone := spec.load(job.dir).zone:
                return zone
    return ""


_HOW = {"default": "typical", "forecast": "forecast", "estimated": "estimated", "replay": "recorded"}
