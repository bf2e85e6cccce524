"""`restart`: resumes a job whose processes are gone, after a reboot or the loss of its keeper."""

from __future__ import annotations

import click

from carbontui.job import store
from carbontui.system import proc
from carbontui.text import situation
from carbontui.verbs import talk
from carbontui.verbs.completion import any_jobs
from carbontui.verbs.failure import Failure


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--after-reboot", "every", is_flag=True, help="Every job on this machine that a reboot has ended.")
def restart(job: str | None, every: bool) -> None:
    """Resume a job whose processes are gone, as after a reboot."""
    if not every:
        _restart(talk.find(job))
        return
    if job is not None:
        raise Failure("restart JOB, or restart --after-reboot for all of them", 2)
    ended = [found for found in store.jobs() if found.restart_command and found.boot != proc.boot_id()]
    failed = 0
    for found in (found for found in ended if not found.foreign):
        try:
            _restart(found)
        except Failure as error:
            failed += 1
            error.show()
    if not ended:
        click.echo("no job was ended by a reboot")
    if failed:
        raise SystemExit(1)


def _restart(found: store.Job) -> None:
    from carbontui.job import launch
    from carbontui.job import restart as restarting

    try:
        restarting.restart(found)
    except launch.LaunchError as error:
        raise Failure(str(error), 3 if found.exit is not None else 1) from None
    fresh = talk.live_status(talk.find(found.id))
    click.echo(f"job {found.id} {situation.stated(fresh)}")
