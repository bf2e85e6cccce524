"""Which jobs of a cluster may start when, and at which level: their data, and all possible choices.

A job starts once, at the start of a slot, and runs in one piece at one level to its end. It occupies its GPUs and
its watts in every slot that it touches, so that limits per slot hold at every moment; its emissions are counted to
its end. Watts are those of all its boards. Shapes: n jobs, l levels, t slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbontui.slurm.queue import QueuedJob

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def summed(values: NDArray[np.generic]) -> Floats:
    """Up to every slot and to the end, along the last axis."""
    found = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=found[..., 1:])
    return found


NEVER = -1
"""The start of a job that is not started within the slots."""


@dataclass(frozen=True)
class FleetSite:
    """Capacity per slot; `weight` is the cost of a watt for one slot, in grams."""

    weight: Floats
    power_w: Floats
    gpus: Floats

    @property
    def slots(self) -> int:
        return len(self.weight)


@dataclass(frozen=True)
class FleetJobs:
    """`watts` and `length` (in slots) are n x l; an infinite length is a level that a job does not have."""

    gpus: Floats
    watts: Floats
    length: Floats
    first: Ints
    """First slot in which it may start."""
    end: Floats
    """Its deadline, in slots from the start of the first."""
    undone_g: Floats
    """Penalty for leaving it undone, in grams."""

    def __len__(self) -> int:
        return len(self.gpus)

    def of(self, rows: Ints) -> FleetJobs:
        return FleetJobs(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def within(self, slots: int) -> FleetJobs:
        """As a plan of so many slots has them: cut at its end, the rest is planned later. A level that ends after the
        deadline even if begun at once is none; a job that is late at every level has no deadline to keep, and is
        started where there is room. A level longer than the plan, of which only a part would be weighed, is one only
        if none takes less energy."""
        late = self.length.min(axis=1, initial=np.inf) > self.end
        kept = np.isfinite(self.length) & (late[:, None] | (self.length <= self.end[:, None] + 1e-9))
        energy = np.where(kept, self.watts * np.where(kept, self.length, 0.0), np.inf)
        kept &= (self.length <= slots) | (energy <= energy.min(axis=1, keepdims=True, initial=np.inf))
        length = np.where(kept, np.minimum(self.length, slots), np.inf)
        return replace(self, length=length, end=np.where(late, slots, np.minimum(self.end, slots)))


class FleetChoice(NamedTuple):
    """Per job: its first slot (or NEVER), its level, and its cost at the prices it was chosen with."""

    start: Ints
    level: Ints
    cost: Floats


class _OfLength(NamedTuple):
    """All choices that touch the same number of slots: who (job * l + level), and rows of factors (watts, watts of
    the last slot, gpus)."""

    slots: int
    who: Ints
    factors: Floats
    barred: NDArray[np.bool_]
    """Starts excluded by a job's time window."""


@dataclass(frozen=True)
class FleetProblem:
    site: FleetSite
    jobs: FleetJobs

    @cached_property
    def touched(self) -> Ints:
        """Slots that each level of each job touches, n x l; 0: no such level."""
        length = self.jobs.length
        whole = np.ceil(np.where(np.isfinite(length), length, 0.0) - 1e-9)
        return np.where(np.isfinite(length), np.maximum(1, whole), 0).astype(np.int64)

    @cached_property
    def last_start(self) -> Ints:
        """The last slot in which each level can start and be on time, n x l; before `first`: none."""
        length = np.where(np.isfinite(self.jobs.length), self.jobs.length, 0.0)
        in_time = np.floor(np.minimum(self.jobs.end, 1e9)[:, None] - length + 1e-9).astype(np.int64)
        return np.where(self.touched > 0, np.minimum(in_time, self.site.slots - self.touched), -1)

    @cached_property
    def _by_length(self) -> list[_OfLength]:
        levels = self.jobs.watts.shape[1]
        open_ = self.last_start >= self.jobs.first[:, None]
        found = []
        for slots in np.unique(self.touched[open_]):
            job, level = np.nonzero(open_ & (self.touched == slots))
            watts = self.jobs.watts[job, level]
            rest = self.jobs.length[job, level] - (slots - 1)
            starts = np.arange(self.site.slots - slots + 1)
            late = starts[None, :] > self.last_start[job, level][:, None]
            barred = late | (starts[None, :] < self.jobs.first[job][:, None])
            factors = np.stack([watts, watts * rest, self.jobs.gpus[job]], axis=1)
            found.append(_OfLength(int(slots), job * levels + level, factors, barred))
        return found

    @cached_property
    def spent(self) -> Floats:
        """Grams of a watt up to every slot and to the end."""
        return summed(self.site.weight)

    def best(self, watt_price: Floats, gpu_price: Floats) -> FleetChoice:
        """The cheapest choice of every job individually, at a price per watt and slot and per GPU and slot."""
        shape, watts_price, gpus_price = self.jobs.watts.shape, summed(watt_price), summed(gpu_price)
        cost, start = np.full(shape, np.inf), np.full(shape, NEVER)
        for of in self._by_length:
            n, spent = of.slots, self.spent
            watt = spent[n - 1 : -1] - spent[: len(spent) - n] + watts_price[n:] - watts_price[:-n]
            # of a watt (priced, and emitted except in the last slot), of a watt emitted through the last slot, of a GPU
            per = np.array([watt, self.site.weight[n - 1 :], gpus_price[n:] - gpus_price[:-n]])
            costs = of.factors @ per
            np.copyto(costs, np.inf, where=of.barred)
            at = costs.argmin(axis=1)
            cost.flat[of.who] = costs[np.arange(len(at)), at]
            start.flat[of.who] = at
        level = cost.argmin(axis=1)
        rows = np.arange(len(self.jobs))
        least = cost[rows, level]
        undone = self.jobs.undone_g < least
        return FleetChoice(np.where(undone, NEVER, start[rows, level]), level, np.minimum(self.jobs.undone_g, least))

    def loads(self, start: Ints, level: Ints) -> tuple[Floats, Floats]:
        """Watts and GPUs of the started jobs in every slot."""
        on = np.nonzero(start >= 0)[0]
        begin, n = start[on], self.touched[on, level[on]]
        edges = np.zeros((2, self.site.slots + 1))
        for row, amount in enumerate((self.jobs.watts[on, level[on]], self.jobs.gpus[on])):
            edges[row] += np.bincount(begin, amount, self.site.slots + 1)
            edges[row] -= np.bincount(begin + n, amount, self.site.slots + 1)
        watts, gpus = np.cumsum(edges, axis=1)[:, :-1]
        return watts, gpus

    def grams(self, start: Ints, level: Ints) -> Floats:
        """Grams of every job; 0 if it is not started."""
        spent = self.spent
        rows = np.arange(len(self.jobs))
        length, begin = self.jobs.length[rows, level], np.maximum(start, 0)
        length = np.where(start >= 0, length, 0.0)
        end = begin + length
        whole = np.minimum(end.astype(np.int64), self.site.slots - 1)
        done = spent[whole] + (end - whole) * self.site.weight[whole]
        return np.where(start >= 0, self.jobs.watts[rows, level] * (done - spent[begin]), 0.0)

    def total_g(self, start: Ints, level: Ints) -> float:
        """The objective: grams, plus the penalty for undone work."""
        return float(self.grams(start, level).sum() + self.jobs.undone_g[start < 0].sum())


