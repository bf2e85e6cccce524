"""`rehearse`: unload and resume the running job once, early, to see whether that holds."""

from __future__ import annotations

import sys
import time

import click

from carbontui import protocol
from carbontui.job import store
from carbontui.verbs import talk
from carbontui.verbs.failure import Failure

POLL_S = 0.5


@click.command(short_help="Unload and resume the running job once, to see whether it holds.")
@click.argument("job", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as one JSON object.")
def rehearse(job: str | None, yes: bool, as_json: bool) -> None:
    """Unload and resume the running job once, to see whether it holds: steps, loss, seconds, size of the checkpoint.

    Only a job that has come back once is ever unloaded by a plan. Where the resume fails the run begins again, without
    that checkpoint: at most ten minutes of work are done twice. Exits with 1 where it does not hold.
    """
    found = talk.find(job)
    if not yes and sys.stdin.isatty():
        step = talk.live_status(found).step
        again = f"its {step} steps are done again where it cannot come back"
        click.confirm(f"Unload {found.name} ({found.id}) now, and start it again? {again}", abort=True)
    asked = _answer(found, {})
    if not as_json:
        click.echo(asked.text)
    told = ""
    while True:
        time.sleep(POLL_S)
        shown = _answer(found, {"show": True})
        data = shown.data or {}
        if data.get("phase") == "none":
            break
        if shown.text != told and not as_json:
            told = shown.text
            click.echo(told)
    click.echo(talk.as_json(data) if as_json else data.get("verdict") or shown.text)
    if not data.get("held"):
        sys.exit(1)


def _answer(found: store.Job, args: dict[str, bool]) -> protocol.Result:
    answer = talk.ask(found, protocol.Cmd(1, "rehearse", args))
    if not isinstance(answer, protocol.Result):
        raise Failure("the supervisor is of another version and cannot rehearse", 3)
    if not answer.ok:
        raise Failure(answer.error or "refused", answer.exit_code or 1)
    return answer
