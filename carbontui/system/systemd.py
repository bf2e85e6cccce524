"""systemd on this machine: its orders, and whether a user's processes outlive the logout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CONTROL_S = 30.0


class SystemdError(RuntimeError):
    """systemctl failed; the text has the command and what it said."""


def runs() -> bool:
    """Whether it is this machine's init and takes orders."""
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def control(*words: str) -> None:
    """Give systemctl an order. Raises SystemdError."""
    command = ("systemctl", *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONTROL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemdError(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise SystemdError(f"{' '.join(command)}: {said[-1] if said else f'exit {done.returncode}'}")


def user() -> str:
    """This user as loginctl names it."""
    return os.environ.get("USER") or str(os.getuid())


def lingers() -> bool:
    """Whether this user's services run without a login."""
    return Path("/var/lib/systemd/linger", user()).exists()
