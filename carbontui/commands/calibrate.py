"""`learn`: what is learned of a running job, its speed by watts (`calibrate`), whether it resumes after an unload
(`rehearse`), and its total (`guess`)."""

import sys
import time
from pathlib import Path

import click
import msgspec

from carbontui import protocol
from carbontui.commands.override import guess
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, live_jobs, refused
from carbontui.job.files import store
from carbontui.job.terms import records
from carbontui.power.curves import curve, files
from carbontui.text import figures, situation


@click.command()
@click.argument("job", required=False, shell_complete=live_jobs)
@click.option("--show", is_flag=True, help="Print the curve in use; start nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --show: the curve as one JSON object.")
@click.option("--export", "target", type=click.Path(path_type=Path), help="Write the job's curve to this file.")
@click.option("--import", "source", type=click.Path(path_type=Path), help="Use this file's curve for the same script.")
def calibrate(job: str | None, show: bool, as_json: bool, target: Path | None, source: Path | None) -> None:
    """Measure speed against watts on the running job (5 to 15 minutes; limits are restored).

    A curve that was measured can be carried to other machines with GPUs of the same model: --export there, --import
    here. Jobs with the same command and script then plan with it, counting the difference between GPUs as an error.
    """
    if (show, target is not None, source is not None).count(True) > 1:
        raise Failure("--show, --export and --import exclude each other: give one", 2)
    if as_json and not show:
        raise Failure("--json needs --show: carbontui learn speed --show --json", 2)
    if source is not None:
        if job is not None:
            raise Failure("--import applies to every job with that script: leave out the job", 2)
        click.echo(_import(source))
        return
    if target is not None:
        click.echo(_export(talk.find(job), target))
        return
    answer = talk.order(talk.find(job), "calibrate", {"show": True} if show else {})
    click.echo(talk.as_json(answer.data) if as_json else talk.answer_text(answer))


def _export(job: store.Job, target: Path) -> str:

    record = records.read_json(job.dir / "job.json") or {}
    found = files.of_script(files.fingerprint(job.argv, Path(str(record.get("cwd", "/")))))
    if found is None:
        raise Failure("no curve has been measured here for this script yet; measure one: carbontui learn speed", 3)
    with refused(f"{target} cannot be written: ", OSError, code=1):
        target.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return f"{target}: {found.gpu} x {found.gpus}, {len(found.levels)} levels"


def _import(source: Path) -> str:

    with refused(f"{source}: ", (OSError, ValueError)):
        found = files.read(source)
    with refused("not imported: ", OSError, code=1):
        files.save(found)
    gpu = "".join(letter if letter.isprintable() else "?" for letter in found.gpu)
    worst = max(curve.energy_error(found, point.cap_w) for point in found.levels)
    return (
        f"{gpu} x {found.gpus}: {len(found.levels)} levels, joules per step ±{figures.percent(worst)} (GPUs of one "
        f"model differ by some {figures.percent(curve.BOARD_SE)}); jobs with the same command and script use it"
    )


POLL_S = 0.5


@click.command()
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
        click.echo(talk.answer_text(asked))
    told = ""
    while True:
        time.sleep(POLL_S)
        shown = talk.order(found, "rehearse", {"show": True})
        data = shown.data or {}
        if data.get("phase") == "none":
            break
        if shown.text != told and not as_json:
            told = shown.text
            click.echo(told)
    click.echo(talk.as_json(data) if as_json else data.get("verdict") or shown.text)
    if not data.get("held"):
        sys.exit(1)


def _begun(job: store.Job) -> protocol.Result:
    """The supervisor's answer; the order is repeated until a first step has been seen."""
    told = ""
    while True:
        answer = talk.ask(job, protocol.Cmd(1, "rehearse", {}), protocol.Result)
        if (answer.data or {}).get("awaits") != "step":
            return talk.accepted(answer)
        why = f"waiting for its first step; {situation.stated(talk.live_status(job))}"
        if why != told:
            told = why
            click.echo(f"carbontui: {why}", err=True)
        time.sleep(POLL_S)


@click.group()
def learn() -> None:
    """Learn of a running job: its speed by watts, its total of steps, or whether an unload resumes."""


for form, command in (("speed", calibrate), ("total", guess), ("unload", rehearse)):
    learn.add_command(command, form)