PAST_S = 7 * 86400.0
"""How much of the past is remembered and repeated: a week, the period of people's work."""


class Arrivals:
    """What has come since the first look at the queue; those that were there by then came nobody knows when.

    A plan that knows only the waiting jobs leaves hours to them that others will want. So it is made with as many jobs
    as came in the past, a period later each. One of them is a guess: left undone it costs less than a waiting job, yet
    more than its own CO2. Crowded hours thus have a price, empty ones have none, and a full cluster waits for nothing.
    """

    def __init__(self) -> None:
        self.since_s: float | None = None
        self._arrived: dict[str, tuple[float, QueuedJob]] = {}

    def observe(self, jobs: Iterable[QueuedJob], now_s: float) -> None:
        """A successor, which goes on with a job's work, has not come anew."""
        first = self.since_s is None
        for job in jobs:
            if job.asked.movable and job.id not in self._arrived:
                came = not (first or job.runs or job.asked.after)
                self._arrived[job.id] = (now_s if came else -np.inf, job)
        here = {job.id for job in jobs}
        self._arrived = {id: one for id, one in self._arrived.items() if id in here or one[0] > now_s - PAST_S}
        self.since_s = now_s if self.since_s is None else max(self.since_s, now_s - PAST_S)

    def came(self) -> list[tuple[float, QueuedJob]]:
        """When each came, epoch seconds."""
        return [one for one in self._arrived.values() if self.since_s is not None and one[0] >= self.since_s]


def to_come(past: FleetJobs, age: Floats, known: float, slots: int) -> FleetJobs:
    """The jobs that came in the `known` slots before the plan, again and again within it. `age`: how many slots before
    it each came; their ends are counted from then. Those that may end after the plan are left to the next."""
    rows, first = [], []
    for again in range(1, int(slots // max(known, 1.0)) + 2):
        at = np.ceil(again * max(known, 1.0) - age).astype(np.int64)
        here = np.nonzero((at > 0) & (at + past.end <= slots))[0]
        rows.append(here)
        first.append(at[here])
    row, begin = np.concatenate(rows), np.concatenate(first)
    chosen = past.of(row)
    return replace(chosen, first=begin, end=begin + chosen.end).within(slots)


def joined(problem: FleetProblem, more: FleetJobs) -> FleetProblem:
    """With these jobs behind its own."""
    levels = max(problem.jobs.watts.shape[1], more.watts.shape[1])
    both = {name: [getattr(jobs, name) for jobs in (problem.jobs, more)] for name in (one.name for one in fields(more))}
    jobs = {name: np.concatenate([_wide(values, name, levels) for values in two]) for name, two in both.items()}
    return FleetProblem(problem.site, FleetJobs(**jobs))


def _wide(values: Floats, name: str, levels: int) -> Floats:
    """A table of so many levels; the added ones are infinitely long."""
    if values.ndim == 1:
        return values
    added = ((0, 0), (0, levels - values.shape[1]))
    return np.pad(values, added, constant_values=np.inf if name == "length" else 0.0)
