"""`hook`: what is installed outside carbontui, into a training's own Python."""

import contextlib
import json
from pathlib import Path

import click

from carbontui import paths
from carbontui.client.detection import pth
from carbontui.commands.support.command import refused


def installed() -> list[Path]:
    """The .pth files that were installed from here and are still there."""
    try:
        known = json.loads(_list().read_text())
    except (OSError, ValueError):
        return []
    return [path for path in map(Path, known if isinstance(known, list) else ()) if path.exists()]


def _list() -> Path:
    return paths.state_dir() / "hooks.json"


def _remember(where: pth.PackagePlace) -> None:
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
    with refused("", pth.HookRefused, code=4):
        where = pth.place(python)
        if what == "install":
            pth.install(where)
            _remember(where)
            click.echo(f"installed: {where.pth}; remove it with `carbontui hook --remove --python {where.python}`")
        elif what == "remove":
            there = pth.remove(where)
            _remember(where)
            click.echo(f"removed: {where.pth}" if there else f"it was not installed in {where.site}")
        else:
            click.echo(f"{where.pth}: {'installed' if where.installed else 'not installed'}")
