"""The systemd user unit that continues a user's jobs after a reboot; installed only by `doctor --install`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from carbontui import paths
from carbontui.system import systemd

NAME = "carbontui-restart.service"
UNIT = """\
# Written by carbontui doctor --install; carbontui doctor --uninstall removes it.
[Unit]
Description=carbontui: go on with jobs that a reboot has ended

[Service]
Type=oneshot
ExecStart={command}
{environment}# the jobs outlive the command that starts them
KillMode=process
SendSIGKILL=no

[Install]
WantedBy=default.target
"""
KEPT = (
    *("CARBONTUI_HOME", "CARBONTUI_LEASE_DIR", "CARBONTUI_GRID_URLS", "CARBONTUI_OFFLINE", "CARBONTUI_ZONE"),
    *("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
)
"""Paths and keys that jobs need: a unit sees nothing else of the shell that installs it."""


def place(environment: Mapping[str, str] = os.environ) -> Path:
    """Where systemd looks for user units. Raises FileNotFoundError if no home directory is known."""
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "~"), ".config")  # noqa: PTH118
    return paths.known(lambda: str(Path(config).expanduser()), wanted="HOME") / "systemd" / "user" / NAME


def text(environment: Mapping[str, str] = os.environ) -> str:
    """The unit's text. Raises ValueError for a path that a unit file cannot contain."""
    words = (sys.executable, "-m", "carbontui.cli", "restart", "--after-reboot")
    command = " ".join(_word(word).replace("$", "$$") for word in words)
    kept = {name: environment[name] for name in KEPT if environment.get(name)}
    lines = (f"Environment={_word(f'{name}={value}')}\n" for name, value in kept.items())
    return UNIT.format(command=command, environment="".join(lines))


def install(unit: str) -> None:
    """Write and enable it; nothing is left of one that cannot be. Raises SystemdError and OSError."""
    where = place()
    where.parent.mkdir(parents=True, exist_ok=True)
    try:
        where.write_text(unit)
        systemd.control("--user", "daemon-reload")
        systemd.control("--user", "enable", NAME)
    except (systemd.SystemdError, OSError):
        where.unlink(missing_ok=True)
        raise


def remove() -> None:
    """Disable and delete it, where there is no systemd, delete it alone. Raises SystemdError and OSError."""
    here = shutil.which("systemctl") is not None
    if here:
        systemd.control("--user", "disable", NAME)
    place().unlink()
    if here:
        systemd.control("--user", "daemon-reload")


def _word(word: str) -> str:
    """A word of a unit file: quoted, with specifiers escaped (systemd.syntax(7))."""
    if not word.isprintable() or not word.isascii():
        raise ValueError(f"{word!a} cannot stand in a unit file: ASCII paths alone")
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
