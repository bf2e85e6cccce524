"""`carbontui hook`: the hook put into a training's own environment, where PYTHONPATH does not bring it."""

from __future__ import annotations

import click

from carbontui.client import pth
from carbontui.verbs.failure import Failure


@click.command(short_help="Put the hook into a Python environment of your own, or take it away.")
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
            click.echo(f"installed: {where.pth}; take it away with `carbontui hook --remove --python {where.python}`")
        elif what == "remove":
            click.echo(f"removed: {where.pth}" if pth.remove(where) else f"there was none in {where.site}")
        else:
            click.echo(f"{where.pth}: {'installed' if where.installed else 'not installed'}")
    except pth.HookRefused as error:
        raise Failure(str(error), 4) from None
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}", 4) from None
