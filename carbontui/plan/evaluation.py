"""Evaluates a schedule slot by slot: the reference for every plan.

Shares no code with the planner on purpose: two independent implementations that agree to 1e-9 check each other.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, chain, repeat

from carbontui.plan.problem import Problem
from carbontui.plan.results import Evaluation, Violation
from carbontui.units import J_PER_KWH

SECONDS_TOLERANCE = 1e-9
LATE_TOLERANCE_S = 1e-6


def evaluate(problem: Problem, levels: Sequence[int | None]) -> Evaluation:
    """The figures of `levels` (one level index per slot; -1, None or a missing tail = at full speed until the work is
    done).

    A switch comes first in its slot and does no work; the finishing slot is charged pro rata; after the finish nothing
    is drawn. Work left at the deadline goes on at full speed at the last slot's intensity and price. Rent, embodied
    grams and shadow prices count from the start of the switch into a level, the price of time until the finish.
    Violations are listed, not raised. Raises IndexError for a level that does not exist.
    """
    count = len(problem.levels)
    for slot, level in enumerate(levels):
        if level is not None and not -1 <= level < count:
            raise IndexError(f"slot {slot} asks for level {level}, but there are {count} levels")
    work, tolerance = problem.work_s, problem.finish_tolerance
    if work <= tolerance:
        return Evaluation(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    watts = [level.power_w + problem.host_w for level in problem.levels]
    speeds = [level.speed for level in problem.levels]
    rents = [level.rent_per_h / 3600.0 for level in problem.levels]
    making = [level.embodied_g_per_h / 3600.0 for level in problem.levels]
    prices = problem.price_per_kwh or (0.0,) * len(problem.dur_s)
    kwh_per_j = problem.pue / J_PER_KWH
    fastest, slots = problem.fastest, len(problem.dur_s)
    current, age, resumes = problem.initial_level, problem.initial_age_slots, 0
    shadows = problem.shadow_per_h or ((0.0,) * count,) * slots
    clock = done = grams = embodied = cost = kwh = shadow = 0.0
    violations: list[Violation] = []

    wanted = chain(levels[:slots], repeat(None))
    # past the deadline: the fastest level, one switch at most, at the last slot's intensity and price
    for slot, (duration, asked) in enumerate(zip((*problem.dur_s, math.inf), wanted, strict=False)):
        known = min(slot, slots - 1)
        level = fastest if asked is None or asked < 0 else asked
        switch_time = joules = 0.0
        if level != current:
            time = problem.switch_s[current][level]
            if time is None:
                violations.append(Violation("forbidden switch", slot, current, level))
            elif time > duration + SECONDS_TOLERANCE:
                violations.append(Violation("switch longer than slot", slot, current, level))
            switch_time = min(time or 0.0, duration)
            joules = switch_time * (problem.switch_w[current][level] + problem.host_w)
            was_running, is_running = speeds[current] > 0, speeds[level] > 0
            if was_running != is_running:
                if slot < slots and age < (problem.min_run_slots if was_running else problem.min_pause_slots):
                    violations.append(Violation("min dwell", slot, current, level))
                age = 0
                if is_running:
                    resumes += 1
                    if problem.max_resumes is not None and resumes > problem.max_resumes:
                        violations.append(Violation("max_resumes", slot, current, level))
            current = level
        age += 1
        speed = speeds[level]
        use = duration - switch_time
        if speed > 0:
            use = min(use, (work - done) / speed)
            done += speed * use
        joules += watts[level] * use
        energy = joules * kwh_per_j
        kwh += energy
        grams += energy * problem.ci_g_per_kwh[known]
        cost += energy * prices[known] + rents[level] * (switch_time + use)
        embodied += making[level] * (switch_time + use)
        shadow += shadows[known][level] / 3600.0 * (switch_time + use)
        if slot == slots or done >= work - tolerance:
            break
        clock += duration
    late = switch_time + use if slot == slots and switch_time + use >= LATE_TOLERANCE_S else 0.0
    finish_s = clock + switch_time + use
    return Evaluation(
        objective=problem.alpha * cost + problem.beta * (grams + embodied) + shadow + problem.price_of_time * finish_s,
        gco2=grams,
        cost=cost,
        kwh=kwh,
        finish_s=finish_s,
        late_s=late,
        resumes=resumes,
        violations=tuple(violations),
    )


def spelled_out(problem: Problem, levels: Sequence[int | None], finish_s: float) -> tuple[int, ...]:
    """The same schedule slot by slot: at full speed where it names no level, -1 from the finish on."""
    begins = accumulate(problem.dur_s[:-1], initial=0.0)
    return tuple(
        -1 if begin >= finish_s - 1e-9 else problem.fastest if level is None or level < 0 else level
        for begin, level in zip(begins, chain(levels, repeat(None)), strict=False)
    )
