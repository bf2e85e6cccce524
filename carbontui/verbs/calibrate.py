"""`calibrate`: measures the running job's speed at each power limit; exports and imports the resulting curve."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from carbontui.job import store
from carbontui.power.curves import curve, files
from carbontui.text import figures
from carbontui.verbs.support import talk
from carbontui.verbs.support.command import Failure, live_jobs, refused


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
    answer = talk.order(talk.find(job), "calibrate", {"show": True} if show else {})
    click.echo(talk.as_json(answer.data) if as_json else answer.text)


def _export(job: store.Job, target: Path) -> str:

    record = store.read_json(job.dir / "job.json") or {}
    found = files.of_script(files.fingerprint(job.argv, Path(str(record.get("cwd", "/")))))
    if found is None:
        raise Failure("no curve has been measured here for this script yet; measure one: carbontui calibrate", 3)
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
        f"{gpu} x {found.gpus}: {len(found.levels)} levels, joules per step ±{figures.percent(worst)} (boards of one "
        f"model differ by some {figures.percent(curve.BOARD_SE)}); jobs with the same command and script use it"
    )
