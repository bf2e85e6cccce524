"""`line`: one job in a few words, for the status bar of tmux or a shell prompt."""

from __future__ import annotations

import click
import msgspec

from carbontui import line as shared
from carbontui import protocol
from carbontui.job import store
from carbontui.verbs.support import talk


def words(status: protocol.Status) -> str:
    """The same text as `carbontui.line` prints without loading any of this."""
    return shared.words(msgspec.to_builtins(status))


@click.command()
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="The parts as JSON.")
def line(job: str | None, as_json: bool) -> None:
    """Print one job in a few words, for a status bar.

    Prints nothing while no job runs.

    tmux: set -g status-right '#(carbontui line)'
    """
    live = [found for found in store.jobs() if found.live and not found.foreign] if job is None else [talk.find(job)]
    if not live:
        return
    talk.warn_lost(live[0])
    status = live[0].status() if job is not None and not live[0].live else talk.live_status(live[0])
    more = f" +{len(live) - 1}" if len(live) > 1 else ""
    if as_json:
        told = {"job": status.job, "state": status.state, "line": words(status) + more, "power_w": status.power_w}
        click.echo(talk.as_json(told))
    else:
        click.echo(words(status) + more)
