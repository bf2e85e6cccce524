"""`attach`: opens the screen of a job; also what bare `carbontui` opens: the table of all jobs, and the data shown
beside it: boards, host, grid, and what waiting would gain a job now.

An agent reads the boards in its own process, as it does for a job; it only monitors, and ends with the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from carbontui import __version__, config, link, protocol, tui, units
from carbontui.assumed.other_plans import gain_brief, gain_words
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, any_jobs, host_of, refused, there_option
from carbontui.grid import opening, zones
from carbontui.job.files import store
from carbontui.job.life import launch, restart
from carbontui.job.supervisor.core.view.status import gpu_of
from carbontui.job.terms import spec
from carbontui.power.agent import processes
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.limit import leases
from carbontui.power.messages import Readings
from carbontui.system import ssh
from carbontui.text import account as words
from carbontui.text import figures
from carbontui.tui.model.feed import BetterHost, Target
from carbontui.tui.model.jobs_feed import JobsSnapshot
from carbontui.tui.terminal import tty

RESTART_WAIT_S = 20.0
"""Seconds the keeper has to start a supervisor of the new version."""
WORTH_MOVING = 0.05
"""A smaller saving is not offered."""
FINISHED_SHOWN = 50
LEAVE_WAIT_S = 5.0
POLL_EVERY_S = 5.0
AHEAD_S = 48 * 3600.0
"""How far ahead a better start is searched for: a forecast beyond that is a guess."""
Fact = tuple[str, str, bool]


def target_of(job: store.Job) -> Target:
    """A job as the screen opens it, with what its files say, which are its only source once it is over; the reports are
    loaded once they are asked for."""

    def ending() -> tuple[tuple[str, str], ...]:
        from carbontui.reports import card, story

        with contextlib.suppress(story.NoStory):
            return card.ending(story.build(job, status=job.status()))
        return ()

    told = Target(
        *(job.id, job.name, job.socket, job.status(), job.read_log, job.started_s, job.owner),
        whole_run=job.whole_run,
        ending=ending,
        away=lambda: talk.away(job),
    )
    hosts = None
    with contextlib.suppress(config.ConfigError):
        hosts = config.load().settings.hosts
    if not hosts or told.over or job.foreign:
        return told
    names = units.listed(hosts)
    return replace(told, elsewhere=lambda: _elsewhere(job, names), move=lambda host: by_verb(job, host))


def _elsewhere(job: store.Job, names: list[str]) -> BetterHost | None:
    """The machine on which the rest of it would emit least; None where nothing is known, or gained."""
    from carbontui.account.hosts import better
    from carbontui.reports import elsewhere, story

    try:
        rest = elsewhere.of_job(job, talk.live_status(job))
    except (story.NoStory, ValueError):
        return None
    there = os.environ.get("CARBONTUI_THERE", "carbontui")
    here, *_ = rows = elsewhere.compared(rest, names, there, at_once=True)[0]
    best = better(rows, WORTH_MOVING)
    if best is None:
        return None
    saves = 1.0 - (best.row.gco2_g or 0.0) / (here.row.gco2_g or 1.0)
    return BetterHost(best.row.name, words.better_host(best.row.name, best.zone, saves, best.done_s - here.done_s))


def by_verb(job: store.Job, host: str) -> tuple[bool, str]:
    """By the verb, in a session of its own: leaving the screen does not end it."""
    log = job.dir / "move.log"
    try:
        with log.open("wb") as out:
            done = subprocess.run(
                [sys.executable, "-m", "carbontui.cli", "move", job.id, host, "--yes"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, check=False,
            )  # fmt: skip
        told = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return False, f"not moved: {error}"
    last = told[-1].removeprefix("carbontui: ") if told else f"move ended with {done.returncode}"
    return done.returncode == 0, units.printable(last)


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
                self._finished[host.name] = tuple(_remote(host, status) for status in host.statuses())
                self._faults.pop(host.name, None)
            except ssh.SshError as error:
                self._faults[host.name] = error.why
            self._leave.wait(POLL_EVERY_S)


def _remote(host: ssh.SshHost, status: protocol.Status) -> Target:
    """What the screen opens; of a remote job that is over, only the last status is known."""
    return Target(status.job, status.name, host.socket(status.job), status=status, host=host.name)


def only_job(host: ssh.SshHost, job: str | None) -> protocol.Status:
    """The job meant; ssh may ask for a password. Raises Failure: 2 for an ambiguous name, 3 for none."""
    with refused("", ssh.SshError, code=3):
        found = host.statuses(job, ask=True)
    if job is None:
        found = tuple(status for status in found if status.state in protocol.LIVE_STATES)
    if not found:
        raise Failure(f"{host.name}: no job {job!r}" if job else f"{host.name}: no job is running", 3)
    if len(found) > 1:
        names = ", ".join(f"{status.name} ({status.job})" for status in found)
        raise Failure(f"{host.name}: several jobs are running; name one after a colon: {names}", 2)
    return found[0]


class StationWatch:
    """Jobs, boards and grid, kept up to date from the first `listing()` on while the context is open."""

    def __init__(self, others: RemoteJobs | None = None) -> None:
        """`others`: jobs of other machines, which the table shows as well."""
        self._others = others
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
        target = target_of(job)
        if target.over and not job.live:
            self._over[name] = target
        return target

    def _boards(self) -> tuple[Fact, ...]:
        if self._fault:
            return (("boards", self._fault, False),)
        if self._readings is None or not self._readings.mono_s:
            return (("boards", "reading ...", True),)
        lost = [reading for reading in self._readings.devices if reading.lost]
        found = [(f"gpu {reading.index}", f"{reading.name}: lost", False) for reading in lost]
        host = self._readings.host
        if host.cpu_w is not None:
            watts = host.cpu_w + (host.dram_w or 0.0)
            found.append(("host", f"{figures.watts(watts)} CPU and memory, {host.how} ({host.source})", True))
        if not self._readings.devices:
            found.insert(0, ("boards", "no GPU answers", True))
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
            seen = feed.outlook(now, 0.0, AHEAD_S, 900.0)
            value = None if seen is None else seen.value_at(now)
            told = "not known" if value is None or seen is None else f"{value:.0f} gCO2/kWh ({seen.how}: {seen.source})"
            whose = "" if configured or not wanted else ", the zone of the last job"
            self._grid = (("grid", f"{place.key} {told}{whose}", value is not None),)
            if value is not None and seen is not None:
                self._headline = f"{place.key} {value:.0f} g/kWh {_HOW[seen.how]} · {gain_brief(seen, now)}"
                self._grid += (("waiting", gain_words(seen, now), True),)
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


def offer_restart(job: store.Job) -> None:
    """After an upgrade the supervisor still runs the old version: offer to restart it. The training does not notice."""
    try:
        running = link.version(job.socket)
    except link.LinkError:
        return
    pid, keeper = job.alive("supervisor"), job.alive("keeper")
    if running == __version__ or pid is None:
        return
    text = f"the supervisor of {job.name} ({job.id}) is carbontui {running}, this is {__version__}"
    if keeper is None:
        click.echo(f"carbontui: {text}; it cannot be restarted: the keeper is gone", err=True)
    elif not sys.stdin.isatty():
        click.echo(f"carbontui: {text}; to restart it while training goes on: kill {pid}", err=True)
    elif click.confirm(f"{text}. Restart it? Training goes on", default=True):
        os.kill(pid, signal.SIGTERM)
        due = time.monotonic() + RESTART_WAIT_S
        while time.monotonic() < due:
            time.sleep(0.2)
            try:
                if link.version(job.socket) == __version__:
                    return
            except link.LinkError:
                continue
        click.echo(f"carbontui: no supervisor of this version answered within {RESTART_WAIT_S:.0f} s", err=True)


def take_up(job: store.Job) -> None:
    """Give a training without a keeper a new one, so that the screen can steer it."""
    try:
        restart.restart(job)
    except launch.LaunchError as error:
        click.echo(f"carbontui: {error}", err=True)
    else:
        click.echo(f"carbontui: {job.name} ({job.id}) had lost its keeper and is taken up again", err=True)


def _shown(target: Target | None, jobs: RemoteJobs | None = None, /, **screen: bool) -> int:
    """Show the dashboard of a job, or the table of all, until the user leaves it; the exit code."""
    with StationWatch(jobs) as watch:
        if target is None:
            return tui.jobs(watch.listing, **screen)
        return tui.run(target, observe=watch.listing, **screen)


def open_screen(job: str | None, *, readonly: bool = False, **screen: bool) -> int:
    """Show the dashboard of one job until the user leaves it; the exit code. Raises Failure for an unknown or foreign
    job."""
    found = talk.find(job)
    if found.foreign:
        raise Failure(f"job {found.id} runs on {found.host}; try: ssh -t {found.host} carbontui attach {found.id}", 3)
    talk.at_home(found)
    if not readonly and found.orphaned:
        take_up(found)
    elif not readonly and found.live:
        offer_restart(found)
    return _shown(target_of(found), readonly=readonly, **screen)


def open_remote(wanted: str, there: str, **screen: bool) -> int:
    """Show the dashboard of a job on another machine until the user leaves it; the exit code. Raises Failure."""
    with host_of(wanted, there) as host:
        status = only_job(host, ssh.place(wanted).job)
        with RemoteJobs([host]) as jobs:
            return _shown(_remote(host, status), jobs, **screen)


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs, metavar="[JOB | USER@HOST[:JOB]]")
@there_option
@click.option("--readonly", is_flag=True, help="Look only: no key can change anything.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with plain characters.")
@click.pass_context
def attach(ctx: click.Context, job: str | None, there: str, readonly: bool, no_mouse: bool, ascii_only: bool) -> None:
    """Open the screen of a job, here or over ssh on another machine; q leaves it running."""
    # --readonly given before the verb counts as well: no key may change anything then
    readonly = readonly or bool(ctx.parent and ctx.parent.params.get("readonly"))
    if job and ("@" in job or ":" in job) and all(job not in (one.id, one.name) for one in store.jobs()):
        sys.exit(open_remote(job, there, readonly=readonly, mouse=not no_mouse, ascii=ascii_only))
    sys.exit(open_screen(job, readonly=readonly, mouse=not no_mouse, ascii=ascii_only))


def open_hosts(names: list[str], there: str, *, readonly: bool) -> int:
    """Show one table of this machine's jobs and those of other hosts."""
    if why := tty.why_plain():
        raise Failure(f"{why}: the table of several hosts needs a terminal; ssh HOST carbontui ls --json prints one", 2)
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(host_of(name, there)) for name in names]
        for host in hosts:  # each is contacted once, so that ssh can prompt before the screen takes the terminal
            try:
                host.statuses(ask=True)
            except ssh.SshError as error:
                click.echo(f"carbontui: {error}", err=True)
        return _shown(None, stack.enter_context(RemoteJobs(hosts)), readonly=readonly)


def open_default(*, readonly: bool) -> int:
    """What bare `carbontui` opens: the only live job, else the table of all jobs with the machine's boards and grid.

    Without a terminal nobody can choose: Failure with exit 2 and the list for several jobs, exit 3 for none.
    """
    live = store.live()
    if len(live) == 1 or tty.why_plain():
        if not live:
            raise Failure("no job is running; start one: carbontui run -- python train.py, or see: carbontui demo", 3)
        return open_screen(live[0].id if len(live) == 1 else None, readonly=readonly)
    return _shown(None, readonly=readonly)
