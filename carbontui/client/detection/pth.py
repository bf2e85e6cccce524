"""The hook through a .pth file: for launch scripts that reset PYTHONPATH, and for `python -I`.

The environment gets its own copy of the client, so no job directory is read; without CARBONTUI_SOCKET the .pth line
checks one variable and does nothing. Used by the tool, never inside a training.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import List, NamedTuple

from carbontui.client import inject

NAME = "carbontui_hook"
LINE = (
    "import os, sys; os.environ.get('CARBONTUI_SOCKET') and sys.version_info >= (3, 8) "
    f"and __import__('{NAME}')  # carbontui hook --remove takes it away\n"
)
_ASK = "import os, sys, sysconfig; print(sysconfig.get_path('purelib')); print(sys.prefix); print(sys.base_prefix)"


class HookRefused(Exception):
    """Why the hook is not installed into this environment, in one line with the repair."""


class PackagePlace(NamedTuple):
    """Where the Python of one environment looks for packages."""

    python: str
    site: Path
    prefix: Path
    own: bool
    """A virtual or conda environment, not a shared Python."""

    @property
    def pth(self) -> Path:
        return self.site / f"{NAME}.pth"

    @property
    def package(self) -> Path:
        return self.site / NAME

    @property
    def installed(self) -> bool:
        return self.pth.exists()


def place(python: str) -> PackagePlace:
    """The environment of a `python` on PATH or by its path. Raises HookRefused if it cannot be queried."""
    found = shutil.which(python)
    if found is None:
        raise HookRefused(f"{python}: no such Python; name one with --python")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CARBONTUI_", "PYTHON"))}
    try:
        asked = subprocess.run([found, "-c", _ASK], env=env, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise HookRefused(f"{found} does not answer") from None
    lines: List[str] = asked.stdout.splitlines()
    if asked.returncode or len(lines) != 3:
        raise HookRefused(f"{found} does not answer: {asked.stderr.strip()[-200:]}")
    site, prefix, base = (Path(line) for line in lines)
    return PackagePlace(found, site, prefix, prefix != base or (prefix / "conda-meta").is_dir())


def install(where: PackagePlace) -> None:
    """Install the hook there, or renew it. Raises HookRefused, OSError."""
    if not where.own:
        raise HookRefused(
            f"{where.prefix} is a Python that others share; activate a virtual environment, or name its Python"
        )
    if where.site.stat().st_uid != os.getuid():
        raise HookRefused(f"{where.site} belongs to another user; the hook goes only into an environment of your own")
    inject.build(where.package)
    (where.package / "sitecustomize.py").replace(where.package / "__init__.py")
    part = where.pth.with_suffix(".part")
    part.write_text(LINE)
    part.replace(where.pth)


def remove(where: PackagePlace) -> bool:
    """Remove the hook; False if there was none. Raises OSError."""
    there = where.pth.exists() or where.package.exists()
    where.pth.unlink() if where.pth.exists() else None
    shutil.rmtree(where.package, ignore_errors=True)
    return there
