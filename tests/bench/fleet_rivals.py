"""What else a cluster could do: first in first out with backfill, one cap for all, start windows, greedy; slot by slot.

Every policy lives by the same rules as the fleet's planner: jobs begin at slots, know their length, keep to the site's
watts and GPUs, and one that can no longer be in time is not begun (which favours those that do not look ahead).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from carbontui.extensions.fleet.placing import decided, planned
from carbontui.extensions.fleet.problem import NEVER, FleetJobs, FleetProblem, FleetSite, to_come
from carbontui.extensions.fleet.queue_problem import EARLIER, EXPECTED, UNDONE

FULL = 0
Forecast = Callable[[int, int], np.ndarray]
"""(slot of now, how many slots ahead) -> cost of a watt per slot, as then expected."""


@dataclass
class Trace:
    """Jobs by arrival; lengths in slots per level, watts of all boards per level, deadlines in slots."""

    arrival: np.ndarray
    gpus: np.ndarray
    watts: np.ndarray
    length: np.ndarray
    end: np.ndarray

    @property
    def touched(self) -> np.ndarray:
        return np.maximum(1, np.ceil(self.length - 1e-9)).astype(int)


class Site:
    """What is left of every slot."""

    def __init__(self, power_w: np.ndarray, gpus: np.ndarray) -> None:
        self.watts, self.gpus = power_w.astype(float).copy(), gpus.astype(float).copy()

    def fits(self, trace: Trace, job: int, start: int, level: int) -> bool:
        span = slice(start, start + trace.touched[job, level])
        return (
            span.stop <= len(self.watts)
            and self.watts[span].min() >= trace.watts[job, level] - 1e-6
            and self.gpus[span].min() >= trace.gpus[job] - 1e-6
        )

    def take(self, trace: Trace, job: int, start: int, level: int, sign: float = 1.0) -> None:
        span = slice(start, start + trace.touched[job, level])
        self.watts[span] -= sign * trace.watts[job, level]
        self.gpus[span] -= sign * trace.gpus[job]


def fifo(trace: Trace, site: Site, level: int = FULL, begin: np.ndarray | None = None) -> np.ndarray:
    """Starts of first in first out with EASY backfill: the first that waits has a reservation, others may not delay it.
    `begin`: not before these slots, and by them in order."""
    wanted = trace.arrival if begin is None else begin
    order = np.argsort(wanted, kind="stable")
    start, waiting, next_one = np.full(len(wanted), NEVER), [], 0
    for now in range(len(site.watts)):
        while next_one < len(order) and wanted[order[next_one]] <= now:
            waiting.append(int(order[next_one]))
            next_one += 1
        left, reserved = [], None
        for job in waiting:
            if now + trace.length[job, level] > trace.end[job] + 1e-9:
                continue
            if site.fits(trace, job, now, level):
                site.take(trace, job, now, level)
                start[job] = now
                continue
            left.append(job)
            if reserved is None:
                last = len(site.watts) - trace.touched[job, level]
                at = next((slot for slot in range(now + 1, last + 1) if site.fits(trace, job, slot, level)), None)
                if at is not None:
                    reserved = (job, at)
                    site.take(trace, job, at, level)
        if reserved is not None:
            site.take(trace, *reserved, level, sign=-1.0)
        waiting = left
    return start


def windows(trace: Trace, site: Site, forecast: Forecast) -> np.ndarray:
    """Each job waits for its own cleanest window, as forecast when it comes; then first in first out."""
    begin = trace.arrival.copy()
    for job, now in enumerate(trace.arrival):
        n = trace.touched[job, FULL]
        last = int(min(trace.end[job] - trace.length[job, FULL], len(site.watts) - n))
        if last > now:
            sums = np.concatenate([[0.0], np.cumsum(forecast(int(now), last - now + n))])
            begin[job] = now + int(np.argmin(sums[n:] - sums[:-n]))
    return fifo(trace, site, begin=begin)


def greedy(trace: Trace, site: Site, forecast: Forecast) -> tuple[np.ndarray, np.ndarray]:
    """Each job takes the cleanest start and level that has room when it comes, and keeps it."""
    start, level = np.full(len(trace.arrival), NEVER), np.zeros(len(trace.arrival), dtype=int)
    for job in np.argsort(trace.arrival, kind="stable"):
        now, best = int(trace.arrival[job]), (np.inf, 0, 0)
        for at_level in range(trace.watts.shape[1]):
            n = trace.touched[job, at_level]
            last = int(min(np.floor(trace.end[job] - trace.length[job, at_level] + 1e-9), len(site.watts) - n))
            if last < now:
                continue
            sums = np.concatenate([[0.0], np.cumsum(forecast(now, last - now + n))])
            cost = (sums[n:] - sums[:-n]) * trace.watts[job, at_level]
            for place in np.argsort(cost, kind="stable"):
                if cost[place] >= best[0]:
                    break
                if site.fits(trace, job, now + int(place), at_level):
                    best = (float(cost[place]), now + int(place), at_level)
                    break
        if best[0] < np.inf:
            start[job], level[job] = best[1], best[2]
            site.take(trace, job, *best[1:])
    return start, level


def fleet(trace: Trace, site: Site, forecast: Forecast, *, ahead: int, week: int) -> tuple[np.ndarray, np.ndarray]:
    """The fleet's planner over `ahead` slots, made anew every slot with what came in the last `week` slots to come
    again; what it begins now is begun."""
    start, level = np.full(len(trace.arrival), NEVER), np.zeros(len(trace.arrival), dtype=int)
    total = len(site.watts)
    for now in range(total):
        waits = np.nonzero((trace.arrival <= now) & (start == NEVER))[0]
        waits = waits[now + trace.length[waits, FULL] <= trace.end[waits] + 1e-9]
        if not len(waits):
            continue
        n = min(ahead, total - now)
        weight = np.maximum(forecast(now, n), 1e-9) * (1 + EARLIER * np.arange(n))
        known = min(now + 1, week)
        past = np.nonzero((trace.arrival <= now) & (trace.arrival > now - known))[0]
        more = to_come(_jobs(trace, past, trace.arrival[past], weight, EXPECTED), now - trace.arrival[past], known, n)
        left = FleetSite(weight, site.watts[now : now + n], site.gpus[now : now + n])
        problem = FleetProblem(left, _jobs(trace, waits, now, weight, UNDONE).within(n))
        plan, _ = decided(problem, np.argsort(trace.arrival[waits], kind="stable"), more)
        for job, at, lv in zip(waits, plan.start, plan.level, strict=True):
            if at == 0:
                start[job], level[job] = now, lv
                site.take(trace, int(job), now, lv)
    return start, level


def hindsight(trace: Trace, site: Site, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One plan that knows all jobs and the grid from the beginning."""
    every, n = np.arange(len(trace.arrival)), len(weight)
    jobs = replace(_jobs(trace, every, 0, weight, UNDONE), first=trace.arrival.astype(np.int64))
    plan = planned(FleetProblem(FleetSite(weight, site.watts, site.gpus), jobs.within(n)))
    return plan.start, plan.level


def _jobs(trace: Trace, rows: np.ndarray, since: np.ndarray | int, weight: np.ndarray, undone: float) -> FleetJobs:
    """Some jobs of a trace, their ends counted from `since`."""
    return FleetJobs(
        trace.gpus[rows].astype(float),
        trace.watts[rows],
        trace.length[rows],
        np.zeros(len(rows), dtype=np.int64),
        trace.end[rows] - since,
        undone * trace.watts[rows, FULL] * trace.length[rows, FULL] * weight.mean(),
    )
