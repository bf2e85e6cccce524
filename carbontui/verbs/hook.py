"""`carbontui hook`: the hook put into a training's own environment, where PYTHONPATH does not bring it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click

from carbontui import paths
from carbontui.client import pth
from carbontui.verbs.failure import Failure


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
    """So that doctor can name it; without a list it is installed all the same."""
    with contextlib.suppress(OSError):
        paths.private_dir(paths.state_dir())
        found = dict.fromkeys(str(path) for path in (*installed(), where.pth) if path.exists())
        _list().write_text(json.dumps(list(found)))


@click.command(short_help="Put the hook into an environment of your own, or take it out.")
@click.option("--install", "what", flag_value="install", help="Put it there, or renew it.")
@click.option("--remove", "what", flag_value="remove", help="Take it away.")
@click.option("--python", default="python3", show_default=True, help="The Python that the training is started with.")
def hook(what: str | None, python: str) -> None:
    """Where a launch script resets PYTHONPATH, or Python runs isolated (-I), the steps of a training are not seen.
    A .pth file in its environment brings the hook all the same; outside of a job it does nothing.

    Without --install or --remove it says whether it is there.
    """
    try:
        where = pth.place(python)
        if what == "install":
            pth.install(where)
            _remember(where)
            click.echo(f"installed: {where.pth}; take it away with `carbontui hook --remove --python {where.python}`")
        elif what == "remove":
            there = pth.remove(where)
            _remember(where)
            click.echo(f"removed: {where.pth}" if there else f"there was none in {where.site}")
        else:
            click.echo(f"{where.pth}: {'installed' if where.installed else 'not installed'}")
    except pth.HookRefused as error:
        raise Failure(str(error), 4) from None
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}", 4) from None
