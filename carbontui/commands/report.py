"""Verbs that report on a job: report, explain, history. They only read."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from carbontui import hooks, units
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, any_jobs, refused
from carbontui.grid.http import GridError
from carbontui.job.files import runlog, store
from carbontui.job.terms import spec
from carbontui.job.terms.clock import Clock
from carbontui.reports import export, figures, formats, run_text, story, totals
from carbontui.system import streams
from carbontui.text import figures as form


def _load(wanted: str | None) -> story.RunStory:
    """The story of the job meant. Raises Failure."""
    found = talk.live_or_last(wanted)
    talk.warn_lost(found)
    with refused("", story.NoStory, code=3):
        return story.build(found, status=talk.live_status(found))


def _revise(job: store.Job) -> None:
    """Update a finished job's account with the grid source's revised values, and say on stderr what changed."""
    from carbontui.job.supervisor.record import afterwards
    from carbontui.job.supervisor.shell.grid import open_feed

    if (known := job.life.state) == "unknown":
        raise talk.unknown(job, 2)
    if known == "alive":
        where = "is running: revisions are applied as they come"
        raise Failure(f"job {job.id} {where}; --revise is for jobs of this machine that are over", 2)
    unrevised = f"job {job.id} cannot be revised, its account stays as it was: "
    with refused(unrevised, (GridError, OSError, ValueError, sqlite3.Error), code=1):
        options = spec.load(job.dir)
        feed = open_feed(options, Clock(), lambda line: click.echo(f"carbontui: {line}", err=True))
        told = asyncio.run(afterwards.rebook(job, options, feed))
    click.echo(f"carbontui: {told.words}", err=True)


def _write(path: str, text: str) -> None:
    if path == "-":
        click.echo(text, nl=False)
        return
    with refused(f"{path}: ", OSError, code=1):
        Path(path).write_text(units.printable(text, streams.LAYOUT), encoding="utf-8")


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--html", metavar="FILE", help="One self-contained page ('-': to stdout).")
@click.option("--md", "as_md", is_flag=True, help="As Markdown.")
@click.option("--csv", "table", metavar="FILE", help="A row per time slot ('-': to stdout).")
@click.option("--json", "as_json", is_flag=True, help="All figures as JSON.")
@click.option("--codecarbon", "emissions", metavar="FILE", help="Add a row to an emissions.csv ('-': to stdout).")
@click.option(
    "--model-card", metavar="FILE", help="Its co2_eq_emissions for a Hugging Face model card ('-': to stdout)."
)
@click.option("--training-type", metavar="T", help="With --model-card, like pre-training or fine-tuning.")
@click.option("--sci", metavar="FILE", help="Its Software Carbon Intensity, ISO/IEC 21031 ('-': to stdout).")
@click.option("--per", type=click.Choice(get_args(export.Per)), default="step", show_default=True, help="With --sci.")
@click.option("--annex-xi", metavar="FILE", help="Time, energy and compute for the EU AI Act ('-': to stdout).")
@click.option("--revise", is_flag=True, help="For a finished job: first apply the grid source's revised values.")
@click.option("--methods", is_flag=True, help="A sentence to cite, a paragraph for a paper, and what it ran on.")
@click.option("--explain", "told_why", is_flag=True, help="What it did, and why, in a few sentences.")
@click.option("--all", "every", is_flag=True, help="All jobs of this machine, summed up.")
@click.option("--by", type=click.Choice(get_args(totals.By)), default="month", show_default=True, help="With --all.")
def report(job: str | None, **given: Any) -> None:
    """Report a run: energy, CO2, and what saved it."""
    invoke = click.get_current_context().invoke
    if given["told_why"] and given["every"]:
        raise Failure("--explain and --all exclude each other: give one", 2)
    if given["told_why"]:
        invoke(explain, job=job)
    elif given["every"]:
        invoke(history, by=given["by"], as_json=given["as_json"])
    else:
        _report(job, given)


def _report(job: str | None, asked: dict[str, Any]) -> None:
    """A report, or what is exported of it; `asked`: the options of `report` by name."""
    if asked["revise"]:
        _revise(talk.live_or_last(job))
    told = _load(job)
    if asked["training_type"] is not None and asked["model_card"] is None:
        raise Failure("--training-type belongs to --model-card FILE", 2)
    exports: tuple[tuple[str | None, Callable[[story.RunStory], str]], ...] = (
        (asked["html"], formats.html),
        (asked["table"], formats.table),
        (asked["model_card"], lambda run: export.model_card(run, asked["training_type"])),
        (asked["sci"], lambda run: export.sci(run, asked["per"])),
        (asked["annex_xi"], export.annex_xi),
    )
    for path, written in exports:
        if path is not None:
            _write(path, written(told))
    if asked["emissions"] is not None:
        _emissions(asked["emissions"], told)
    if asked["as_json"]:
        click.echo(talk.as_json(formats.numbers(told)))
    elif asked["methods"]:
        click.echo(f"{run_text.citation(told)}\n\n{run_text.methods(told)}\n")
        click.echo("\n".join(f"{what}: {value}" for what, value in run_text.origin(told)))
    elif asked["as_md"]:
        click.echo(formats.markdown(told), nl=False)
    elif not asked["emissions"] and not any(path for path, _ in exports):
        _print(told)


def _emissions(path: str, run: story.RunStory) -> None:
    if path == "-":
        _write(path, export.codecarbon(run))
        return
    with refused("", export.NotThatFile), refused(f"{path}: ", OSError, code=1):
        export.append(Path(path), run)


def _print(run: story.RunStory) -> None:
    click.echo("\n".join([*run_text.story_of(run), ""]))
    for figure in figures.figures(run):
        rests = f"  [{figure.rests_on}]" if figure.rests_on else ""
        click.echo(f"{figure.label:<20} {figure.value}{rests}")
    for label, value in run_text.first_said(run):
        click.echo(f"{label:<20} {value}")
    if run.over and (waiting := dict(run.grid_kinds).get("forecast")):
        click.echo(
            f"\n{form.percent(waiting)} of its energy is based on forecasts; "
            f"update: carbontui report {run.status.job} --revise"
        )
    if parts := figures.parts(run):
        click.echo("\nCO2 saved by")
        for figure in parts:
            click.echo(f"{figure.label:<32} {figure.value:>22}")


@click.command(hidden=True)
@click.argument("job", required=False, shell_complete=any_jobs)
@hooks.decorated("explain_options")
def explain(job: str | None, **given: object) -> None:
    """Say in a few sentences what a run did, and why."""
    told = _load(job)
    click.echo("\n".join(run_text.story_of(told)))
    if error := _last_error(told):
        click.echo(f"Its last error: {error} (all of it: carbontui log {told.status.job})")
    click.echo()
    for line in run_text.decisions(told):
        click.echo(line)
    for _, say in hooks.offered("explain", own_only=True):
        say(told, **given)


def _last_error(run: story.RunStory) -> str:
    """The last line of the traceback of a failed run; '' where it wrote none."""
    if run.status.state != "failed":
        return ""
    from carbontui.tui.model.loglines import error_in

    log, err = Path(run.options.log), Path(run.options.err) if run.options.err else None
    return units.printable(error_in(lambda ask: runlog.read(log, ask, err)))


@click.command(hidden=True)
@click.argument("job", required=False, shell_complete=any_jobs)
def receipt(job: str | None) -> None:
    """An older name of `report`."""
    click.get_current_context().invoke(report, job=job)


@click.command(hidden=True)
@click.option("--by", type=click.Choice(["month", "project", "board"]), default="month", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def history(by: totals.By, as_json: bool) -> None:
    """Sum up all jobs of this machine."""
    jobs = [job for job in store.jobs() if not job.foreign]
    groups = totals.grouped([(job.status(), units.iso(job.started_s)[:10]) for job in jobs], by)
    if as_json:
        click.echo(talk.as_json([msgspec.to_builtins(total._asdict()) for total in groups]))
        return
    if not groups:
        click.echo("no jobs yet")
        return
    rows = [[by, "jobs", "energy", "CO2", "avoided"], *[totals.row(total) for total in groups]]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for cells in rows:
        rest = "  ".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        click.echo(f"{cells[0]:<{widths[0]}}  {rest}".rstrip())
    real = [total for total in groups if total.name != totals.NOT_REAL]
    if besides := sum(total.excluded_wall_kwh for total in real):
        click.echo(f"besides, for tries, estimates and calibrations: {form.kwh(besides)}")
