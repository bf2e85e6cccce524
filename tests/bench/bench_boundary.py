"""Plans on a machine that is held while they wait, judged by an evaluator of its own. Run by hand.

    CARBONTUI_DATA=../shared/data python tests/bench/bench_boundary.py --starts 6

Per zone, host watts, and with or without caps: a job of 8 h in 16 h that holds its node from its start on. The idle
board draws 70 W, full speed 650 W, a pause 90 W, and the host the same in all of them. The best possible schedule comes
from a dynamic programme in plain Python over thousandths of a slot; what a schedule emits is added up from the recorded
CSV. None of that calls the product. Writes results/boundary.json and results/boundary.md.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import sys
import time
from bisect import bisect_right
from datetime import date, datetime
from pathlib import Path

DATA = Path(os.environ.get("CARBONTUI_DATA", "../shared/data"))
RESULTS = Path(__file__).parent / "results"
ZONES = {"DE": "lifecycle", "US-CAL-CISO": "lifecycle", "US-MIDA-PJM": "direct", "US-NY-NYIS": "direct"}
FULL_W, IDLE_W, PARKED_W = 650.0, 70.0, 0.138 * 650.0
PAUSE_S, RESUME_S, SWITCH_W = 20.0, 45.0, 300.0
CURVE = ((1.0, 1.0), (0.785, 0.942), (0.676, 0.875), (0.577, 0.741))
"""Watts and speed as shares of those at full speed, as the product's assumed curve has them."""
SLOT_S, HOURS, SLACK = 1800.0, 8, 2.0
WORK_S = HOURS * 3600.0
PARTS = 1000
"""Work is counted in thousandths of a slot: exact for the speeds above."""
IDLE_LIMIT_S = 1800.0
"""`--idle-limit` of the last policy, which the best possible schedule does not know."""


