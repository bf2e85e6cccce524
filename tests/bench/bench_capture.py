"""How much of the perfect-foresight saving each policy captures on recorded data (July to December 2021). Run by hand.

    CARBONTUI_DATA=../shared/data python tests/bench/bench_capture.py --starts 20

Per zone, job length and slack: a 650 W job that is off before its start (0 W), parked at 90 W when paused, with the
published forecasts and carbontui's own; then the same jobs with caps, measured against the best constant cap. Writes
results/capture.json and results/capture.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import date
from pathlib import Path

from carbontui.assumed.job import Grid, assumed
from carbontui.extensions.evaluation.issued import load_issues
from carbontui.extensions.evaluation.run import run
from carbontui.grid import recorded

DATA = Path(os.environ.get("CARBONTUI_DATA", "../shared/data"))
RESULTS = Path(__file__).parent / "results"
ZONES = {"DE": "lifecycle", "US-CAL-CISO": "lifecycle", "US-MIDA-PJM": "direct", "US-NY-NYIS": "direct"}
HOURS = (8, 24)
SLACKS = (1.5, 2.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--more", action="store_true", help="add to the groups of results/capture.json")
    parser.add_argument("--zones", nargs="*", default=list(ZONES))
    asked = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded data at {DATA}: set CARBONTUI_DATA")
    known = RESULTS / "capture.json"
    groups: list[dict[str, object]] = json.loads(known.read_text())["groups"] if asked.more else []
    begin = time.time()
    for zone in asked.zones:
        kind = ZONES[zone]
        grid = Grid(recorded.load(DATA / f"{zone}_ci-{kind}-prod_2021.csv.gz", zone=zone))
        issues = load_issues(DATA / f"{zone}_ci-{kind}-forecast96h_2021H2.csv.gz")
        for hours in HOURS:
            for slack in SLACKS:
                for caps in (False, True):
                    if caps and slack != 2.0:
                        continue
                    job = assumed(650.0, caps=caps, running=False)
                    report = run(grid, job, hours * 3600.0, slack, asked.starts, seed=7, issues=issues)
                    grams = {
                        name: [round(o.figures.gco2, 3) for o in outcomes] for name, outcomes in report.outcomes.items()
                    }
                    late = {name: sum(o.figures.late_s > 0 for o in found) for name, found in report.outcomes.items()}
                    groups.append(
                        {"zone": zone, "hours": hours, "slack": slack, "caps": caps, "grams": grams, "late": late}
                    )
                    print(zone, hours, slack, caps, f"{time.time() - begin:.0f} s", flush=True)
                    write(groups)


def write(groups: list[dict[str, object]]) -> None:
    """Both result files, from what there is so far."""
    counts = sorted({len(g["grams"]["run now"]) for g in groups})  # type: ignore[index]
    starts = " or ".join(map(str, counts))
    machine = "2 shared vCPU Xeon 2.5 GHz"
    RESULTS.mkdir(exist_ok=True)
    whole = {"date": date.today().isoformat(), "machine": machine, "groups": groups}
    (RESULTS / "capture.json").write_text(json.dumps(whole, indent=1) + "\n")
    lines = [
        "# Capture of the perfect-foresight saving",
        "",
        f"Recorded intensity July-December 2021, {starts} random starts per group (8, 24 h; slack 1.5, 2, 3; caps at 2 "
        f"only), {len(groups)} groups so far, {date.today().isoformat()}. Job: 650 W, off (0 W) before its start, 90 W "
        "paused. CO2 on summed grams, realised.",
    ]
    for caps in (False, True):
        chosen = [g for g in groups if g["caps"] is caps]
        if not chosen:
            continue
        zones = [*dict.fromkeys(str(g["zone"]) for g in chosen)]
        base = "best constant level" if caps else "run now"
        lines += ["", f"## {'With caps: saving above the best constant cap' if caps else 'Pause only'}", ""]
        lines += [f"| policy | {' | '.join(zones)} | all: captured % | saving vs run now % | worse jobs % | late |"]
        lines += ["|---" * (len(zones) + 5) + "|"]
        for policy in chosen[0]["grams"]:  # type: ignore[attr-defined]
            shares = [captured([g for g in chosen if g["zone"] == z], policy, base) for z in zones]
            row = [f"{s:.0f}" for s in [*shares, captured(chosen, policy, base)]]
            now = total(chosen, "run now")
            row.append(f"{100 * (1 - total(chosen, policy) / now):.1f}")
            pairs = [
                (a, b)
                for g in chosen
                for a, b in zip(g["grams"][policy], g["grams"]["run now"], strict=True)  # type: ignore[index]
            ]
            row.append(f"{100 * sum(a > 1.005 * b for a, b in pairs) / len(pairs):.0f}")
            row.append(str(sum(g["late"][policy] for g in chosen)))  # type: ignore[index]
            lines.append(f"| {policy} | {' | '.join(row)} |")
    (RESULTS / "capture.md").write_text("\n".join(lines) + "\n")


def total(groups: list[dict[str, object]], policy: str) -> float:
    return sum(sum(g["grams"][policy]) for g in groups)  # type: ignore[index]


def captured(groups: list[dict[str, object]], policy: str, base: str) -> float:
    room = total(groups, base) - total(groups, "perfect foresight")
    return 100 * (total(groups, base) - total(groups, policy)) / room if room > 0 else 0.0


if __name__ == "__main__":
    main()
