"""Ours against the simple rules on zones that nothing was tuned on, on the same forecasts. Run by hand:

    python tests/bench/bench_zones.py NAME=ACTUAL.csv[,ISSUED.csv] ... [--starts 40] [--seed 2311] [--out FILE.json]

A file is hourly intensity (`time_utc,carbon_g_per_kwh`); `ISSUED` gives its published forecasts. Per group (8 and 24 h,
a budget of 2 and 3 times that, pauses alone and with caps) the same starts for all: ours, the best single window, the
best threshold, the best constant cap, perfect foresight. Zones that FILE knows are kept, so that it can grow zone by
zone; FILE.md is the table of all.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from datetime import date
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from carbontui.assumed.job import Grid, assumed, boundaries
from carbontui.extensions.evaluation.evaluation import FULL_W, SLOT_S, held
from carbontui.extensions.evaluation.issued import OwnForecast, load_issues
from carbontui.extensions.evaluation.policies import (
    Case,
    Knowledge,
    Policy,
    best_constant,
    outcome,
    quantile,
    rolling,
    rules,
    threshold,
    window,
)
from carbontui.grid import recorded
from carbontui.plan.planner import solve

HISTORY_S = 75 * 86400.0
"""Grid before the first start: the forecaster has learned its weights, as it has after two months of use."""
GROUPS = [(hours, slack, caps) for hours in (24, 8) for slack in (3.0, 2.0) for caps in (False, True)]
SIMPLE = {
    "window": ("best window", "best window with caps", "window, Let's Wait Awhile", "window, CATS", "window, GAIA"),
    "threshold": ("threshold, CarbonShift", "threshold, NEO", "start below 30th percentile"),
    "constant cap": ("best constant cap",),
}


def policies(grid: Grid, known: Knowledge) -> dict[str, Policy]:
    return {
        "run now": lambda case: (),
        "best constant cap": best_constant,
        "best window": lambda case: window(case, known),
        "best window with caps": lambda case: window(case, known, "best window with caps"),
        "start below 30th percentile": lambda case: threshold(grid, case, quantile(grid, case, 0.3), None),
        **rules(grid, known),
        "ours": lambda case: rolling(case, known),
        "perfect foresight": lambda case: solve(case.problem, compare=False).levels,
    }


def zone(
    name: str, files: str, starts: int, seed: int, held_w: float | None, groups: list[tuple[int, float, bool]]
) -> list[dict[str, Any]]:
    actual, _, issued = files.partition(",")
    grid = Grid(recorded.load(actual, zone=name))
    issues = load_issues(issued) if issued else []
    known = Knowledge(grid, OwnForecast(grid, issues))
    first = max(grid.start_s + HISTORY_S, issues[0].issued_s + 28 * 86400.0 if issues else 0.0)
    last = (min(grid.end_s, issues[-1].issued_s + 86400.0) if issues else grid.end_s) - 72 * 3600.0
    whole = [t for t in grid.starts if first <= t <= last and grid.covers(t, t + 72 * 3600.0)]
    found = []
    dice = random.Random(f"{name} {seed}")
    chosen = sorted(dice.sample(whole, starts))
    for hours, slack, caps in groups:
        job = held(assumed(FULL_W, caps=caps, running=False), held_w)
        grams: dict[str, list[float]] = {}
        late: dict[str, int] = {}
        for start in chosen:
            edges = boundaries(start, start + hours * 3600.0 * slack, SLOT_S[hours])
            case = Case(tuple(edges), job.problem(edges, grid, hours * 3600.0))
            for policy, rule in policies(grid, known).items():
                did = outcome(case, rule).figures
                grams.setdefault(policy, []).append(round(did.gco2, 2))
                late[policy] = late.get(policy, 0) + (did.late_s > 0)
        found.append({"zone": name, "hours": hours, "slack": slack, "caps": caps, "grams": grams, "late": late})
        print(line(found[-1]), flush=True)
    return found


def saving(group: dict[str, Any], policy: str) -> float:
    return 100 * (1 - sum(group["grams"][policy]) / sum(group["grams"]["run now"]))


def worst(group: dict[str, Any], policy: str) -> float:
    return max(100 * (a / b - 1) for a, b in zip(group["grams"][policy], group["grams"]["run now"], strict=True))


def best(group: dict[str, Any], kind: str) -> str:
    return max((name for name in SIMPLE[kind] if name in group["grams"]), key=lambda name: saving(group, name))


def cells(group: dict[str, Any]) -> list[str]:
    names = ["ours", *(best(group, kind) for kind in SIMPLE), "perfect foresight"]
    return [f"{saving(group, name):.2f} ({worst(group, name):+.0f})" for name in names]


def behind(group: dict[str, Any]) -> float:
    """Points by which the best simple rule is above ours; below zero: ours is."""
    return max(saving(group, best(group, kind)) for kind in SIMPLE) - saving(group, "ours")


def line(group: dict[str, Any]) -> str:
    what = f"{group['zone']} | {group['hours']} h x{group['slack']:g} | {'caps' if group['caps'] else 'pauses'}"
    return f"| {what} | {' | '.join(cells(group))} | {-behind(group):+.2f} | {group['late']['ours']} |"


def share(groups: list[dict[str, Any]], base: str) -> str:
    """Of what foresight has above `base`, in %."""
    total = {name: sum(sum(g["grams"][name]) for g in groups) for name in (base, "ours", "perfect foresight")}
    room = total[base] - total["perfect foresight"]
    return f"{100 * (total[base] - total['ours']) / room:.1f}" if room > 0 else "–"


def table(found: dict[str, Any]) -> str:
    groups = found["groups"]
    pauses, caps = ([g for g in groups if g["caps"] is one] for one in (False, True))
    zones = [*dict.fromkeys(g["zone"] for g in groups)]
    lines = [
        "# Ours against the simple rules, on zones that nothing was tuned on",
        "",
        found["about"],
        "",
        "Saving of CO2 against running now on summed grams, %; in brackets the worst job (+: it emitted more). Window, "
        "threshold: the best of several, chosen per group in hindsight; constant cap: chosen per job in hindsight.",
        "",
        "| zone | work | levels | ours | window | threshold | constant cap | foresight | ours over the best | late |",
        "|---" * 10 + "|",
        *map(line, groups),
        "",
        f"{len(groups)} groups of {found['starts']} jobs: {sum(behind(g) > 0.1 for g in groups)} more than 0.1 points "
        f"below the best simple rule (the furthest {max(map(behind, groups)):.2f}); worst job of ours "
        f"{max(worst(g, 'ours') for g in groups):+.1f} %; late {sum(g['late']['ours'] for g in groups)}.",
        "",
        "| share of perfect foresight, % | " + " | ".join(zones) + " | all |",
        "|---" * (len(zones) + 2) + "|",
    ]
    for what, chosen, base in (
        ("pauses", pauses, "run now"),
        ("caps, above the best constant", caps, "best constant cap"),
    ):
        each = [share([g for g in chosen if g["zone"] == z], base) for z in zones]
        lines.append(f"| {what} | " + " | ".join(each) + f" | {share(chosen, base)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("zones", nargs="+", metavar="NAME=ACTUAL[,ISSUED]")
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=2311)
    parser.add_argument("--held", type=float, help="watts of a machine held beside the board")
    parser.add_argument("--only", choices=["pauses", "caps"])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    known = json.loads(asked.out.read_text()) if asked.out and asked.out.exists() else {"groups": []}
    begun = time.process_time()
    for one in asked.zones:
        name, _, files = one.partition("=")
        groups = [g for g in GROUPS if asked.only is None or g[2] == (asked.only == "caps")]
        made = zone(name, files, asked.starts, asked.seed, asked.held, groups)
        new = {(g["zone"], g["caps"]) for g in made}
        known["groups"] = [g for g in known["groups"] if (g["zone"], g["caps"]) not in new] + made
        known["seed"], known["starts"] = asked.seed, asked.starts
        boundary = "given back while it waits" if asked.held is None else f"held, {asked.held:g} W beside the board"
        known["about"] = (
            f"{date.today().isoformat()}, seed {asked.seed}, {asked.starts} jobs per group, 650 W, 90 W paused, off "
            f"before the start; machine {boundary}. 2 shared vCPU."
        )
        print(f"{name}: {time.process_time() - begun:.0f} s of CPU", flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(known) + "\n")
            asked.out.with_suffix(".md").write_text(table(known))


if __name__ == "__main__":
    main()
