"""Builds a planning problem from what is known of a job.

Numpy-free: the supervisor builds it, the worker solves it. Watts are learned while the job runs; until then they are
documented defaults, marked as such.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from carbontui import units
from carbontui.account import boundary
from carbontui.account.boundary import Counted, Draw, Kind, Place
from carbontui.account.expected_end import without_gaps
from carbontui.grid.types import GridForecast
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours, stretches
from carbontui.job.supervisor.core.state.plan import STILL, Level, cap_name
from carbontui.plan.problem import STANDS_STILL, ProblemFile, ProblemInitial, ProblemLevel, ProblemSlots, ProblemSwitch


def slots(hours: tuple[ForbiddenHours, ...], setup: PlanningProblem) -> dict[int, int]:
    """The slots of a problem that they touch: each is idle as a whole, at the still level that costs least."""
    edges_s = setup.edges_s
    windows = stretches(hours, edges_s[0], edges_s[-1]) if hours else []
    return {
        slot: STANDS_STILL
        for slot, (begin, over) in enumerate(itertools.pairwise(edges_s))
        if any(start < over - 1.0 and end > begin + 1.0 for start, end in windows)
    }


SLOT_S = 900.0
SLOTS_MAX = 400
MERGE_BELOW_S = 30.0
BAND = 2.563
"""Standard deviations in an 80 % band."""
DEFAULT_FULL_W = 300.0
"""Board watts at full speed before anything was measured and where the limit is unknown."""
DEFAULT_PARKED_W = 90.0
"""Board watts with a model in VRAM: 60-130 W on data-centre parts, measured on this job as soon as it pauses."""
DEFAULT_IDLE_W = 25.0
"""Of a board that was not seen idle, of a model without published idle watts."""
DEFAULT_CPU_W = 65.0
"""A desktop CPU at work, where there is no GPU and nothing was measured yet."""
DEFAULT_CPU_PARKED_SHARE, DEFAULT_CPU_IDLE_SHARE = 0.4, 0.1
DEFAULT_PAUSE_S = 2.0
DEFAULT_RESUME_S = 5.0
DEFAULT_UNLOAD_S = 30.0
DEFAULT_RELOAD_S = 120.0
DEFAULT_RELOAD_MIN_S = 1.0
DEFAULT_START_S = 30.0
DUTY_SHARE = 0.5
"""Where no cap can be set the client can run for a share of the time, in whole steps. That saves watts, not energy: an
idle board draws its parked watts. To a plan it is half a pause without switching costs."""


class PowerCap(NamedTuple):
    """A calibrated power cap: the limit in watts per GPU, watts of all boards under it, speed relative to full
    speed."""

    cap_w: float
    power_w: float
    speed: float
    assumed: bool = False
    """Between or below the calibrated caps: worked out from them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What has been learned (or assumed) of this job on these boards. Watts are sums over the job's boards."""

    full_w: float = DEFAULT_FULL_W
    full_measured: bool = False
    parked_w: float = DEFAULT_PARKED_W
    parked_measured: bool = False
    idle_w: float = DEFAULT_IDLE_W
    rest_w: float = 0.0
    """CPU and memory at full speed."""
    rest_parked_w: float = 0.0
    """CPU and memory while the training is paused."""
    rest_idle_w: float = 0.0
    """CPU and memory without the job's work."""
    host_w: float = 0.0
    """All else in the machine."""
    boundary: Kind = "given-back"
    gives_back: bool = False
    pue: float = 1.0
    caps: tuple[PowerCap, ...] = ()
    can_duty: bool = False
    """No cap can be set, and a client is present that can idle between steps."""
    pause_s: float = DEFAULT_PAUSE_S
    resume_s: float = DEFAULT_RESUME_S
    can_unload: bool = False
    unload_s: float = DEFAULT_UNLOAD_S
    reload_s: float = DEFAULT_RELOAD_S
    unload_w: float | None = None
    reload_w: float | None = None
    """Mean watts counted while it unloads and resumes, if a rehearsal measured them."""

    def counted(self, level: Level) -> Counted:
        """What the account counts at a level. A start that a successor makes is waited for in the queue, not here."""
        if level.kind == "off" and self.gives_back:
            return "nothing"
        place: Place = "off" if level.kind == "off" else "unload" if level.kind == "unload" else "here"
        return boundary.counted(self.boundary, place, gives_back=self.gives_back)

    def charged_w(self, level: Level) -> float:
        """The watts that count at a level, before PUE; `power_w` of a level are its boards' alone."""
        rest = {"off": self.rest_idle_w, "unload": self.rest_idle_w, "pause": self.rest_parked_w}
        drawn = Draw(level.power_w, rest.get(level.kind, self.rest_w), self.host_w)
        return boundary.charged_w(self.counted(level), drawn, Draw(self.idle_w, self.rest_idle_w))

    @property
    def full_charged_w(self) -> float:
        return self.charged_w(Level("full", "full", self.full_w, 1.0))


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective: alpha per currency unit, beta per gram; rent and embodied grams per hour while GPUs are held."""

    alpha: float = 0.0
    beta: float = 1.0
    rent_per_h: float = 0.0
    embodied_g_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """A problem and what its level indices and slots mean."""

    problem: ProblemFile
    levels: tuple[Level, ...]
    start_s: float
    first_s: float
    slot_s: float
    deadline_s: float
    durations: tuple[float, ...] = field(repr=False, default=())
    spread: tuple[float, ...] = field(repr=False, default=())
    """One standard deviation of the objective per kWh by slot, where a forecast has a band; () where nothing has."""

    @property
    def edges_s(self) -> tuple[float, ...]:
        """Where each slot begins, and where the last ends."""
        return tuple(itertools.accumulate(self.durations, initial=self.start_s))


def levels_of(machine: Machine, *, started: bool) -> tuple[Level, ...]:
    """The available levels by rising watts: off (only before the start), unload, pause, caps or else duty, full."""
    found: list[Level] = []
    if not started:
        found.append(Level("off", "off", machine.idle_w if machine.boundary == "held" else 0.0, 0.0))
    if started and machine.can_unload:
        found.append(Level("unload", "unload", machine.idle_w, 0.0))
    found.append(Level("pause", "pause", machine.parked_w, 0.0))
    found += [
        Level(cap_name(cap.cap_w), "cap", cap.power_w, cap.speed, cap_w=cap.cap_w, assumed=cap.assumed)
        for cap in sorted(machine.caps, key=lambda c: c.cap_w)
    ]
    if machine.can_duty and not machine.caps:
        watts = DUTY_SHARE * machine.full_w + (1 - DUTY_SHARE) * machine.parked_w
        found.append(Level(f"duty {100 * DUTY_SHARE:.0f} %", "duty", watts, DUTY_SHARE))
    return (*found, Level("full", "full", machine.full_w, 1.0))


def slots_of(now_s: float, deadline_s: float, *, started: bool = True) -> tuple[list[float], float]:
    """(durations, slot seconds): a partial first slot up to the next boundary, a partial last one to the deadline.

    A slot is 15 minutes, doubled until at most 400 of them reach the deadline.
    """
    step = SLOT_S
    while (deadline_s - now_s) / step > SLOTS_MAX:
        step *= 2
    first = (math.floor(now_s / step) + 1) * step - now_s
    # to get a start over with in half a minute of dirty power, and wait then, is no plan that anybody wants
    if first < (MERGE_BELOW_S if started else 4 * DEFAULT_START_S):
        first += step
    if now_s + first >= deadline_s:
        return [deadline_s - now_s], step
    durations = [first]
    at = now_s + first
    while deadline_s - at > 1e-6:
        durations.append(min(step, deadline_s - at))
        at += durations[-1]
    if len(durations) > 1 and durations[-1] < 1.0:
        rest = durations.pop()
        durations[-1] += rest
    return durations, step


def build(
    *,
    now_s: float,
    deadline_s: float,
    outlook: GridForecast,
    machine: Machine,
    objective: Objective,
    work_left_s: float,
    started: bool,
    level_now: str,
    age_s: float,
    flat_price: float | None = None,
) -> PlanningProblem:
    """The problem from now to the deadline."""
    durations, slot_s = slots_of(now_s, deadline_s, started=started)
    levels = levels_of(machine, started=started)
    spans = list(itertools.pairwise(itertools.accumulate(durations, initial=now_s)))

    def sample(values: Sequence[float | None]) -> list[float | None]:
        return [units.mean_over(values, outlook.start_s, outlook.step_s, a, b) for a, b in spans]

    mean = without_gaps(sample(outlook.mean)) or [0.0] * len(spans)
    price: list[float] | None = None
    if any(value is not None for value in outlook.price):
        price = without_gaps(sample(outlook.price)) or [flat_price or 0.0] * len(spans)
    elif flat_price is not None:
        price = [flat_price] * len(durations)
    names = [level.name for level in levels]
    current = names.index(level_now) if level_now in names else len(names) - 1
    problem = ProblemFile(
        slots=ProblemSlots(tuple(durations), tuple(mean), None if price is None else tuple(price)),
        levels=tuple(_level(level, objective, machine) for level in levels),
        switch=switching(levels, machine, shortest_full_slot=max(durations)),
        initial=ProblemInitial(current, max(1, int(age_s // slot_s))),
        work_s=work_left_s,
        pue=machine.pue,
        alpha=objective.alpha,
        beta=objective.beta,
    )
    spread: tuple[float, ...] = ()
    if outlook.how == "forecast":
        grams = _deviations(sample(outlook.lo), sample(outlook.hi))
        money = _deviations(sample(outlook.price_lo), sample(outlook.price_hi))
        spread = tuple(math.hypot(objective.beta * a, objective.alpha * b) for a, b in zip(grams, money, strict=True))
    return PlanningProblem(problem, levels, now_s, durations[0], slot_s, deadline_s, tuple(durations), spread)


def _deviations(low: Sequence[float | None], high: Sequence[float | None]) -> list[float]:
    """Standard deviations of an 80 % band by slot; 0 where it is not known."""
    return [0.0 if a is None or b is None else (b - a) / BAND for a, b in zip(low, high, strict=True)]


def _level(level: Level, objective: Objective, machine: Machine) -> ProblemLevel:
    per_h = (0.0, 0.0) if machine.counted(level) == "nothing" else (objective.rent_per_h, objective.embodied_g_per_h)
    return ProblemLevel(level.name, machine.charged_w(level), level.speed, *per_h)


def switching(levels: tuple[Level, ...], machine: Machine, shortest_full_slot: float) -> ProblemSwitch:
    """Seconds and watts from row to column. Running to running is free: a limit is set in milliseconds."""

    def seconds(a: Level, b: Level) -> float | None:
        if a.kind == b.kind and a.name == b.name:
            return 0.0
        if b.kind == "off":
            return None
        if a.kind == "off":
            return None if b.kind in STILL else DEFAULT_START_S
        if a.kind == "unload":
            return machine.reload_s
        if b.kind == "unload":
            return machine.unload_s
        if a.kind == "pause":
            return machine.resume_s
        return machine.pause_s if b.kind == "pause" else 0.0

    # half at work, half parked, with the host at work
    watts = machine.charged_w(Level("", "full", 0.5 * (machine.full_w + machine.parked_w), 1.0))
    limit: Callable[[float | None], float | None] = lambda s: None if s is None else min(s, shortest_full_slot)  # noqa: E731
    times = tuple(tuple(limit(seconds(a, b)) for b in levels) for a in levels)

    def drawn(a: Level, b: Level) -> float:
        if a.kind == "unload" != b.kind and machine.reload_w is not None:
            return machine.reload_w
        return machine.unload_w if b.kind == "unload" != a.kind and machine.unload_w is not None else watts

    return ProblemSwitch(times, tuple(tuple(drawn(a, b) for b in levels) for a in levels))
