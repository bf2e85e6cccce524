"""`restart` resumes a job whose processes are gone; `doctor --install`: the systemd unit that does so at a reboot."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click

from carbontui.job import restart_unit, store
from carbontui.system import proc
from carbontui.text import situation
from carbontui.verbs.support import talk
from carbontui.verbs.support.command import Failure, any_jobs


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--after-reboot", "every", is_flag=True, help="Every job on this machine that a reboot has ended.")
def restart(job: str | None, every: bool) -> None:
    """Resume a job whose processes are gone, as after a reboot."""
    if not every:
        _restart(talk.find(job))
        return
    if job is not None:
        raise Failure("restart JOB, or restart --after-reboot for all of them", 2)
    ended = [found for found in store.jobs() if found.restart_command and found.boot != proc.boot_id()]
    failed = 0
    for found in (found for found in ended if not found.foreign):
        try:
            _restart(found)
        except Failure as error:
            failed += 1
            error.show()
    if not ended:
        click.echo("no job was ended by a reboot")
    if failed:
        raise SystemExit(1)


def _restart(found: store.Job) -> None:
    from carbontui.job import launch
    from carbontui.job import restart as restarting

    try:
        restarting.restart(found)
    except launch.LaunchError as error:
        raise Failure(str(error), 3 if found.exit is not None else 1) from None
    fresh = talk.live_status(talk.find(found.id))
    click.echo(f"job {found.id} {situation.stated(fresh)}")


SYSTEMCTL_S = 30.0


def install(*, dry_run: bool) -> None:
    """Write and enable it. Raises Failure."""
    place = restart_unit.place()
    try:
        unit = restart_unit.text()
    except ValueError as error:
        raise Failure(str(error), 2) from None
    if dry_run:
        click.echo(f"# {place}\n{unit}", nl=False)
        return
    if shutil.which("systemctl") is None:
        raise Failure("there is no systemctl here; from cron: @reboot carbontui restart --after-reboot", 3)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.write_text(unit)
        _systemctl("daemon-reload")
        _systemctl("enable", restart_unit.NAME)
    except (Failure, OSError):
        place.unlink(missing_ok=True)
        raise
    click.echo(f"installed {place}; to undo: carbontui doctor --uninstall")
    user = os.environ.get("USER") or str(os.getuid())
    if not Path("/var/lib/systemd/linger", user).exists():
        click.echo(f"it runs when you log in; to have it run at boot: loginctl enable-linger {user}")


def uninstall(*, dry_run: bool) -> None:
    """Disable and remove it. Raises Failure."""
    place = restart_unit.place()
    if dry_run:
        click.echo(f"would remove {place}" if place.exists() else f"{place} does not exist")
        return
    if not place.exists():
        click.echo(f"nothing is installed ({place} does not exist)")
        return
    if shutil.which("systemctl") is not None:
        _systemctl("disable", restart_unit.NAME)
    place.unlink()
    if shutil.which("systemctl") is not None:
        _systemctl("daemon-reload")
    click.echo(f"removed {place}")


def _systemctl(*words: str) -> None:
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{' '.join(command)}: {error}", 1) from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = said[-1] if said else f"exit {done.returncode}"
        raise Failure(f"{' '.join(command)}: {why}; nothing is installed", 1)
