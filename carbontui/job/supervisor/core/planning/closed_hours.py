"""Hours closed because their carbon intensity is above the user's limit, as slots of a planning problem.

The rule of threshold tools as a constraint of the plan: above the limit the job waits, at most `max_wait_s` at a
time, then it runs until the intensity has been below the limit once. The deadline ranks above it: if too few hours
are left, the cleanest closed ones are opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from carbontui.job.supervisor.core.planning.problem import DEFAULT_START_S, Machine, PlanningProblem
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours, stretches
from carbontui.plan.problem import STANDS_STILL

RESUME_ROOM_S = 120.0
"""Reserved for every resume, and once more at the end: a wait must not make a job late by its own switching."""


def closed_slots(
    setup: PlanningProblem,
    machine: Machine,
    *,
    limit_g: float,
    max_wait_s: float,
    waited_s: float,
    released: bool,
    work_left_s: float,
) -> dict[int, int]:
    """{slot: index of the level it is held at} for a problem of core/problem.py.

    `waited_s`: time already waited when slot 0 begins. `released`: a wait has reached its maximum and no slot has been
    below the limit since, so slot 0 and those after it stay open until one is.
    """
    intensity = setup.problem.slots.ci_g_per_kwh
    closed: list[int] = []
    at = 0
    for above, group in groupby(intensity, key=lambda value: value > limit_g):
        slots = range(at, at + len(list(group)))
        at = slots.stop
        if not above or (slots.start == 0 and released):
            continue
        waited = waited_s if slots.start == 0 else 0.0
        for slot in slots:
            waited += setup.durations[slot]
            if waited > max_wait_s + 1.0:
                break
            closed.append(slot)
    closed = _that_leave_room(closed, intensity, setup.durations, work_left_s)
    return _held_at(closed, setup, machine)


def _that_leave_room(
    closed: Sequence[int], intensity: Sequence[float], durations: Sequence[float], work_left_s: float
) -> list[int]:
    """The closed slots without the cleanest ones, as far as the work needs their time before the deadline."""
    kept = sorted(closed, key=lambda slot: -intensity[slot])
    while kept:
        shut = set(kept)
        open_s = sum(duration for slot, duration in enumerate(durations) if slot not in shut)
        returns = sum(1 for slot in shut if slot + 1 not in shut)
        if open_s >= work_left_s + DEFAULT_START_S + RESUME_ROOM_S * (returns + 1):
            break
        kept.pop()
    return sorted(kept)


def _held_at(closed: Sequence[int], setup: PlanningProblem, machine: Machine) -> dict[int, int]:
    """Each wait at the level that uses the least energy over its length: off before the start, unloaded where exiting
    and resuming cost less than staying in memory."""
    index: dict[str, int] = {level.kind: k for k, level in enumerate(setup.levels)}
    found: dict[int, int] = {}
    for _, group in groupby(enumerate(closed), key=lambda pair: pair[1] - pair[0]):
        slots = [slot for _, slot in group]
        seconds = sum(setup.durations[slot] for slot in slots)
        back_and_forth_j = (machine.unload_s + machine.reload_s) * machine.full_w
        unloaded = "unload" in index and (machine.parked_w - machine.idle_w) * seconds > back_and_forth_j
        kind = "off" if "off" in index else "unload" if unloaded else "pause"
        # `off` is only possible before the start, so only from slot 0 on and without a gap
        if kind == "off" and slots[0] != 0 and not set(range(slots[0])) <= set(found):
            kind = "pause"
        found |= dict.fromkeys(slots, index[kind])
    return found


def slots(hours: tuple[ForbiddenHours, ...], setup: PlanningProblem) -> dict[int, int]:
    """The slots of a problem that they touch: each is idle as a whole, at the still level that costs least."""
    found: dict[int, int] = {}
    windows = stretches(hours, setup.start_s, setup.start_s + sum(setup.durations)) if hours else []
    at = setup.start_s
    for slot, duration in enumerate(setup.durations):
        if any(start < at + duration - 1.0 and end > at + 1.0 for start, end in windows):
            found[slot] = STANDS_STILL
        at += duration
    return found
