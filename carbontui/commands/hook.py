"""`hook`: what is installed outside carbontui, into a training's own Python: a .pth file, for launch scripts that reset
PYTHONPATH and for `python -I`.

The environment gets its own copy of the client, so no job directory is read; without CARBONTUI_SOCKET the .pth line
checks one variable and does nothing.
"""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import click

from carbontui import paths
from carbontui.client import inject
from carbontui.commands.support.command import refused

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
    lines: list[str] = asked.stdout.splitlines()
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
    paths.write_whole(where.pth, LINE.encode(), 0o644)


def remove(where: PackagePlace) -> bool:
    """Remove the hook; False if there was none. Raises OSError."""
    there = where.pth.exists() or where.package.exists()
    where.pth.unlink(missing_ok=True)
    shutil.rmtree(where.package, ignore_errors=True)
    return there


def installed() -> list[Path]:
    """The .pth files that were installed from here and are still there."""
    try:
        known = json.loads(_list().read_text())
    except (OSError, ValueError):
        return []
    return [path for path in map(Path, known if isinstance(known, list) else ()) if path.exists()]


def _list() -> Path:
    return paths.state_dir() / "hooks.json"


def _remember(where: PackagePlace) -> None:
    """Record the place so that doctor can name it; a failure to record does not undo the installation."""
    with contextlib.suppress(OSError):
        paths.private_dir(paths.state_dir())
        found = dict.fromkeys(str(path) for path in (*installed(), where.pth) if path.exists())
        _list().write_text(json.dumps(list(found)))


@click.command()
@click.option("--install", "what", flag_value="install", help="Install or update it.")
@click.option("--remove", "what", flag_value="remove", help="Remove it.")
@click.option("--python", default="python3", show_default=True, help="The Python that the training is started with.")
def hook(what: str | None, python: str) -> None:
    """Where a launch script resets PYTHONPATH, or Python runs isolated (-I), a training's steps are not detected.
    A .pth file in its environment loads the hook there too; outside a job it does nothing.

    Without --install or --remove: say whether it is installed.
    """
    with refused("", HookRefused, code=4):
        where = place(python)
        if what == "install":
            install(where)
            _remember(where)
            click.echo(f"installed: {where.pth}; remove it with `carbontui hook --remove --python {where.python}`")
        elif what == "remove":
            there = remove(where)
            _remember(where)
            click.echo(f"removed: {where.pth}" if there else f"it was not installed in {where.site}")
        else:
            click.echo(f"{where.pth}: {'installed' if where.pth.exists() else 'not installed'}")
