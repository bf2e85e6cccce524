"""`attach`: opens the screen of a job; also what bare `carbontui` opens."""

from __future__ import annotations

import os
import signal
import sys
import time

import click

from carbontui import __version__, link, tui
from carbontui.commands.support import remote, talk
from carbontui.commands.support.command import Failure, any_jobs
from carbontui.commands.support.endings import target_of
from carbontui.job.files import store
from carbontui.job.life import launch, restart
from carbontui.system import ssh
from carbontui.tui.model.target import Target
from carbontui.tui.terminal import tty

RESTART_WAIT_S = 20.0
"""Seconds the keeper has to start a supervisor of the new version."""


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


def _shown(target: Target | None, jobs: remote.RemoteJobs | None = None, /, **screen: bool) -> int:
    """Show the dashboard of a job, or the table of all, until the user leaves it; the exit code."""
    from carbontui.commands.support.station import StationWatch

    with StationWatch(jobs) as watch:
        if target is None:
            return tui.jobs(watch.listing, **screen)
        return tui.run(target, look=watch.listing, **screen)


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
    with remote.host_of(wanted, there) as host:
        status = remote.only_job(host, ssh.place(wanted).job)
        with remote.RemoteJobs([host]) as jobs:
            return _shown(remote.target_of(host, status), jobs, **screen)


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs, metavar="[JOB | USER@HOST[:JOB]]")
@remote.there_option
@click.option("--readonly", is_flag=True, help="Look only: no key can change anything.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with plain characters.")
@click.pass_context
def attach(ctx: click.Context, job: str | None, there: str, readonly: bool, no_mouse: bool, ascii_only: bool) -> None:
    """Open the screen of a job, here or over ssh on another machine; q leaves it running."""
    # --readonly given before the verb counts as well: no key may change anything then
    readonly = readonly or bool(ctx.parent and ctx.parent.params.get("readonly"))
    if job and remote.is_remote(job) and all(job not in (one.id, one.name) for one in store.jobs()):
        sys.exit(open_remote(job, there, readonly=readonly, mouse=not no_mouse, ascii=ascii_only))
    sys.exit(open_screen(job, readonly=readonly, mouse=not no_mouse, ascii=ascii_only))


def open_hosts(names: list[str], there: str, *, readonly: bool) -> int:
    """Show one table of this machine's jobs and those of other hosts."""
    if why := tty.why_plain():
        raise Failure(f"{why}: the table of several hosts needs a terminal; ssh HOST carbontui ls --json prints one", 2)
    with remote.opened(names, there) as jobs:
        return _shown(None, jobs, readonly=readonly)


def open_default(*, readonly: bool) -> int:
    """What bare `carbontui` opens: the only live job, else the table of all jobs with the machine's boards and grid.

    Without a terminal nobody can choose: Failure with exit 2 and the list for several jobs, exit 3 for none.
    """
    live = [job for job in store.jobs() if job.live and not job.foreign]
    if len(live) == 1 or tty.why_plain():
        if not live:
            raise Failure("no job is running; start one: carbontui run -- python train.py, or see: carbontui demo", 3)
        return open_screen(live[0].id if len(live) == 1 else None, readonly=readonly)
    return _shown(None, readonly=readonly)
