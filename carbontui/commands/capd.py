"""The administrator's verb: install, remove or query the one privileged process that lowers limits for users."""

import contextlib
import os
import shlex

import click

from carbontui.commands.support.command import Failure, refused
from carbontui.power.capd import install as unit_files
from carbontui.power.capd import wire
from carbontui.system import bounded_command

ALLOWS = (
    "It lowers the power limit of a GPU, within the driver's range and below what it found, for a user who is alone on "
    "that GPU; it restores what it changed when the user's job ends in any way. "
    "It never raises a limit, runs no command and opens no file that a user names."
)


@click.group()
def capd() -> None:
    """Power limits for users without root.

    A small service that an administrator installs once. It lowers the power limit of a GPU, within the driver's range
    and below what it found, for a user who is alone on that GPU, and restores what it changed when that user's job
    ends.
    """


@capd.command()
@click.option("--print", "show", is_flag=True, help="Print what would be written; change nothing.")
def install(show: bool) -> None:
    """Install and start it (as root): a systemd socket and service, or the line that starts it elsewhere."""
    units = unit_files.units()
    if show:
        for name, text in units.items():
            click.echo(f"# {unit_files.UNITS / name}\n{text}")
        return
    _root("sudo carbontui capd install")
    if (place := unit_files.writable_by_others(unit_files.code())) is not None:
        raise Failure(
            f"{place} can be changed by somebody who is not root, who could then run anything as root through capd; "
            "install carbontui for root first: python3 -m venv /opt/carbontui && "
            "/opt/carbontui/bin/pip install carbontui && /opt/carbontui/bin/carbontui capd install",
            4,
        )
    click.echo(ALLOWS)
    if not bounded_command.systemd_runs():
        line = shlex.join(unit_files.command())
        click.echo(f"There is no systemd here: have your init, or the container's entry point, run as root:\n{line}")
        return
    for name, text in units.items():
        (unit_files.UNITS / name).write_text(text)
    with refused("", bounded_command.SystemdError, code=1):
        bounded_command.systemctl("daemon-reload")
        bounded_command.systemctl("enable", "--now", f"{unit_files.NAME}.socket")
        bounded_command.systemctl("enable", "--now", f"{unit_files.NAME}.service")
    click.echo(f"capd answers at {wire.SOCKET}; its log: journalctl -u {unit_files.NAME}")


@capd.command()
def uninstall() -> None:
    """Stop it and remove it (as root); limits it has set are restored."""
    _root("sudo carbontui capd uninstall")
    if bounded_command.systemd_runs():
        with contextlib.suppress(bounded_command.SystemdError):
            bounded_command.systemctl("disable", "--now", f"{unit_files.NAME}.socket", f"{unit_files.NAME}.service")
    found = [unit_files.UNITS / name for name in unit_files.units() if (unit_files.UNITS / name).exists()]
    for path in found:
        path.unlink()
    if found and bounded_command.systemd_runs():
        with refused("", bounded_command.SystemdError, code=1):
            bounded_command.systemctl("daemon-reload")
    click.echo("capd is removed" if found else "capd was not installed by carbontui capd install")


def _root(line: str) -> None:
    if os.geteuid() != 0:
        raise Failure(f"this needs root: {line}", 4)
