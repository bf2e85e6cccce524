"""Carbon budgets in simulated runs with forecast error: how often and by how much they are exceeded.

Started by hand: python tests/bench/bench_allowance.py [runs]. Each run is a job of 4-10 h of work (600 W flat out, caps
at 400 and 250 W, 90 W parked) under `--objective time` with a budget between what its best plan and what flat out would
emit, on a grid with a daily cycle and noise. The forecast errs as an AR(1) process that begins at nothing and grows to
15 % within a day, its band as wide as that. Every slot the real rules of the supervisor and the real planner decide;
the grams are those of the true grid. Two orders: warn,cap,ask (nobody answers) and warn,cap,stop.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from pathlib import Path

from states import decided

sys.path.insert(0, str(Path(__file__).parents[2]))

from carbontui import units
from carbontui.grid.types import GridForecast
from carbontui.job.supervisor.core.planning import answers, machine, plan_request, problem
from carbontui.job.supervisor.core.rules import allowance_rules, control
from carbontui.job.supervisor.core.state.allowances import Allowances
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.terms.allowance import Allowance
from carbontui.job.worker.process import solve_plan
from carbontui.power.curves.curve import Curve, Point
from tests.job.states import NOW_S, board, inputs, job_state, rank

SLOT_S = 900.0
ERROR_DAY = 0.15
MEMORY_SLOTS = 24.0
"""Errors of two slots this far apart are strangers by 1/e: six hours."""
CAPS = ((400.0, 0.9), (250.0, 0.75))
CAPPED = {f"cap {watts:.0f} W": (watts, speed) for watts, speed in CAPS}


def grid(rng: random.Random, slots: int) -> list[float]:
    """gCO2/kWh: a daily cycle of 350 +- 120 with AR(1) weather."""
    level, fade, found = 0.0, math.exp(-1 / 48), []
    for k in range(slots):
        level = fade * level + math.sqrt(1 - fade**2) * rng.gauss(0, 50)
        found.append(max(40.0, 350 + 120 * math.cos(2 * math.pi * (k + 8) / 96) + level))
    return found


def forecast(rng: random.Random, truth: list[float], now: int) -> GridForecast:
    """What is expected from slot `now` on; the past is known."""
    fade, error, mean, lo, hi = math.exp(-1 / MEMORY_SLOTS), 0.0, [], [], []
    for k, value in enumerate(truth):
        if k <= now:
            mean.append(value)
            lo.append(value)
            hi.append(value)
            continue
        spread = ERROR_DAY * math.sqrt(min(1.0, (k - now) / 96))
        error = fade * error + math.sqrt(1 - fade**2) * rng.gauss(0, 1)
        told = max(20.0, value * (1 + spread * error))
        mean.append(told)
        lo.append(max(0.0, told * (1 - 1.2816 * spread)))
        hi.append(told * (1 + 1.2816 * spread))
    return GridForecast(
        "DE", "average_direct", NOW_S, SLOT_S, tuple(mean), tuple(lo), tuple(hi), now + 1, "bench", "forecast", NOW_S
    )


def curve() -> Curve:
    points = tuple(
        Point(kind="cap", cap_w=w, power_w=w, power_se=1.0, speed=s, speed_se=0.01) for w, s in reversed(CAPS)
    )
    return Curve(
        gpu="H100", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0, levels=points, parked_w=90.0
    )


def one(seed: int, order: tuple[str, ...]) -> tuple[float, bool, str]:
    """(grams over the allowance as a share, told of it, how it ended)."""
    rng = random.Random(seed)
    work_s = rng.uniform(4, 10) * 3600
    truth = grid(rng, 160)
    known = Measured(full_w={"GPU-a": Mean(600.0, 100)}, parked_w={"GPU-a": Mean(90.0, 100)})
    state = job_state(
        work_s=work_s, objective="time", budget="3x", measured=known, curve=curve(), caps_hold=True,
        outlook=forecast(rng, truth, 0), totals=Totals(gco2_g=0.0), progress=Progress(work_s=work_s),
    )  # fmt: skip
    state = replace(state, decision=decided("running", "full", "plan", ""))
    seen = inputs(NOW_S, boards=(board(),), ranks=(rank(can_unload=True),))
    at_full_speed = _flat_out(truth, work_s)
    request = plan_request.plan_request(state, seen)
    assert request is not None
    least = solve_plan(request.ask).plan.gco2
    allowed = least + rng.uniform(0.15, 0.85) * max(0.0, at_full_speed - least)
    state = replace(state, allowances=Allowances(given=(Allowance("carbon", allowed),), order=order))
    used, done, told, level = 0.0, 0.0, False, "full"
    for slot in range(len(truth)):
        now = NOW_S + slot * SLOT_S
        seen = inputs(now, boards=(board(),), ranks=(rank(can_unload=True),), mono_s=slot * SLOT_S)
        state = replace(
            state,
            outlook=forecast(rng, truth, slot),
            totals=Totals(gco2_g=used, wall_kwh=0.0),
            progress=Progress(work_s=work_s, plain_done_s=done),
        )
        request = plan_request.plan_request(state, seen)
        if request is not None:
            answer = solve_plan(request.ask)
            state = replace(
                state, plan=answers.from_answer(request.setup, answer, now, request.deadline_s, request.left_s)
            )
        # within a slot the rules look every minute
        for minute in range(15):
            at = inputs(
                now + 60.0 * minute,
                boards=(board(),),
                ranks=(rank(can_unload=True),),
                mono_s=slot * SLOT_S + 60 * minute,
            )
            state = replace(state, totals=Totals(gco2_g=used))
            state = allowance_rules.judged(state, at)
            told = told or bool(allowance_rules.notices(state, at))
            asked, decision = control.decide(state, at)
            if asked.mode == "unload" and decision.reason.code == "budget_stop":
                used += units.joules_to_kwh(600.0 * problem.DEFAULT_UNLOAD_S) * truth[slot]
                return used / allowed - 1.0, told, "stopped"
            state = replace(state, asked=replace(asked, asked_mono_s=at.mono_s))
            new = decision.level
            back = {"pause": machine.resume_s(state), "unload": problem.DEFAULT_RELOAD_S}.get(level, 0.0)
            lost = 0.0 if new in ("pause", "unload") else back
            level = new
            watts, speed = {"pause": (90.0, 0.0), "unload": (25.0, 0.0), "full": (600.0, 1.0), **CAPPED}[level]
            step = min(60.0, (work_s - done) / speed) if speed else 60.0
            used += units.joules_to_kwh(watts * step) * truth[slot]
            done += speed * max(0.0, step - lost)
            observed = {"pause": "paused", "unload": "unloaded"}.get(level, "running")
            state = replace(
                state,
                decision=replace(decision, state=observed),
                progress=Progress(work_s=work_s, plain_done_s=done),
            )
            if done >= work_s - 1e-6:
                return used / allowed - 1.0, told, "done"
    return used / allowed - 1.0, told, "not done"


def _flat_out(truth: list[float], work_s: float) -> float:
    slots = math.ceil(work_s / SLOT_S)
    seconds = [min(SLOT_S, work_s - k * SLOT_S) for k in range(slots)]
    return sum(units.joules_to_kwh(600.0 * s) * g for s, g in zip(seconds, truth, strict=False))


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for order in (("warn", "cap", "ask"), ("warn", "cap", "stop")):
        found = [one(seed, order) for seed in range(runs)]
        over = [share for share, _, _ in found if share > 0.02]
        silent = sum(1 for share, told, _ in found if share > 0.0 and not told)
        ends = {how: sum(1 for *_, end in found if end == how) for how in ("done", "stopped", "not done")}
        shares = sorted(share for share, _, _ in found)
        print(
            f"{','.join(order)}: {runs} runs, exceeded by more than 2 %: {len(over)} ({len(over) / runs:.1%}), "
            f"at all: {sum(1 for s in shares if s > 0)}, silently: {silent}, worst {shares[-1]:+.1%}, "
            f"median used {1 + shares[len(shares) // 2]:.1%}; {ends}",
            flush=True,
        )


if __name__ == "__main__":
    main()
