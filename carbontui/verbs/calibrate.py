"""`calibrate`: measure the speed of the running job at each power limit, on the job itself."""

from __future__ import annotations

import click

from carbontui import protocol
from carbontui.verbs import talk
from carbontui.verbs.failure import Failure


@click.command(short_help="Measure speed against watts on the running job.")
@click.argument("job", required=False)
@click.option("--show", is_flag=True, help="Print the curve that is in use, start nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --show: the curve as one JSON object.")
def calibrate(job: str | None, show: bool, as_json: bool) -> None:
    """Measure speed against watts on the running job (5 to 15 minutes; limits are restored)."""
    if as_json and not show:
        raise Failure("--json is for the curve: calibrate --show --json", 2)
    answer = talk.ask(talk.find(job), protocol.Cmd(1, "calibrate", {"show": True} if show else {}))
    if not isinstance(answer, protocol.Result) or not answer.ok:
        error = answer.error if isinstance(answer, protocol.Result) else None
        raise Failure(error or "refused", getattr(answer, "exit_code", 0) or 1)
    if as_json and answer.data is None:
        raise Failure("the supervisor is of another version and sends no data; leave out --json to see the curve", 3)
    click.echo(talk.as_json(answer.data) if as_json else answer.text)
