"""Jobs still to come: those that came before, once more.

A plan that knows only the waiting jobs leaves hours to them that others will want. So it is made with as many jobs as
came in the past, a period later each. One of them is a guess: left undone it costs less than a waiting job, yet more
than its own CO2. Crowded hours thus have a price, empty ones have none, and a full cluster waits for
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np

from carbontui.extensions.fleet.problem import FleetJobs, FleetProblem, Floats
from carbontui.slurm.queue import QueuedJob

PAST_S = 7 * 86400.0
"""How much of the past is remembered and repeated: a week, the period of people's work."""


class Arrivals:
    """What has come since the first look at the queue; those that were there by then came nobody knows when."""

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
