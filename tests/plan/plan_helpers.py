"""Small random problems, and their optimum by trying every schedule: independent of the planner."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from carbontui.plan.evaluation import evaluate
from carbontui.plan.problem import Problem, ProblemLevel


def best_by_trying(problem: Problem, fixed: dict[int, int] | None = None) -> float | None:
    """The least objective over all feasible schedules; None when none is on time and without a violation."""
    best = None
    choices = [[fixed[k]] if fixed and k in fixed else range(len(problem.levels)) for k in range(len(problem.dur_s))]
    for levels in itertools.product(*choices):
        got = evaluate(problem, levels)
        if got.feasible and (best is None or got.objective < best):
            best = got.objective
    return best


@st.composite
def tiny(draw: st.DrawFn, slots: int = 6, prices: bool = True, dwell: int = 3, shadows: bool = False) -> Problem:
    """2..slots slots, 2 or 3 levels, anything the format allows in small."""
    count = draw(st.integers(2, slots))
    step = 900.0
    dur = [step] * count
    if draw(st.booleans()):
        dur[0] = draw(st.sampled_from([30.0, 200.0, 850.0]))
        dur[-1] = draw(st.sampled_from([100.0, 600.0]))
    ci = [float(draw(st.integers(1, 60)) * 10) for _ in range(count)]
    price = None
    if prices and draw(st.booleans()):
        price = tuple(draw(st.integers(-10, 40)) / 100 for _ in range(count))
    made = draw(st.sampled_from([0.0, 0.0, 60.0]))
    levels = [
        ProblemLevel("pause", float(draw(st.sampled_from([0, 25, 90]))), 0.0, 0.0, made),
        ProblemLevel("full", 600.0, 1.0, draw(st.sampled_from([0.0, 0.0, 2.0])), made),
    ]
    third = draw(st.sampled_from(["none", "cap", "unload", "off"]))
    if third == "cap":
        levels.append(ProblemLevel("cap", 300.0, draw(st.sampled_from([0.5, 0.75, 0.8371])), 0.0, made))
    elif third != "none":
        levels.append(ProblemLevel(third, 0.0 if third == "off" else 25.0, 0.0))
    n = len(levels)
    shadow = None
    if shadows and draw(st.booleans()):
        # grams per hour, as large as those of the levels; not rising with their watts everywhere
        shadow = tuple(tuple(float(draw(st.sampled_from([0, 0, 40, 150]))) for _ in range(n)) for _ in range(count))
    times: list[list[float | None]] = [
        [0.0 if i == j else float(draw(st.sampled_from([0, 0, 20, 45, 300]))) for j in range(n)] for i in range(n)
    ]
    if third == "off":
        for i in range(2):
            times[i][2] = None
    watts = [[float(draw(st.sampled_from([100, 300]))) for _ in range(n)] for _ in range(n)]
    return Problem(
        dur_s=tuple(dur),
        ci_g_per_kwh=tuple(ci),
        price_per_kwh=price,
        levels=tuple(levels),
        switch_s=tuple(map(tuple, times)),
        switch_w=tuple(map(tuple, watts)),
        work_s=sum(dur) * draw(st.sampled_from([0.1, 0.3, 0.5, 0.75, 0.95])),
        initial_level=draw(st.integers(0, n - 1)),
        initial_age_slots=draw(st.sampled_from([1, 2, 1_000_000])),
        min_run_slots=draw(st.integers(1, dwell)),
        min_pause_slots=draw(st.integers(1, dwell)),
        max_resumes=draw(st.sampled_from([None, None, 1, 2])),
        host_w=draw(st.sampled_from([0.0, 80.0])),
        pue=draw(st.sampled_from([1.0, 1.3])),
        alpha=100.0 if price else 0.0,
        price_of_time=draw(st.sampled_from([0.0, 0.0, 0.001, 0.03])),
        shadow_per_h=shadow,
    )
