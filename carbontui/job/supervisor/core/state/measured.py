"""Measurements of the running job: watts at full speed and parked, seconds to pause and to resume."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

SETTLE_WALL_S = 1.5
"""After a change of state the boards' averaged readings need this long to reflect the new one."""
MEMORY = 120
"""Window of the mean in samples; older ones have little weight."""
PAUSE_MAX_S, RESUME_MAX_S = 60.0, 600.0
"""A longer wait had another cause than the pause or resume itself."""

BUSY_S = 300.0
"""Window of the mean of the boards' utilisation."""
IDLE = 0.05
"""A board that is less busy computes nothing."""

PowerState = Literal["full", "parked", "idle"]


class Mean(NamedTuple):
    """A mean that slowly forgets old samples."""

    value: float | None = None
    samples: int = 0

    def plus(self, sample: float) -> Mean:
        samples = min(MEMORY, self.samples + 1)
        return Mean(sample if self.value is None else self.value + (sample - self.value) / samples, samples)


NO_MEAN = Mean()
Means = dict[str, Mean]
"""By GPU UUID. Never mutated: replaced by a new one."""


class Activity(NamedTuple):
    """How busy the boards have been since the training was last held."""

    busy: float = 0.0
    """Mean of the last minutes and of all boards."""
    seen_s: float = 0.0
    idle_s: float = 0.0
    """For how long now no board has computed."""

    def plus(self, busy: Sequence[float], dt_s: float) -> Activity:
        """`busy` by board, for `dt_s` more."""
        seen_s = min(BUSY_S, self.seen_s + dt_s)
        mean = self.busy + (sum(busy) / len(busy) - self.busy) * (dt_s / seen_s if seen_s else 0.0)
        return Activity(mean, seen_s, self.idle_s + dt_s if max(busy) < IDLE else 0.0)


NO_ACTIVITY = Activity()


@dataclass(frozen=True, slots=True)
class Measured:
    """Watts per GPU UUID where it concerns boards; seconds of the machine's clock where it concerns latencies."""

    full_w: Means = field(default_factory=dict)
    parked_w: Means = field(default_factory=dict)
    idle_w: Means = field(default_factory=dict)
    rest_w: Mean = NO_MEAN
    """CPU and DRAM while the training runs at full speed."""
    rest_parked_w: Mean = NO_MEAN
    """CPU and DRAM while the training is paused."""
    rest_idle_w: Mean = NO_MEAN
    """What of `rest_w` would be drawn without the job's work, by the same readings."""
    pause_s: Mean = NO_MEAN
    resume_s: Mean = NO_MEAN
    reload_s: Mean = NO_MEAN
    """From the start of the command to its first step: the time to resume from an unload."""
    unload_s: Mean = NO_MEAN
    """From the unload request to the exit of the process, its checkpoint written."""
    unload_j: Mean = NO_MEAN
    reload_j: Mean = NO_MEAN
    """Energy of unloading and resuming, of all counted parts of the machine, before PUE."""

    def of(self, kind: PowerState) -> Means:
        means: Means = getattr(self, f"{kind}_w")
        return means


class BoardsTotal(NamedTuple):
    """Sum over boards, and whether every one of them was measured."""

    watts: float
    measured: bool


def with_watts(known: Measured, kind: PowerState, readings: Iterable[tuple[str, float]]) -> Measured:
    """Settled readings (UUID, watts) of boards while the training was `full`, `parked` or `idle`."""
    table = dict(known.of(kind))
    for uuid, watts in readings:
        table[uuid] = table.get(uuid, Mean()).plus(watts)
    full_w, parked_w, idle_w = (table if kind == other else known.of(other) for other in get_args(PowerState))
    return replace(known, full_w=full_w, parked_w=parked_w, idle_w=idle_w)


def with_rest(known: Measured, watts: float, idle_w: float | None, *, parked: bool) -> Measured:
    """Settled watts of CPU and DRAM, parked or at full speed; `idle_w` of them without the job's work."""
    if parked:
        return replace(known, rest_parked_w=known.rest_parked_w.plus(watts))
    idle = known.rest_idle_w if idle_w is None else known.rest_idle_w.plus(idle_w)
    return replace(known, rest_w=known.rest_w.plus(watts), rest_idle_w=idle)


def total_w(known: Measured, kind: PowerState, uuids: tuple[str, ...], default_w: float) -> BoardsTotal:
    """The sum; a board not yet measured counts as the mean of the measured ones, else as `default_w`."""
    table = known.of(kind)
    seen = [mean.value for uuid, mean in table.items() if uuid in uuids and mean.value is not None]
    fallback = sum(seen) / len(seen) if seen else default_w
    return BoardsTotal(sum(seen) + fallback * (len(uuids) - len(seen)), bool(uuids) and len(seen) == len(uuids))
