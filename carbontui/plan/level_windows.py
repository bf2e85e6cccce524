"""A schedule as windows of one level: energy, emissions and gain of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from carbontui.plan.problem import Problem
from carbontui.units import J_PER_KWH


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive slots at one level, in seconds from slot 0. `ci_g_per_kwh` is the time mean; `gco2` are its grams,
    including the switch into it.

    `gain` are the grams saved against running at full speed in that time: for a running window, against the same work;
    for one that does not run, with its work made up at the running windows' mean grams per work. It is an attribution,
    and need not sum to the whole plan's saving against another.
    """

    level: int
    start_s: float
    end_s: float
    ci_g_per_kwh: float
    kwh: float
    gco2: float
    gain: float


@dataclass(slots=True)
class _Sum:
    level: int
    start_s: float
    end_s: float
    weighted: float = 0.0
    kwh: float = 0.0
    gco2: float = 0.0
    work: float = 0.0
    flat_g: float = 0.0


def windows(problem: Problem, levels: Sequence[int]) -> tuple[Window, ...]:
    """The windows of a schedule (-1 from the finish on), in order."""
    sums = _sums(problem, levels)
    running = [one for one in sums if one.work > 0]
    work = sum(one.work for one in running)
    per_work = sum(one.gco2 for one in running) / work if work else 0.0
    found = []
    for one in sums:
        seconds = max(one.end_s - one.start_s, 1e-9)
        if problem.levels[one.level].running:
            gain = one.flat_g * one.work / (seconds * problem.levels[problem.fastest].speed) - one.gco2
        else:
            gain = one.flat_g - one.gco2 - per_work * seconds * problem.levels[problem.fastest].speed
        mean = one.weighted / seconds
        found.append(Window(one.level, one.start_s, one.end_s, mean, one.kwh, one.gco2, gain))
    return tuple(found)


def _sums(problem: Problem, levels: Sequence[int]) -> list[_Sum]:
    kwh_per_j = problem.pue / J_PER_KWH
    flat_w = problem.levels[problem.fastest].power_w + problem.host_w
    sums: list[_Sum] = []
    for slot in walk(problem, levels):
        if not sums or sums[-1].level != slot.level:
            sums.append(_Sum(slot.level, slot.start_s, slot.start_s))
        one, ci, spent_s = sums[-1], problem.ci_g_per_kwh[slot.number], slot.switch_s + slot.use_s
        kwh = (slot.switch_j + slot.use_j) * kwh_per_j
        one.work += problem.levels[slot.level].speed * slot.use_s
        one.kwh += kwh
        one.gco2 += kwh * ci
        one.flat_g += flat_w * spent_s * kwh_per_j * ci
        one.weighted += ci * spent_s
        one.end_s = slot.start_s + spent_s
    return sums


class WalkedSlot(NamedTuple):
    """One slot of a schedule: its switch, then the time at its level, which ends with the work. Joules without PUE."""

    number: int
    level: int
    start_s: float
    switch_s: float
    switch_j: float
    use_s: float
    use_j: float


def walk(problem: Problem, levels: Sequence[int]) -> Iterator[WalkedSlot]:
    """The slots of a schedule up to its finish."""
    current, clock, done = problem.initial_level, 0.0, 0.0
    for number, (level, duration) in enumerate(zip(levels, problem.dur_s, strict=False)):
        if level < 0:
            return
        switch_s = 0.0 if level == current else min(problem.switch_s[current][level] or 0.0, duration)
        switch_j = switch_s * (problem.switch_w[current][level] + problem.host_w)
        speed, use_s = problem.levels[level].speed, duration - switch_s
        if speed > 0:
            use_s = min(use_s, max(0.0, problem.work_s - done) / speed)
            done += speed * use_s
        use_j = use_s * (problem.levels[level].power_w + problem.host_w)
        yield WalkedSlot(number, level, clock, switch_s, switch_j, use_s, use_j)
        current, clock = level, clock + duration
