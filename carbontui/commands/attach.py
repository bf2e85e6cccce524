"""`attach`: opens the screen of a job; also what bare `carbontui` opens: the only live job, else the table of all."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from carbontui import __version__, config, hooks, link, protocol, tui, units
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, any_jobs, host_of, refused, there_option
from carbontui.job.files import store
from carbontui.system import proc, ssh
from carbontui.tui.model.feed import Target
from carbontui.tui.terminal import tty

if TYPE_CHECKING:
    from carbontui.commands.support.station import StationWatch

RESTART_WAIT_S = 20.0
"""Seconds the monitor process has to start a supervisor of the new version."""


def target_of(job: store.Job) -> Target:
    """A job as the screen opens it, with what its files say, which are its only source once it is over; the reports are
    loaded once they are asked for."""

    def ending() -> tuple[tuple[str, str], ...]:
        from carbontui.reports import run_text, story

        # its supervisor says that it is over before it has written the last of it
        proc.awaited(lambda: not job.alive("supervisor"), 5.0)
        with contextlib.suppress(story.NoStory):
            return run_text.ending(story.build(job, status=job.status()))
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
    for _, elsewhere in hooks.offered("elsewhere", own_only=True):
        told = replace(told, **elsewhere(job, units.listed(hosts)))
    return told


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


def offer_restart(job: store.Job) -> None:
    """After an upgrade the supervisor still runs the old version: offer to restart it. The training does not notice."""

    def version() -> str:
        with contextlib.suppress(link.LinkError):
            return link.version(job.socket)
        return ""

    running, pid, keeper = version(), job.alive("supervisor"), job.alive("keeper")
    if running in ("", __version__) or pid is None:
        return
    text = f"the supervisor of {job.name} ({job.id}) is carbontui {running}, this is {__version__}"
    if keeper is None:
        click.echo(f"carbontui: {text}; it cannot be restarted: the monitor process is gone", err=True)
    elif not sys.stdin.isatty():
        click.echo(f"carbontui: {text}; to restart it while training goes on: kill {pid}", err=True)
    elif click.confirm(f"{text}. Restart it? Training goes on", default=True):
        os.kill(pid, signal.SIGTERM)
        if not proc.awaited(lambda: version() == __version__, RESTART_WAIT_S):
            click.echo(f"carbontui: no supervisor of this version answered within {RESTART_WAIT_S:.0f} s", err=True)


def take_up(job: store.Job) -> None:
    """Give a training without a monitor process a new one, so that the screen can steer it."""
    from carbontui.job.life import launch, restart

    try:
        restart.restart(job)
    except launch.LaunchError as error:
        click.echo(f"carbontui: {error}", err=True)
    else:
        click.echo(f"carbontui: {job.name} ({job.id}) had lost its monitor process and is taken up again", err=True)


def _shown(target: Target | None, hosts: Sequence[ssh.SshHost] = (), /, **screen: bool) -> int:
    """Show the dashboard of a job, or the table of all and of those of `hosts`, until the user leaves it; the exit
    code. What is beside a job is loaded and read from the first look at it."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def watch() -> StationWatch:
            from carbontui.commands.support.station import RemoteJobs, StationWatch

            others = stack.enter_context(RemoteJobs(hosts)) if hosts else None
            return stack.enter_context(StationWatch(target_of, others))

        if target is None:
            return tui.jobs(lambda: watch().listing(), **screen)
        return tui.run(target, observe=lambda: watch().listing(), **screen)


def open_screen(job: str | None, there: str = "carbontui", *, readonly: bool = False, **screen: bool) -> int:
    """Show the dashboard of one job until the user leaves it, of one that has moved over ssh; the exit code. Raises
    Failure for an unknown or foreign job."""
    found = talk.find(job)
    if found.foreign:
        raise Failure(f"job {found.id} runs on {found.host}; try: ssh -t {found.host} carbontui attach {found.id}", 3)
    if (where := talk.away(found)) and (moved := found.status().moved_to) and not tty.why_plain():
        click.echo(f"carbontui: {where}", err=True)
        return open_remote(f"{moved.host}:{found.id}", there, readonly=readonly, **screen)
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
        return _shown(Target.remote(status, host.socket(status.job), host.name), [host], **screen)


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs, metavar="[JOB | USER@HOST[:JOB]]")
@there_option
@click.option("--readonly", is_flag=True, help="Look only: no key can change anything.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@click.pass_context
def attach(ctx: click.Context, job: str | None, there: str, readonly: bool, no_mouse: bool) -> None:
    """Open the screen of a job, here or over ssh on another machine; q leaves it running."""
    # --readonly given before the verb counts as well: no key may change anything then
    readonly = readonly or bool(ctx.parent and ctx.parent.params.get("readonly"))
    if job and ("@" in job or ":" in job) and all(job not in (one.id, one.name) for one in store.jobs()):
        sys.exit(open_remote(job, there, readonly=readonly, mouse=not no_mouse))
    sys.exit(open_screen(job, there, readonly=readonly, mouse=not no_mouse))


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
        return _shown(None, hosts, readonly=readonly)


def open_default(there: str, *, readonly: bool) -> int:
    """What bare `carbontui` opens: the only live job, else the table of all jobs with the machine's GPUs and grid.

    Without a terminal nobody can choose: Failure with exit 2 and the list for several jobs, exit 3 for none.
    """
    live = store.live()
    if len(live) == 1 or tty.why_plain():
        if not live:
            raise Failure("no job is running; start one: carbontui run -- python train.py, or see: carbontui demo", 3)
        return open_screen(live[0].id if len(live) == 1 else None, there, readonly=readonly)
    return _shown(None, readonly=readonly)
