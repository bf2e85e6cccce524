"""`submit`: submits a batch script to Slurm to start in clean hours. No daemon: Slurm holds and starts it."""

from __future__ import annotations

import json
import math
import os
import shlex
import time
from collections.abc import Iterator

import click

from carbontui import units
from carbontui.account.best_start import STEP_S, StartWindow, best_start
from carbontui.job import budget as budgets
from carbontui.slurm import commands
from carbontui.text import figures
from carbontui.verbs.support import grid_data as ahead_of
from carbontui.verbs.support.command import Failure, refused
from carbontui.verbs.support.run_values import power

AHEAD_MOST_S = 14 * 86400.0
AT_ONCE_S = 60.0
"""A start closer than this is submitted without --begin: Slurm itself may take a minute to start a job."""


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Submit a Slurm script to start in clean hours.",
)
@click.option("--work", required=True, help="How long it runs, like 8h.")
@click.option("--budget", default="2x", show_default=True, help='When it must be done: 1.8x, 18h or "fri 09:00".')
@click.option("--zone", help="Grid zone of the cluster, like DE.")
@click.option("--grid", "grid_file", type=click.Path(exists=True, dir_okay=False), help="Recorded grid CSV instead.")
@click.option("--watts", help="Watts it draws while it runs, on all its nodes, like 2.8kW, for `carbontui fleet`.")
@click.option("--strict", is_flag=True, help="Have Slurm remove or end it at the deadline (sbatch --deadline).")
@click.option("--dry-run", is_flag=True, help="Print what would be submitted, and submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def submit(
    work: str,
    budget: str,
    zone: str | None,
    grid_file: str | None,
    watts: str | None,
    strict: bool,
    dry_run: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """Submit a batch script: carbontui submit --budget 2x --work 8h -- --array=1-10 job.sh

    Everything after -- goes to sbatch. The job starts in the cleanest hours that the budget leaves, or later if the
    queue is busy. A script that uses `carbontui run` gets the deadline as its budget.
    """
    if not arguments:
        raise Failure("submit needs a script: carbontui submit --work 8h -- job.sh", 2)
    now = time.time()
    with refused():
        work_s = units.parse_duration(work)
        if work_s <= 0:
            raise ValueError(f"--work {work!r}: must be longer than zero")
        deadline = budgets.parse(budget, now).deadline_s(now, work_s)
    assert deadline is not None
    window, source = _window(zone, grid_file, now, work_s, deadline)
    wait_s = window.begin_s - now
    options = ["sbatch", "--parsable"]
    if wait_s >= AT_ONCE_S:
        options.append(f"--begin=now+{math.ceil(wait_s)}seconds")  # relative: no time zone to get wrong
    if strict:
        options.append(f"--deadline=now+{math.ceil(deadline - now)}seconds")
    noted = {
        "begin": units.iso(window.begin_s),
        "deadline": units.iso(deadline),
        "mean_g_per_kwh": round(window.mean_g, 1),
        "now_g_per_kwh": round(window.now_g, 1),
        "work_s": round(work_s),
    }
    if watts:
        noted["watts"] = power(watts, "--watts")
    options.append(f"--comment=carbontui:{json.dumps(noted)}")
    command = [*options, *arguments]
    job = ""
    if not dry_run:
        os.environ.setdefault("CARBONTUI_BUDGET", units.iso(deadline))
        with refused("", commands.SlurmError, code=1):
            job = commands.submitted(command)
    if as_json:
        click.echo(json.dumps({"job": job or None, **noted, "saved": round(window.saved, 4), "source": source}))
        return
    click.echo(f"submitted batch job {job}" if job else shlex.join(command))
    for line in _words(window, now, work_s, deadline, source, strict=strict):
        click.echo(line)


def _window(
    zone: str | None, grid_file: str | None, now: float, work_s: float, deadline_s: float
) -> tuple[StartWindow, str]:
    """The chosen start, and where the intensities come from. Raises Failure."""
    ahead = min(AHEAD_MOST_S, max(deadline_s - now, work_s) + STEP_S)
    start = now // STEP_S * STEP_S
    mean, start, source = ahead_of.intensity(zone, grid_file, start, ahead, STEP_S)
    found = best_start(mean, start, STEP_S, now_s=now, work_s=work_s, deadline_s=deadline_s)
    if found is None:
        raise Failure(f"no grid data until then ({source}); submit it with sbatch", 3)
    return found, source


def _words(
    window: StartWindow, now: float, work_s: float, deadline_s: float, source: str, *, strict: bool
) -> Iterator[str]:
    """Why it begins then, and what that saves."""
    here = figures.clock
    span = f"{here(window.begin_s, now)} to {here(window.begin_s + work_s, now)}"
    late = deadline_s - now < work_s - 1.0
    if window.begin_s - now < AT_ONCE_S:
        why = "no slack is left" if window.latest_s - now < AT_ONCE_S else "no later start is cleaner"
        yield f"begins as soon as it can: {why} ({window.now_g:.0f} g/kWh, {source})"
    else:
        yield (
            f"begins {figures.named_clock(window.begin_s, now)}: {span} has {window.mean_g:.0f} g/kWh on average, "
            f"a start now {window.now_g:.0f}: {figures.percent(window.saved)} less CO2 ({source})"
        )
    end = figures.named_clock(deadline_s, now)
    if late:
        yield f"the budget ends {end}, before the work can: it will be late whenever it starts"
    elif strict:
        yield f"Slurm removes it if it cannot end by {end}, and ends it then"
    else:
        yield f"to be done by {end}; where the queue is busy it starts later, and is not removed (--strict: it is)"
