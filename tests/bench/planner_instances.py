"""Random planning instances like those the planner meets: real-shaped intensity, caps, pauses, dwell, partial slots,
prices."""

from __future__ import annotations

import numpy as np

from carbontui.plan.problem import Problem, ProblemLevel

# watts and relative speed of a concave 250..650 W curve; assumed, not measured on hardware
CURVE = ((650, 1.0), (448, 0.9), (349, 0.775), (545, 0.965), (249, 0.55), (600, 0.985))


def instance(seed: int, slots: int | None = None, levels: int | None = None, plain: bool = False) -> Problem:
    """One instance; `plain`: whole slots, dwell 1, no price, no resume limit, as in a latency table."""
    rng = np.random.default_rng(seed)
    slots = slots or int(rng.choice([48, 72, 96, 144, 192, 288]))
    count = levels or int(rng.choice([2, 3, 4, 5, 8]))
    step = 300.0 if slots >= 200 else 900.0
    hours = np.arange(slots) * step / 3600
    wave = 150 * np.sin(2 * np.pi * (hours + rng.uniform(0, 24)) / 24)
    wave += 60 * np.sin(2 * np.pi * (hours + rng.uniform(0, 24)) / 12)
    ci = np.maximum(350 + rng.uniform(0.3, 1.2) * wave + np.cumsum(rng.normal(0, 8, slots)), 20.0)
    if rng.random() < 0.3:
        ci = np.repeat(ci[:: int(3600 / step)], int(3600 / step))[:slots]
    dur = np.full(slots, step)
    if not plain:
        dur[0], dur[-1] = rng.uniform(60, step), rng.uniform(60, step)
    idle = [ProblemLevel("pause", 90, 0.0)] + ([ProblemLevel("unload", 25, 0.0)] if count >= 5 else [])
    made = idle + [ProblemLevel(f"cap{w}" if w < 650 else "full", w, s) for w, s in CURVE[: count - len(idle)]]
    rest, n = len(idle), len(made)
    cap_switch = 2.0 if not plain and rng.random() < 0.3 else 0.0
    time = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            if i < rest:
                time[i][j] = 5.0 if j < rest else (45.0 if i == 0 else 240.0)
            else:
                time[i][j] = 20.0 if j < rest else cap_switch
    dwell = (1, 1) if plain or rng.random() < 0.4 else (int(rng.integers(1, 7)), int(rng.integers(1, 7)))
    price, alpha = None, 0.0
    if not plain and rng.random() < 0.4:
        price = tuple((0.1 + 0.08 * np.sin(2 * np.pi * hours / 24) + rng.normal(0, 0.02, slots)).tolist())
        alpha = float(rng.choice([500, 2000]))
    running_now = rng.random() < 0.7
    limit = int(rng.integers(1, 5)) if not plain and rng.random() < 0.15 else None
    return Problem(
        dur_s=tuple(dur.tolist()),
        ci_g_per_kwh=tuple(ci.tolist()),
        price_per_kwh=price,
        levels=tuple(made),
        switch_s=tuple(map(tuple, time)),
        switch_w=tuple((300.0,) * n for _ in range(n)),
        work_s=float(dur.sum() * rng.uniform(0.3, 0.9)),
        initial_level=rest if running_now else 0,
        initial_age_slots=int(rng.choice([1, 3, 1_000_000])),
        min_run_slots=dwell[0],
        min_pause_slots=dwell[1],
        max_resumes=limit,
        host_w=float(rng.choice([0, 0, 120])),
        alpha=alpha,
    )
