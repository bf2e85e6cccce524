"""`doctor --install`: a systemd user unit that resumes jobs after a reboot, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click

from carbontui.job import restart_unit
from carbontui.verbs.failure import Failure

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
