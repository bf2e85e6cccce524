"""`calibrate`: measures the running job's speed at each power limit; exports and imports the resulting curve."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from carbontui import protocol
from carbontui.job import store
from carbontui.text import figures
from carbontui.verbs.support import talk
from carbontui.verbs.support.command import Failure, live_jobs


@click.command(short_help="Measure speed against watts on the running job.")
@click.argument("job", required=False, shell_complete=live_jobs)
@click.option("--show", is_flag=True, help="Print the curve in use; start nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --show: the curve as one JSON object.")
@click.option("--export", "target", type=click.Path(path_type=Path), help="Write the job's curve to this file.")
@click.option("--import", "source", type=click.Path(path_type=Path), help="Use this file's curve for the same script.")
def calibrate(job: str | None, show: bool, as_json: bool, target: Path | None, source: Path | None) -> None:
    """Measure speed against watts on the running job (5 to 15 minutes; limits are restored).

    A curve that was measured can be carried to other machines with boards of the same model: --export there, --import
    here. Jobs with the same command and script then plan with it, counting the difference between boards as an error.
    """
    if (show, target is not None, source is not None).count(True) > 1:
        raise Failure("--show, --export and --import exclude each other: give one", 2)
    if as_json and not show:
        raise Failure("--json needs --show: carbontui calibrate --show --json", 2)
    if source is not None:
        if job is not None:
            raise Failure("--import applies to every job with that script: leave out the job", 2)
        click.echo(_import(source))
        return
    if target is not None:
        click.echo(_export(talk.find(job), target))
        return
    answer = talk.ask(talk.find(job), protocol.Cmd(1, "calibrate", {"show": True} if show else {}))
    if not isinstance(answer, protocol.Result) or not answer.ok:
        error = answer.error if isinstance(answer, protocol.Result) else None
        raise Failure(error or "refused", getattr(answer, "exit_code", 0) or 1)
    if as_json and answer.data is None:
        raise Failure("the supervisor is of another version and sends no data; leave out --json to see the curve", 3)
    click.echo(talk.as_json(answer.data) if as_json else answer.text)


def _export(job: store.Job, target: Path) -> str:
    from carbontui.power.curves import files

    record = store.read_json(job.dir / "job.json") or {}
    found = files.of_script(files.fingerprint(job.argv, Path(str(record.get("cwd", "/")))))
    if found is None:
        raise Failure("no curve has been measured here for this script yet; measure one: carbontui calibrate", 3)
    try:
        target.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    except OSError as error:
        raise Failure(f"{target} cannot be written ({error.strerror})", 1) from None
    return f"{target}: {found.gpu} x {found.gpus}, {len(found.levels)} levels"


def _import(source: Path) -> str:
    from carbontui.power.curves import curve, files

    try:
        found = files.read(source)
    except OSError as error:
        raise Failure(f"{source} cannot be read ({error.strerror})", 2) from None
    except ValueError as error:
        raise Failure(f"{source}: {error}", 2) from None
    try:
        files.save(found)
    except OSError as error:
        raise Failure(f"not imported: {error.strerror or error}", 1) from None
    gpu = "".join(letter if letter.isprintable() else "?" for letter in found.gpu)
    worst = max(curve.energy_error(found, point.cap_w) for point in found.levels)
    return (
        f"{gpu} x {found.gpus}: {len(found.levels)} levels, joules per step ±{figures.percent(worst)} (boards of one "
        f"model differ by some {figures.percent(curve.BOARD_SE)}); jobs with the same command and script use it"
    )
