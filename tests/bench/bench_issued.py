"""The evaluation on zones of which forecasts were published, July to December 2021. Run by hand:

    python tests/bench/bench_issued.py DATA|ZONE=ACTUAL.csv[,ISSUED.csv] ... [--starts 6] [--seed 1] [--out FILE.md]

DATA is a folder with `ZONE_ci-direct-prod_2021.csv.gz` and `ZONE_ci-direct-forecast96h_2021H2.csv.gz` of the four zones
(CarbonCast, Apache-2.0); one that is absent is left out. Any other hourly grid can be named, with its published
forecasts or without. A job starts at any hour, whenever the last forecast was issued; stamps are taken as they are.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

from carbontui.extensions.evaluation import evaluation, evaluation_report

ZONES = ("DE", "US-CAL-CISO", "US-MIDA-PJM", "US-NY-NYIS")
FILES = "{}_ci-direct-prod_2021.csv.gz", "{}_ci-direct-forecast96h_2021H2.csv.gz"


def named(word: str) -> list[evaluation.RecordedGrid]:
    """The grids of a folder that are there, or the one that is named with its files."""
    if "=" in word:
        zone, _, files = word.partition("=")
        return [evaluation.RecordedGrid(zone, zone, *map(Path, files.split(",")))]
    paths = {zone: [Path(word) / name.format(zone) for name in FILES] for zone in ZONES}
    return [evaluation.RecordedGrid(f"{zone} 2021", zone, *both) for zone, both in paths.items() if both[1].exists()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("grids", nargs="+", metavar="DATA|ZONE=ACTUAL[,ISSUED]")
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "issued.md")
    asked = parser.parse_args()
    grids = [grid for word in asked.grids for grid in named(word)]
    if not grids:
        sys.exit(f"{' '.join(asked.grids)} holds none of {', '.join(ZONES)}: nothing was done")
    begun = time.monotonic()
    scope = evaluation.EvaluationScope(starts=asked.starts, board_starts=0, grids=tuple(grids))
    found = evaluation.evaluation(scope, asked.seed, lambda done, of: print(f"{done} of {of}", flush=True))
    found |= {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {sys.version.split()[0]}",
        "took_s": time.monotonic() - begun,
        "command": f"python tests/bench/bench_issued.py DATA --starts {asked.starts} --seed {asked.seed}",
    }
    asked.out.write_text(evaluation_report.markdown(found, cpu_s=sum(os.times()[:4])), encoding="utf-8")


if __name__ == "__main__":
    main()
