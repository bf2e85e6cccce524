"""Plans of eight jobs under one site budget, with and without its price in them, on a recorded grid.

    python tests/bench/bench_site_plans.py       # results/site_plans.json

The real plan requests, worker, claims and shares; time is the bench's own, in steps of a minute, and each job plans in
its turn every half hour. Intensities are known ahead (the recorded ones), so that the difference is the
price's alone. Boards are simulated (700 W, power caps down to 200 W). `bound_g`: what no way of doing all this work
within the budget can emit less than (the dual of the work spread over levels and slots, without switching).
"""

from __future__ import annotations

import csv
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "job")]

from states import NOW_S, board, inputs, job_state, outlook, rank, spec

from carbontui.extensions.site import shadow_prices
from carbontui.extensions.site.sharing import allot
from carbontui.headroom import Headroom
from carbontui.job.supervisor.core.planning import answers, plan_request
from carbontui.job.supervisor.core.rules import site_claim
from carbontui.job.supervisor.core.state.plan import FULL, Level
from carbontui.job.terms.child import Child
from carbontui.job.worker import process
from carbontui.plan.dual import climb
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.curves.curve import Curve, Point

JOBS, CAP_W = 8, 1400.0
STEP_S, SLOT_S, PLAN_S = 60.0, 900.0, 1800.0
BOARD = SimulatedSpec()
LIMITS = (200.0, 300.0, 400.0, 500.0, 600.0)


def grid() -> list[float]:
    with (ROOT / "carbontui" / "data" / "example-grid-de-2020-april.csv").open() as file:
        return [float(row["carbon_g_per_kwh"]) for row in csv.DictReader(file)]


def curve() -> Curve:
    """The levels a calibration would have found."""
    known = {"power_se": 0.1, "speed_se": 0.001}
    caps = [Point(kind="cap", cap_w=w, power_w=BOARD.busy_w(w), speed=BOARD.speed(w), **known) for w in LIMITS]
    return Curve(
        gpu="simulated", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0,
        levels=(*caps, Point(kind="full", cap_w=None, power_w=BOARD.full_w, speed=1.0, **known)), parked_w=118.0,
    )  # fmt: skip


@dataclass
class Job:
    name: str
    work_s: float
    deadline_s: float
    state: object
    done_s: float = 0.0
    grams: float = 0.0
    finish_s: float | None = None
    level: Level = FULL
    wakes: int = 0
    stands: bool = True

    def inputs(self, now: float):
        gpu = board(f"GPU-{self.name}", limit_found_w=700.0, limit_min_w=200.0, limit_w=700.0)
        return inputs(NOW_S + now, boards=(gpu,), ranks=(rank(),), child=Child("running"))


def jobs(dice: random.Random, values: list[float]) -> list[Job]:
    found = []
    for number in range(JOBS):
        work = dice.choice([3, 4, 6, 8]) * 3600.0
        factor = dice.choice([2.0, 3.0, 4.0, 5.0])
        made = job_state(budget=f"{factor}x", work_s=work, caps_hold=True, curve=curve())
        made = replace(
            made,
            spec=spec(job=f"j{number}", name=f"j{number}", work_s=work),
            outlook=outlook(*values),
        )
        found.append(Job(f"j{number}", work, made.deadline_s - NOW_S, made))
    return found


