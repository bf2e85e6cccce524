"""What plans and the best constant cap save, by what counts beside the boards. Run by hand.

    CARBONTUI_DATA=../shared/data python tests/bench/bench_hosts.py --starts 4

Jobs of 8 h in 16 h on the assumed curve (650 W; caps at 86, 72 and 60 %), four zones, by boundary and host watts:
perfect foresight, and the best constant cap chosen in hindsight. Writes results/hosts.json and results/hosts.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import date
from pathlib import Path

from carbontui.assumed.job import Grid, assumed, bounded
from carbontui.extensions.evaluation.run import run
from carbontui.grid import recorded

DATA = Path(os.environ.get("CARBONTUI_DATA", "../shared/data"))
RESULTS = Path(__file__).parent / "results"
ZONES = {"DE": "lifecycle", "US-CAL-CISO": "lifecycle", "US-MIDA-PJM": "direct", "US-NY-NYIS": "direct"}
BOUNDED = [("given-back", 0.0), ("given-back", 150.0), ("given-back", 400.0)]
BOUNDED += [("held", 0.0), ("held", 150.0), ("held", 400.0), ("always-on", 0.0)]
POLICIES = ("best constant level", "perfect foresight")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=20)
    asked = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded data at {DATA}: set CARBONTUI_DATA")
    found: dict[str, dict[str, list[float]]] = {}
    for zone, kind in ZONES.items():
        grid = Grid(recorded.load(DATA / f"{zone}_ci-{kind}-prod_2021.csv.gz", zone=zone))
        for boundary, host_w in BOUNDED:
            job = bounded(assumed(650.0, caps=True, running=False), boundary, host_w=host_w, idle_w=70.0)
            report = run(grid, job, 8 * 3600.0, 2.0, asked.starts, seed=7, own=False)
            grams = found.setdefault(f"{boundary} {host_w:g}", {})
            for name in ("run now", *POLICIES):
                grams.setdefault(name, []).extend(round(one.figures.gco2, 3) for one in report.outcomes[name])
            print(zone, boundary, host_w, flush=True)
        write(found, asked.starts)


def write(found: dict[str, dict[str, list[float]]], starts: int) -> None:
    machine = "2 shared vCPU Xeon 2.5 GHz"
    facts = {
        "date": date.today().isoformat(),
        "machine": machine,
        "starts": starts,
        "zones": list(ZONES),
        "grams": found,
    }
    (RESULTS / "hosts.json").write_text(json.dumps(facts, indent=1) + "\n")
    lines = [
        "# What counts beside the boards",
        "",
        f"Recorded intensity of 2021 in {', '.join(ZONES)}, {starts} random starts each, {date.today().isoformat()},"
        f" {machine}. Jobs of 8 h in 16 h: 650 W at full speed on the assumed curve, 70 W idle. CO2 saved against"
        " running now, on summed grams, realised.",
        "",
        "| boundary | host W | best constant cap % | perfect foresight % |",
        "|---|---|---|---|",
    ]
    for name, grams in found.items():
        boundary, host_w = name.split()
        saved = (100 * (1 - sum(grams[policy]) / sum(grams["run now"])) for policy in POLICIES)
        lines.append(f"| {boundary} | {host_w} | {' | '.join(f'{one:.1f}' for one in saved)} |")
    (RESULTS / "hosts.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
