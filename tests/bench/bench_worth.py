"""What time's price gives up and wins, on an exact frontier made here; by hand:
`python tests/bench/bench_worth.py [--quick]`, which writes results/worth.json and results/worth.md.

The frontier is a dynamic program over whole slots and two seconds of work, which shares nothing with the planner:
for every slot of the finish the least grams. Its cost is exact, its work rounded down for every arc, so that each of
its schedules is one (a lower bound on nothing: what it finds, the planner must find too). Typical days of twelve zones
and three starts each; 8 h of work within 1.5, 2, 3 and 5 times that; with caps or pauses alone; given back, held with
60 W of host, always on (idle watts taken off).

Beside it: a plan made six times on forecasts that differ by noise alone (2 % of each hour, independent).
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec.structs import replace as with_fields

from carbontui.assumed.job import TypicalDays, assumed, bounded, on_hours
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, price_of_time
from carbontui.plan.rolling import replan

RESULTS = Path(__file__).parent / "results"
ZONES = (
    "DE",
    "ES",
    "FR",
    "GB",
    "NL",
    "PL",
    "SE",
    "US-CAL-CISO",
    "US-MIDA-PJM",
    "US-NY-NYIS",
    "US-TEX-ERCO",
    "US-NW-BPAT",
)
STARTS_S = (1_796_079_000.0, 1_801_300_500.0, 1_812_022_200.0)  # Nov 2026, Jan and May 2027
BUDGETS, WORK_S, UNIT_S = (1.5, 2.0, 3.0, 5.0), 8 * 3600.0, 2.0
BOUNDARIES = ("given-back", "held", "always-on")
PATIENCE_PCT = 2.0


def case(zone: str, start_s: float, budget: float, boundary: str, *, caps: bool) -> Problem:
    """8 h of work of a board of 300 W."""
    job = assumed(300.0, caps=caps, running=False)
    job = bounded(job, boundary, host_w=60.0 if boundary == "held" else 0.0)
    return on_hours(job, TypicalDays(zone), WORK_S, start_s, start_s + budget * WORK_S)


def least_by_slot(problem: Problem) -> list[tuple[float, float]]:
    """(finish_s, grams) of the best schedule that ends in each slot, by trying every amount of work."""
    unit = UNIT_S
    goal, count = int(np.ceil(problem.work_s / unit)), len(problem.levels)
    kwh = problem.pue / 3.6e6
    best = np.full((count, goal + 1), np.inf)
    best[problem.initial_level, 0] = 0.0
    clock, found = 0.0, []
    for duration, ci in zip(problem.dur_s, problem.ci_g_per_kwh, strict=True):
        after, ends = np.full_like(best, np.inf), [np.inf, 0.0]
        for i, j in itertools.product(range(count), range(count)):
            switch_s = 0.0 if i == j else problem.switch_s[i][j]
            if switch_s is None or switch_s > duration:
                continue
            level = problem.levels[j]
            entry = switch_s * (problem.switch_w[i][j] + problem.host_w) * kwh * ci if switch_s else 0.0
            per_s = (level.power_w + problem.host_w) * kwh * ci
            done = level.speed * (duration - switch_s)
            step = int(done / unit)
            cost = best[i] + entry + per_s * (duration - switch_s)
            if not level.running:
                after[j] = np.minimum(after[j], cost)
                continue
            after[j, step:] = np.minimum(after[j, step:], cost[: goal + 1 - step])
            left = np.maximum(0.0, problem.work_s - unit * np.arange(goal + 1))
            fits = left <= done + 1e-9
            total = np.where(fits, best[i] + entry + per_s * left / level.speed, np.inf)
            at = int(np.argmin(total))
            if total[at] < ends[0]:
                ends = [float(total[at]), clock + switch_s + float(left[at]) / level.speed]
        after[:, goal] = np.inf
        if np.isfinite(ends[0]):
            found.append((ends[1], ends[0]))
        best, clock = after, clock + duration
    return found


def judged(problem: Problem) -> dict[str, float]:
    """Points of run-now's grams: what a schedule of the frontier has less of grams + price, what patience gives up."""
    now_g, price = evaluate(problem, ()).gco2, price_of_time(problem, PATIENCE_PCT)
    timed = replace(problem, price_of_time=price)
    plan, least = solve(timed), solve(problem)
    rival = min(grams + price * finish_s for finish_s, grams in least_by_slot(problem))
    points = 100.0 / now_g
    found = {
        "worse": (plan.objective - rival) * points,
        "given_up": (plan.gco2 - least.gco2) * points,
        "won_h": (least.finish_s - plan.finish_s) / 3600,
        "saved": 100 - plan.gco2 * points,
        "least_saved": 100 - least.gco2 * points,
    }
    return {name: round(value, 3) for name, value in found.items()}


