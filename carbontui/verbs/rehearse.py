"""`rehearse`: unloads and resumes the running job once, early, to check that this works."""

from __future__ import annotations

import sys
import time

import click

from carbontui import protocol
from carbontui.job import store
from carbontui.text import situation
from carbontui.verbs.support import talk
from carbontui.verbs.support.command import Failure

POLL_S = 0.5


@click.command(short_help="Unload and resume the running job once, to check that it works.")
@click.argument("job", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as one JSON object.")
def rehearse(job: str | None, yes: bool, as_json: bool) -> None:
    """Unload and resume the running job once, to check that it works: steps, loss, seconds, size of the checkpoint.

    Plans unload only a job that has resumed once. If the resume fails, the run starts again without that checkpoint:
    at most ten minutes of work are repeated. Before the first step it waits for one; Ctrl-C then leaves the job as it
    is. Exits with 1 if the resume fails.
    """
    found = talk.find(job)
    if not yes and sys.stdin.isatty():
        step = talk.live_status(found).step
        when = "now" if step else "after its first steps"
        again = f"{f'its {step} steps' if step else 'those'} are repeated if it cannot resume"
        click.confirm(f"Unload {found.name} ({found.id}) {when}, and start it again? {again}", abort=True)
    asked = _begun(found)
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


def _begun(found: store.Job) -> protocol.Result:
    """The supervisor's answer; the order is repeated until a first step has been seen."""
    told = ""
    while True:
        try:
            return _answer(found, {})
        except _NoStepYet:
            status = talk.live_status(found)
            why = f"waiting for its first step; {situation.stated(status)}"
            if why != told:
                told = why
                click.echo(f"carbontui: {why}", err=True)
            time.sleep(POLL_S)


class _NoStepYet(Failure):
    """Refused because no training step has been seen yet."""


def _answer(found: store.Job, args: dict[str, bool]) -> protocol.Result:
    answer = talk.ask(found, protocol.Cmd(1, "rehearse", args))
    if not isinstance(answer, protocol.Result):
        raise Failure("the supervisor is of another version and cannot rehearse", 3)
    if not answer.ok and (answer.data or {}).get("awaits") == "step":
        raise _NoStepYet(answer.error or "no step yet", answer.exit_code or 1)
    if not answer.ok:
        raise Failure(answer.error or "refused", answer.exit_code or 1)
    return answer