def replay(all_jobs: list[Job], values: list[float], cap_w: float, *, priced: bool) -> dict[str, float]:
    now, made_s, over = 0.0, [], 0.0
    claims: dict[str, object] = {}
    rises = []
    before = 0.0
    while any(job.finish_s is None for job in all_jobs):
        live = [job for job in all_jobs if job.finish_s is None]
        if now % PLAN_S == 0:
            for job in live:
                others = tuple(claims[o.name] for o in live if o is not job and o.name in claims)
                seen = job.inputs(now)
                job.state = replace(job.state, site=Headroom(700.0, cap_w, True, 0.0, 0.0, others))
                job.state = replace(job.state, progress=structs.replace(job.state.progress, plain_done_s=job.done_s))
                request = plan_request.plan_request(job.state, seen)
                ask = request.ask if priced else replace_(request.ask, shared=None)
                since = time.perf_counter()
                answer = process.solve_plan(ask)
                made_s.append(time.perf_counter() - since)
                new = answers.from_answer(request.setup, answer, NOW_S + now, request.deadline_s, request.left_s)
                job.state = replace(job.state, plan=new)
                claims[job.name] = site_claim.claim(job.state, seen)
        wants = []
        for job in live:
            said = job.state.plan.at(NOW_S + now).level or FULL
            job.level = said
            seen = job.inputs(now)
            job.state = replace(job.state, site=Headroom(700.0, cap_w, True, 0.0, 0.0))
            state = replace(job.state, progress=structs.replace(job.state.progress, plain_done_s=job.done_s))
            state = replace(state, decision=replace(state.decision, wanted=said))
            wants.append(site_claim.claim(state, seen))
        gets = allot(wants, cap_w)
        ci = values[int(now // SLOT_S)]
        total = 0.0
        for job in live:
            limit = gets[job.name]
            stands = job.level.still or limit < 200.0 - 1e-6
            job.wakes += job.stands and not stands
            job.stands = stands
            watts = 118.0 if stands else BOARD.busy_w(min(limit, 700.0))
            speed = 0.0 if stands else BOARD.speed(min(limit, 700.0))
            part = min(1.0, (job.work_s - job.done_s) / (speed * STEP_S)) if speed else 1.0
            job.done_s += speed * STEP_S * part
            job.grams += watts * STEP_S * part / 3.6e6 * ci
            total += watts
            if job.done_s >= job.work_s - 1e-6:
                job.finish_s = now + STEP_S * part
                claims.pop(job.name, None)
        over = max(over, total - cap_w)
        rises.append(total - before)
        before = total
        now += STEP_S
    late = [max(0.0, job.finish_s - job.deadline_s) for job in all_jobs]
    return {
        "gco2_g": round(sum(job.grams for job in all_jobs), 1),
        "finished_in_time": sum(value <= STEP_S for value in late),
        "mean_late_min": round(statistics.mean(late) / 60, 1),
        "last_finish_h": round(max(job.finish_s for job in all_jobs) / 3600, 2),
        "mean_finish_h": round(statistics.mean(job.finish_s for job in all_jobs) / 3600, 2),
        "largest_above_w": round(over, 1),
        "largest_rise_in_a_minute_w": round(max(rises), 0),
        "wakes": sum(job.wakes for job in all_jobs),
        "plan_ms_median": round(1000 * statistics.median(made_s), 1),
    }


def replace_(thing, **fields):
    import msgspec

    return msgspec.structs.replace(thing, **fields)


def bound(all_jobs: list[Job], values: list[float], cap_w: float) -> float:
    """Grams; jobs stand parked at 118 W until they are done, or not at all: a bound must take the lower."""
    ends = max(job.deadline_s for job in all_jobs)
    slots = int(np.ceil(ends / SLOT_S))
    dur, weight = np.full(slots, SLOT_S), np.array(values[:slots]) / 3.6e6
    levels = [(0.0, 0.0, 0.0), *((w, BOARD.busy_w(w), BOARD.speed(w)) for w in LIMITS), (700.0, BOARD.full_w, 1.0)]
    ahead = [
        shadow_prices.Ahead(
            levels=tuple(shadow_prices.LevelAhead(claimed_w=c, drawn_w=d, speed=s) for c, d, s in levels),
            work_s=job.work_s, deadline_s=job.deadline_s,
        )
        for job in all_jobs
    ]  # fmt: skip
    spread = shadow_prices.spread_out(ahead, 0.0, dur, float(weight.max()))
    whole = cap_w * dur

    def answer(worth):
        cost, watt_s = shadow_prices.cheapest(spread, np.append(weight, weight.mean()), np.append(worth / whole, 0.0))
        return shadow_prices.Response(cost, watt_s[:-1] / whole)

    return climb(answer, np.zeros(slots), 300).bound


def main() -> None:
    process.curve = lambda *_: []  # no frontier is drawn: nobody looks
    values = grid()
    rows = []
    for seed, begin in enumerate((0, 96, 200)):
        ahead = values[begin:] + values[:begin]
        row = {"seed": seed, "begins_at_slot": begin}
        for name, cap, priced in (("no budget", 1e9, False), ("without", CAP_W, False), ("with", CAP_W, True)):
            row[name] = replay(jobs(random.Random(seed), ahead), ahead, cap, priced=priced)
        row["bound_g"] = round(bound(jobs(random.Random(seed), ahead), ahead, CAP_W), 1)
        rows.append(row)
        print(json.dumps(row), flush=True)
    total = {name: sum(row[name]["gco2_g"] for row in rows) for name in ("no budget", "without", "with")}
    found = {
        "jobs": JOBS, "cap_w": CAP_W, "nameplate_w": JOBS * 700.0, "rows": rows,
        "gco2_with_against_without": round(total["with"] / total["without"] - 1, 4),
        "in_time": {name: sum(row[name]["finished_in_time"] for row in rows) for name in total},
        "machine": "2 shared vCPU, Linux", "date": "2026-11-22",
    }  # fmt: skip
    print(json.dumps({key: value for key, value in found.items() if key != "rows"}, indent=1))
    (HERE / "results" / "site_plans.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
