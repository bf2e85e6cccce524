"""`restart`: start a job again whose processes are gone, after a reboot or the loss of its keeper."""

from __future__ import annotations

import click

from carbontui.verbs import talk
from carbontui.verbs.completion import any_jobs
from carbontui.verbs.failure import Failure


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
def restart(job: str | None) -> None:
    """Go on with a job whose processes are gone, as after a reboot."""
    from carbontui.job import launch
    from carbontui.job import restart as restarting

    found = talk.find(job)
    try:
        restarting.restart(found)
    except launch.LaunchError as error:
        raise Failure(str(error), 3 if found.exit is not None else 1) from None
    fresh = talk.live_status(talk.find(found.id))
    click.echo(f"job {found.id} {fresh.state}: {fresh.reason.text}")
