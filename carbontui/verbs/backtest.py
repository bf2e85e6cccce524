"""`backtest`: what each policy would have emitted on recorded grid data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from carbontui import units
from carbontui.grid import recorded
from carbontui.text import figures
from carbontui.verbs.support import streams
from carbontui.verbs.support.command import Finite, refused

if TYPE_CHECKING:
    from carbontui.backtest.run import BacktestReport


@click.command(short_help="What plans would have saved on recorded grid data.")
@click.option("--actual", required=True, help="Realised intensity: CSV time_utc,carbon_g_per_kwh (or value).")
@click.option("--issued", help="Published forecasts: CSV issue_utc,target_utc,forecast.")
@click.option("--work", default="8h", show_default=True, help="Work of each job at full speed.")
@click.option("--slack", type=Finite(1, 100), default=2.0, show_default=True, help="Budget divided by work.")
@click.option("--starts", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Random starts.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random starts.")
@click.option("--levels", "levels_file", help="Levels and switches as JSON (problem format without slots and work).")
@click.option("--watts", type=Finite(1, 1e6), default=650.0, show_default=True, help="At full.")
@click.option("--own/--no-own", default=True, help="Roll on carbontui's own forecast too (needs 60 days of history).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def backtest(
    actual: str,
    issued: str | None,
    work: str,
    slack: float,
    starts: int,
    seed: int,
    levels_file: str | None,
    watts: float,
    own: bool,
    as_json: bool,
) -> None:
    """Compare run-now, threshold tools and rolling plans on recorded grid data, with the knowledge of the time."""
    from carbontui.backtest.assumed_job import Grid, assumed, load_job
    from carbontui.backtest.issued import load_issues
    from carbontui.backtest.run import run

    def progress(done: int) -> None:
        streams.over_itself(f"{done} of {starts}")
        if done == starts:
            streams.over_itself("")

    with refused():
        grid = Grid(recorded.load(actual))
        issues = load_issues(issued) if issued else None
        job = load_job(levels_file) if levels_file else assumed(watts, caps=False, running=False)
        report = run(
            grid, job, units.parse_duration(work), slack, starts, seed=seed, issues=issues, own=own, progress=progress
        )
    if as_json:
        click.echo(json.dumps(report.to_dict(), allow_nan=False))
    else:
        _show(report)


def _show(report: BacktestReport) -> None:
    console = streams.console()
    about = report.about
    head = ("policy", "saves", "of what is possible", "late", "made worse", "worst")
    rows = []
    for name, row in report.summary().items():
        share = {key: (value or 0.0) / 100 for key, value in row.items()}
        rows.append(
            (
                name,
                figures.percent(share["saving_pct"], 1),
                "–" if row["captured_pct"] is None else figures.percent(share["captured_pct"]),
                f"{row['late']:.0f}",
                figures.percent(share["worse_pct"]),
                figures.signed(share["worst_pct"], figures.percent),
            )
        )
    title = f"{len(report.cases)} jobs of {figures.duration(about['work_s'])}, {about['slack']:g}x budget"
    console.print(streams.table(title, head, rows))
    console.print(
        f"From: {about['grid']}; CO2 against running now, realised.", style="dim", markup=False, soft_wrap=True
    )
