"""`backtest` and `evaluate`: what plans and simple rules would have given, on recorded grids."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carbontui import units
from carbontui.commands.support.command import (
    Count,
    Failure,
    WithUnit,
    assumptions,
    patience_option,
    price_option,
    refused,
    weight_option,
    zone_keys,
)
from carbontui.commands.support.run_values import settings_for
from carbontui.config import PATIENCE_PCT
from carbontui.grid import choose, recorded, tariff, zones
from carbontui.job.terms import budget as budgets
from carbontui.system import streams
from carbontui.text import figures

if TYPE_CHECKING:
    from carbontui.assumed.job import Grid
    from carbontui.extensions.evaluation.run import BacktestReport, PlannedPrices
    from carbontui.plan.problem import Weight


lateness_option = click.option(
    "--lateness",
    type=WithUnit(lambda text: None if text == "provider" else units.parse_duration(text)),
    default="provider",
    metavar="DURATION",
    help="How late intensities are known; `provider`, the default: as late as the zone's source.",
)


def _factor(text: str) -> float:
    """'2x' or '2'."""
    given = budgets.parse(f"{text.strip().rstrip('xX')}x", 0.0).value
    if given > 100:
        raise ValueError(f"{text!r} is more than 100x")
    return given


@click.command()
@click.option("--actual", required=True, help="Realised intensity: CSV time_utc,carbon_g_per_kwh (or value).")
@click.option(
    "--zone", shell_complete=zone_keys, help="Zone of --actual: its values are as late as of that zone's source."
)
@click.option("--issued", help="Published forecasts: CSV issue_utc,target_utc,forecast.")
@click.option("--work", default="8h", show_default=True, help="Work of each job at full speed.")
@click.option(
    "--budget", "--slack", "slack", type=WithUnit(_factor), default=2.0, help="Each job's budget (default 2x)."
)
@click.option("--starts", type=Count(1, 100_000), default=200, show_default=True, help="Random starts.")
@click.option("--seed", type=Count(0), default=1, show_default=True, help="Seed of the random starts.")
@click.option("--levels", "levels_file", help="Levels and switches as JSON (problem format without slots and work).")
@click.option("--watts", type=WithUnit(units.parse_watts), default=650.0, show_default=True, help="At full.")
@assumptions
@price_option
@click.option(
    "--objective", type=click.Choice(["carbon", "cost"]), default="carbon", show_default=True, help="Plan for."
)
@weight_option
@click.option("--own/--no-own", default=True, help="Roll on carbontui's own forecast too (needs 60 days of history).")
@lateness_option
@patience_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def backtest(
    actual: str,
    issued: str | None,
    work: str,
    slack: float,
    starts: int,
    seed: int,
    price_file: str | None,
    objective: str,
    weight: Weight | None,
    own: bool,
    as_json: bool,
    **other: Any,
) -> None:
    """Compare running now, threshold tools and rolling plans on recorded grid data, with the knowledge of the time."""
    from carbontui.assumed.job import Grid, stated
    from carbontui.extensions.evaluation.issued import load_issues
    from carbontui.extensions.evaluation.run import run

    def said(done: int) -> None:
        streams.over_itself(f"{done} of {starts}")

    with refused():
        given_s, zone = other.pop("lateness"), other.pop("zone")
        usual_s, source = choose.lateness(zones.resolve(zone).key if zone else "")
        grid = Grid(recorded.load(actual), usual_s if given_s is None else given_s)
        issues = load_issues(issued) if issued else None
        prices = _prices(price_file, objective, weight, grid)
        patience_pct = settings_for(patience=other.pop("patience")).settings.patience
        job = replace(stated(**other, caps=False), patience_pct=patience_pct)
        work_s = units.parse_duration(work)
        report = run(grid, job, work_s, slack, starts, seed, issues, own, prices=prices, progress=said)
        streams.over_itself("")
        report.about["lateness_from"] = source if given_s is None else "given"
    if as_json:
        click.echo(json.dumps(report.to_dict(), allow_nan=False))
    else:
        _summary(report)


def _prices(path: str | None, objective: str, weight: Weight | None, grid: Grid) -> PlannedPrices | None:
    """The prices of a backtest, and how they count. Raises ValueError or Failure."""
    from carbontui.assumed.job import Grid
    from carbontui.extensions.evaluation.run import PlannedPrices

    if path is None:
        if objective == "cost" or weight:
            raise Failure("cost needs prices: add --price FILE (time_utc,price_usd_per_mwh, or a tariff)", 2)
        return None
    if objective == "cost" and weight:
        raise Failure("--objective cost and --weight exclude each other: give one", 2)
    series, known = tariff.prices(path, grid.start_s, grid.end_s)
    return PlannedPrices(Grid(series), series.currency or "", objective == "cost", weight, known)


def _summary(report: BacktestReport) -> None:
    console = streams.console()
    about = report.about
    head = ["policy", "saves", "of what is possible", "late", "made worse", "worst"]
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
    of = {"gco2": "CO2", "cost": f"cost ({about.get('currency')})", "objective": "all that is weighed"}[report.measure]
    source = about["lateness_from"]
    why = {"given": "as given", "": "assumed: no --zone"}.get(source, f"as {source} usually is")
    late = f"values are known {figures.duration(about['lateness_s'])} late ({why})"
    text = f"From: {about['grid']}; {of} against running now, realised; {late}."
    console.print(text, style="dim", markup=False, soft_wrap=True)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer jobs: a minute on two idle cores instead of twenty.")
@click.option("--seed", type=Count(0), default=1, show_default=True, help="Seed of the starts.")
@click.option("--seeds", type=Count(1, 100), help="So many seeds from that one on: 3, with --quick 1.")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for what is written."
)
@lateness_option
@patience_option
def evaluate(
    quick: bool, seed: int, seeds: int | None, out: Path, lateness: float | None, patience: str | None
) -> None:
    """Weigh plans on recorded grids that ship: evaluation.json, evaluation.md and two pictures go to --out."""
    from carbontui.extensions.evaluation import evaluation, evaluation_report

    with refused(f"--out: {out}: ", OSError):
        out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    usual = evaluation.QUICK if quick else evaluation.EvaluationScope()
    patience_pct = settings_for(patience=patience or f"{PATIENCE_PCT}").settings.patience
    scope = replace(usual, lateness_s=lateness, seeds=seeds or usual.seeds, patience_pct=patience_pct)
    found = evaluation.evaluation(scope, seed, lambda done, of: streams.over_itself(f"{done} of {of} starts"))
    streams.over_itself("")
    found |= {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {sys.version.split()[0]}",
        "took_s": round(time.monotonic() - begun, 1),
        "command": f"carbontui evaluate {'--quick ' if quick else ''}--seed {seed} --out DIR"
        + ("" if seeds is None else f" --seeds {seeds}")
        + ("" if lateness is None else f" --lateness {lateness:g}s")
        + ("" if patience is None else f" --patience {scope.patience_pct:g}"),
        "out": str(out),
    }
    drawn = evaluation_report.pictures(found)
    text = evaluation_report.markdown(found, drawn, cpu_s=sum(os.times()[:4]))
    files = {**drawn, "evaluation.json": json.dumps(found, allow_nan=False), "evaluation.md": text}
    with refused(f"--out: {out}: ", OSError):
        for name, content in files.items():
            (out / name).write_text(content, encoding="utf-8")
    click.echo(str(out / "evaluation.md"))