def noisy(problem: Problem, seed: int, pct: float) -> float:
    """Slots by which the finish moves over six plans on forecasts that differ by noise alone."""
    rng, plan, finishes = np.random.default_rng(seed), None, []
    priced = replace(problem, price_of_time=price_of_time(problem, pct))
    for _ in range(6):
        ci = np.array(problem.ci_g_per_kwh) * (1 + 0.02 * rng.standard_normal(len(problem.dur_s)))
        seen = replace(priced, ci_g_per_kwh=tuple(ci.tolist()))
        plan, _ = replan(seen, plan.levels if plan else None, [0.06 * value for value in ci])
        finishes.append(plan.finish_s)
    return (max(finishes) - min(finishes)) / 900


def floors() -> dict[str, int]:
    """Without a price of time: of plans that save less than half a percent, those that wait or slow; and choices that
    differ where all watts are first taken for half or twice as many."""
    small = waits = differ = 0
    for zone, start_s, budget in itertools.product(ZONES, STARTS_S, BUDGETS):
        at = case(zone, start_s, budget, "always-on", caps=False)
        plans = []
        for factor in (1.0, 0.5, 2.0):
            levels = tuple(with_fields(one, power_w=factor * one.power_w) for one in at.levels)
            watts = tuple(tuple(factor * watt for watt in row) for row in at.switch_w)
            other = replace(at, levels=levels, switch_w=watts)
            plans.append(replan(other, None, untouched=0.0)[0])
        now_g = evaluate(at, ()).gco2
        differ += len({plan.levels for plan in plans}) > 1
        small += plans[0].forgone > 0
        waits += plans[0].gco2 > 0.995 * now_g and any(not at.levels[j].running for j in plans[0].levels if j >= 0)
    plans = len(ZONES) * len(STARTS_S) * len(BUDGETS)
    return {"plans": plans, "saving_too_little": small, "of_them_wait": waits, "choices_that_watts_change": differ}


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--quick", action="store_true")
    zones, starts = (ZONES[:3], STARTS_S[:1]) if asked.parse_args().quick else (ZONES, STARTS_S)
    begun, rows, moved = time.monotonic(), [], {0.0: [], PATIENCE_PCT: []}
    for zone, start_s, budget, caps, boundary in itertools.product(zones, starts, BUDGETS, (True, False), BOUNDARIES):
        problem = case(zone, start_s, budget, boundary, caps=caps)
        rows.append({"zone": zone, "budget": budget, "caps": caps, "boundary": boundary, **judged(problem)})
        if budget == 3.0 and boundary == "given-back":
            for pct, of in moved.items():
                of.append(noisy(problem, len(of), pct))
    made = {"rows": rows, "moved_slots": {f"{pct:g} %": of for pct, of in moved.items()}, **floors()}
    made |= {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "took_s": time.monotonic() - begun}
    (RESULTS / "worth.json").write_text(json.dumps(made) + "\n")
    (RESULTS / "worth.md").write_text(text := markdown(made))
    print(text)


def markdown(made: dict) -> str:
    rows = made["rows"]
    worse = [row["worse"] for row in rows]
    lines = [
        "# What an hour is worth: patience 2 % beside 0 %",
        "",
        f"`python tests/bench/bench_worth.py`, {made['date']}: {len(rows)} problems of 8 h, typical days.",
        "Points are of run-now's grams. No schedule of the independent frontier has less of grams + price x finish by "
        f"more than {max(worse):.3f} points (mean {statistics.fmean(worse):.3f}).",
        "",
        "| budget | levels | saved at 0 % | saved at 2 % | given up, mean | most | hours won, mean | most |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for budget, caps in itertools.product(BUDGETS, (True, False)):
        some = [row for row in rows if (row["budget"], row["caps"]) == (budget, caps)]
        mean = {
            name: statistics.fmean(row[name] for row in some) for name in ("least_saved", "saved", "given_up", "won_h")
        }
        most = {name: max(row[name] for row in some) for name in ("given_up", "won_h")}
        lines.append(
            f"| {budget:g}x | {'caps' if caps else 'pauses'} | {mean['least_saved']:.1f} | {mean['saved']:.1f} | "
            f"{mean['given_up']:.2f} | {most['given_up']:.2f} | {mean['won_h']:.1f} | {most['won_h']:.1f} |"
        )
    moves = {pct: f"mean {statistics.fmean(of):.1f}, most {max(of):.0f}" for pct, of in made["moved_slots"].items()}
    told = "; ".join(f"patience {pct}: {said}" for pct, said in moves.items())
    return "\n".join(
        [
            *lines,
            "",
            f"Six plans on forecasts that differ by noise alone move the finish by, in slots: {told}.",
            f"At patience 0, of {made['plans']} plans {made['saving_too_little']} save less than half a percent,",
            f"of which {made['of_them_wait']} wait; {made['choices_that_watts_change']} change where all watts are",
            "taken for half or twice as many.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