class Recorded:
    """Mean intensities of a recorded series."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path, "rt", newline="") as file:
            rows = list(csv.reader(file))
        value = next(i for i, name in enumerate(rows[0]) if name in ("carbon_g_per_kwh", "value"))
        self.at = [datetime.fromisoformat(row[0].replace("Z", "+00:00")).timestamp() for row in rows[1:]]
        self.values = [float(row[value]) for row in rows[1:]]

    def mean(self, start: float, end: float) -> float:
        index, at, total = bisect_right(self.at, start) - 1, start, 0.0
        while at < end - 1e-9:
            until = min(end, self.at[index + 1] if index + 1 < len(self.at) else end)
            total += self.values[index] * (until - at)
            index, at = index + 1, until
        return total / (end - start)


def watts_of(caps: bool, host_w: float, idle_w: float) -> dict[str, tuple[float, float]]:
    """(watts that count, speed) of each level of a held node, by name."""
    found = {"off": (idle_w + host_w, 0.0), "pause": (PARKED_W + host_w, 0.0)}
    for number, (share, speed) in enumerate(CURVE if caps else CURVE[:1]):
        found[f"run {number}"] = (share * FULL_W + host_w, speed)
    return found


def emitted(names: list[str], ci: list[float], levels: dict[str, tuple[float, float]], host_w: float) -> float:
    """Grams of a schedule: one level name per slot, at full speed after its end."""
    left, grams, now = WORK_S, 0.0, "off"
    slot = 0
    while left > 1e-6:
        name = names[slot] if slot < len(names) else "run 0"
        value = ci[min(slot, len(ci) - 1)]
        lost, joules = 0.0, 0.0
        if name != now:
            lost = RESUME_S if now == "pause" else PAUSE_S if name == "pause" else 0.0
            joules = lost * (SWITCH_W + host_w)
            now = name
        watts, speed = levels[name]
        use = SLOT_S - lost
        if speed > 0:
            use = min(use, left / speed)
            left -= use * speed
        grams += (joules + watts * use) / 3.6e6 * value
        slot += 1
    return grams


def best(ci: list[float], levels: dict[str, tuple[float, float]], host_w: float) -> float:
    """The least grams of any schedule that ends in time: backwards over slots, groups (0 off, 1 paused, 2 running) and
    the work that is left."""
    need = round(WORK_S / SLOT_S * PARTS)
    running = [(watts, round(speed * PARTS)) for watts, speed in levels.values() if speed > 0]
    fastest = max(done for _, done in running)
    none = float("inf")
    free = [0.0] + [none] * need
    after = [free[:], free[:], free[:]]
    for slot in range(len(ci) - 1, -1, -1):
        per_j = ci[slot] / 3.6e6
        wait, rest = levels["off"][0] * SLOT_S * per_j, levels["pause"][0] * SLOT_S * per_j
        into = (PAUSE_S * (SWITCH_W + host_w) + levels["pause"][0] * (SLOT_S - PAUSE_S)) * per_j
        whole = [(watts * SLOT_S * per_j, done) for watts, done in running]
        lost = RESUME_S / SLOT_S
        woken = [
            ((RESUME_S * (SWITCH_W + host_w) + watts * (SLOT_S - RESUME_S)) * per_j, int(done * (1 - lost) + 1e-9))
            for watts, done in running
        ]
        wake = RESUME_S * (SWITCH_W + host_w) * per_j
        off, paused, went = after
        possible = min(need, (len(ci) - slot) * fastest)
        new_off, new_paused, new_run = free[:], free[:], free[:]
        for left in range(1, possible + 1):
            run = resumed = none
            for cost, done in whole:
                value = cost + went[left - done] if left > done else cost * left / done
                if value < run:
                    run = value
            for cost, done in woken:
                value = cost + went[left - done] if left > done else wake + (cost - wake) * left / done
                if value < resumed:
                    resumed = value
            new_run[left] = min(run, into + paused[left])
            new_paused[left] = min(resumed, rest + paused[left])
            new_off[left] = min(run, wait + off[left])
        after = [new_off, new_paused, new_run]
    return after[0][need]


def named(levels: list[int] | tuple[int, ...], names: list[str]) -> list[str]:
    return [names[level] if level >= 0 else "run 0" for level in levels]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--zones", nargs="*", default=list(ZONES))
    asked = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no recorded data at {DATA}: set CARBONTUI_DATA")
    began, groups = time.time(), []
    for zone in asked.zones:
        for caps in (False, True):
            for host_w in (60.0, 250.0, 400.0):
                groups.append(group(zone, caps, host_w, asked.starts))
                print(json.dumps({k: v for k, v in groups[-1].items() if k != "grams"}), f"{time.time() - began:.0f} s")
                sys.stdout.flush()
                write(groups, asked.starts)


def group(zone: str, caps: bool, host_w: float, starts: int) -> dict[str, object]:
    """All that is known of one group; the product is asked for schedules alone."""
    from carbontui.assumed.job import Grid, assumed, bounded
    from carbontui.extensions.evaluation.issued import OwnForecast, load_issues
    from carbontui.extensions.evaluation.policies import Case, Knowledge, rolling
    from carbontui.grid import recorded
    from carbontui.plan.planner import solve

    actual = DATA / f"{zone}_ci-{ZONES[zone]}-prod_2021.csv.gz"
    own, grid = Recorded(actual), Grid(recorded.load(actual, zone=zone))
    issues = load_issues(DATA / f"{zone}_ci-{ZONES[zone]}-forecast96h_2021H2.csv.gz")
    known = Knowledge(grid, OwnForecast(grid, issues))
    job = bounded(assumed(FULL_W, caps=caps, running=False), "held", host_w=host_w, idle_w=IDLE_W)
    names = ["off", "pause", *(f"run {number}" for number in range(len(job.shape.levels) - 2))]
    levels, slots = watts_of(caps, host_w, IDLE_W), round(HOURS * SLACK * 3600 / SLOT_S)
    first, last = issues[0].issued_s, issues[-1].issued_s - HOURS * SLACK * 3600
    grams: dict[str, list[float]] = {
        "run now": [],
        "best possible": [],
        "foresight": [],
        "rolling": [],
        "limited": [],
        "best cap": [],
    }
    for start in sorted(random.Random(f"{zone} 7").sample([t for t in own.at if first <= t <= last], starts)):
        edges = [start + SLOT_S * k for k in range(slots + 1)]
        ci = [own.mean(a, b) for a, b in zip(edges, edges[1:], strict=False)]
        case = Case(tuple(edges), job.problem(edges, grid, WORK_S))
        plans = {
            "foresight": solve(case.problem).levels,
            "rolling": rolling(case, known),
            "limited": rolling(case, known, IDLE_LIMIT_S),
        }
        grams["run now"].append(emitted([], ci, levels, host_w))
        constant = [
            emitted([name] * slots, ci, levels, host_w)
            for name, (_, v) in levels.items()
            if v * SLACK * WORK_S >= WORK_S
        ]
        grams["best cap"].append(min(constant))
        grams["best possible"].append(best(ci, levels, host_w))
        for policy, plan in plans.items():
            grams[policy].append(emitted(named(plan, names), ci, levels, host_w))
    return {"zone": zone, "caps": caps, "host_w": host_w, **figures(grams), "grams": grams}


def figures(grams: dict[str, list[float]]) -> dict[str, float]:
    now, room = sum(grams["run now"]), sum(grams["run now"]) - sum(grams["best possible"])
    found = {"possible_pct": 100 * room / now, "cap_pct": 100 * (1 - sum(grams["best cap"]) / now)}
    for policy in ("foresight", "rolling", "limited"):
        pairs = list(zip(grams[policy], grams["run now"], strict=True))
        found[f"{policy}_pct"] = 100 * (1 - sum(grams[policy]) / now)
        found[f"{policy}_of_best_pct"] = 100 * (now - sum(grams[policy])) / room if room > 1e-9 * now else 100.0
        found[f"{policy}_worst_pct"] = max(100 * (g / n - 1) for g, n in pairs)
        found[f"{policy}_worse"] = sum(g > n * (1 + 1e-9) for g, n in pairs)
    return {name: round(value, 3) for name, value in found.items()}


def write(groups: list[dict[str, object]], starts: int) -> None:
    machine = "2 shared vCPU Xeon 2.5 GHz"
    facts = {"date": date.today().isoformat(), "machine": machine, "starts": starts, "groups": groups}
    (RESULTS / "boundary.json").write_text(json.dumps(facts, indent=1) + "\n")
    lines = [
        "# A held machine: waiting counts",
        "",
        f"Recorded intensity July-December 2021, {starts} random starts per group, {date.today().isoformat()},"
        f" {machine}. A job of {HOURS} h in {HOURS * SLACK:g} h that holds its node from the start on: {FULL_W:g} W at"
        f" full speed, {IDLE_W:g} W idle, {PARKED_W:.0f} W paused, the host beside them at all times. Saving against"
        " running now, CO2 on summed grams; the best possible schedule and all grams by plain Python beside the product"
        " (bench_boundary.py). Rolling re-plans at every new value of the grid and keeps the plan in force unless"
        " another gains more than the forecast's error; with idle limit it stands still for 30 min at a stretch at"
        " most, which the best possible schedule does not have to.",
        "",
        "| zone | caps | host W | best cap % | possible % | foresight % | of possible % | worst job % |"
        " rolling forecast % | of possible % | jobs worse | worst job % | with idle limit % | jobs worse |",
        "|---" * 14 + "|",
    ]
    for caps in (False, True):
        chosen = [one for one in groups if one["caps"] is caps]
        for one in chosen:
            lines.append(_row(str(one["zone"]), one))
        for host_w in dict.fromkeys(one["host_w"] for one in chosen):
            lines.append(_row("**all**", _together([one for one in chosen if one["host_w"] == host_w])))
    everything: list[dict[str, object]] = [_together([one]) for one in groups]
    lines += ["", "All groups together:", "", *lines[4:6], _row("all", _together(everything))]
    (RESULTS / "boundary.md").write_text("\n".join(lines) + "\n")


def _together(groups: list[dict[str, object]]) -> dict[str, object]:
    names = groups[0]["grams"].keys()  # type: ignore[attr-defined]
    grams = {name: [g for one in groups for g in one["grams"][name]] for name in names}  # type: ignore[index]
    caps, host = groups[0]["caps"], groups[0]["host_w"]
    alike = len({(one["caps"], one["host_w"]) for one in groups}) == 1
    return {"caps": caps if alike else "both", "host_w": host if alike else "all", **figures(grams), "grams": grams}


def _row(zone: str, one: dict[str, object]) -> str:
    caps = {True: "yes", False: "no"}.get(one["caps"], one["caps"])  # type: ignore[arg-type]
    cells = [zone, caps, one["host_w"] if isinstance(one["host_w"], str) else f"{one['host_w']:g}"]
    for name in ("cap_pct", "possible_pct", "foresight_pct", "foresight_of_best_pct", "foresight_worst_pct"):
        cells.append(f"{one[name]:.1f}")
    cells += [f"{one['rolling_pct']:.1f}", f"{one['rolling_of_best_pct']:.0f}", one["rolling_worse"]]
    cells += [f"{one['rolling_worst_pct']:.1f}", f"{one['limited_pct']:.1f}", one["limited_worse"]]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
