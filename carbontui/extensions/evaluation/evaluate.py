"""`evaluate`: plans against simple rules on data that anybody has; the same figures for the same seed."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path

import click

from carbontui.commands.support.command import Count, refused
from carbontui.system import streams


@click.command()
@click.option("--quick", is_flag=True, help="Fewer jobs: three minutes on two cores instead of thirty.")
@click.option("--seed", type=Count(0), default=1, show_default=True, help="Seed of the grids and starts.")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for what is written."
)
def evaluate(quick: bool, seed: int, out: Path) -> None:
    """Write evaluation.json, evaluation.md, two pictures and the grids to --out. No key and no network are needed."""
    from carbontui.extensions.evaluation import evaluation, evaluation_report

    with refused(f"--out: {out}: ", OSError):
        out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def progress(done: int, of: int) -> None:
        streams.over_itself(f"{done} of {of} zones")

    found = evaluation.evaluation(evaluation.QUICK if quick else evaluation.EvaluationScope(), seed, progress)
    streams.over_itself("")
    grids = found.pop("csv")
    found |= {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {sys.version.split()[0]}",
        "took_s": round(time.monotonic() - begun, 1),
        "command": f"carbontui evaluate {'--quick ' if quick else ''}--seed {seed} --out DIR",
        "out": str(out),
    }
    drawn = evaluation_report.pictures(found)
    text = evaluation_report.markdown(found, drawn, cpu_s=sum(os.times()[:4]))
    files = {**grids, **drawn, "evaluation.json": json.dumps(found, allow_nan=False), "evaluation.md": text}
    with refused(f"--out: {out}: ", OSError):
        for name, content in files.items():
            (out / name).write_text(content, encoding="utf-8")
    click.echo(str(out / "evaluation.md"))
