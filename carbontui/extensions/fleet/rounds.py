"""A round of the fleet: Slurm's queue is read, planned within the site's budget, and its starts are moved, each move
logged before."""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from carbontui import link, paths, units
from carbontui.extensions.fleet import placing, queue_problem
from carbontui.extensions.fleet.placing import ConstantCap, FleetPlan
from carbontui.extensions.fleet.problem import NEVER, Arrivals, FleetProblem
from carbontui.extensions.fleet.queue_problem import FleetTerms, Move, QueueProblem, iso
from carbontui.slurm import queue
from carbontui.slurm.queue import QueuedJob
from carbontui.system import life


class MoveLog:
    """All moves of starts, on disk before Slurm is asked for them: lines of JSON {at, job, from, to, by, why}; of one
    that is not what was logged last, with it as both. Held by one fleet alone. Raises OSError, BlockingIOError where
    another has it."""

    def __init__(self, path: Path) -> None:
        descriptor = life.locked(path, 0.0)
        if descriptor is None:
            raise BlockingIOError(f"another fleet holds {path}: end it first")
        paths.sync_dir(path.parent)
        self._file, row = os.fdopen(descriptor, "r+b"), b"\n"
        self._starts: dict[str, list[str | None]] = {}
        """Of each job that we moved: before, and after each move that began where the one before had left it."""
        for row in self._file:
            with contextlib.suppress(ValueError, TypeError, LookupError):  # cut short by a power failure
                self._note(json.loads(row))
        self._file.write(b"" if row.endswith(b"\n") else b"\n")

    def _note(self, moved: Mapping[str, str | None]) -> None:
        job, before, after = str(moved["job"]), moved["from"], moved["to"]
        starts = self._starts.get(job, [])
        starts = starts if starts[-1:] == [before] or after in starts else [before]
        # back to where it was before; also where the last move has not been made
        self._starts[job] = starts[: starts.index(after) + 1] if after in starts else [*starts, after]

    def _append(self, rows: Iterable[tuple[str, str | None, str | None, str]], by: str) -> None:
        """Of these jobs: from, to, why."""
        for job, before, after, why in rows:
            moved = {"at": units.iso(time.time()), "job": job, "from": before, "to": after, "by": by, "why": why}
            self._file.write(json.dumps(moved).encode() + b"\n")
            self._note(moved)
        self._file.flush()
        os.fsync(self._file.fileno())

    def correct(self, jobs: Iterable[QueuedJob]) -> None:
        """Log what Slurm has otherwise: a fleet was ended before it asked, Slurm refused, or somebody set it."""
        ours = [(job.id, self._starts[job.id][-1], iso(job.set_s)) for job in jobs if self._moved(job)]
        self._append(((job, now, now, "not as logged last") for job, at, now in ours if at != now), "Slurm")

    def _moved(self, job: QueuedJob) -> bool:
        return len(self._starts.get(job.id, ())) > 1 and not job.runs

    def move(self, moves: Sequence[Move], jobs: Iterable[QueuedJob]) -> list[str]:
        """Of these jobs; what Slurm said of those that it refused. Raises OSError, SlurmError."""
        self.correct(jobs)
        self._append(((one.job.id, iso(one.job.set_s), iso(one.at_s // 1), one.why) for one in moves), link.whoami())
        return queue.move((one.job, one.at_s, one.cap_w) for one in moves)

    def undo(self, jobs: Sequence[QueuedJob]) -> tuple[list[Move], list[str]]:
        """Give each waiting job the start before our moves, where its start is still that of the last one; what Slurm
        said of those that it refused. Raises OSError, SlurmError, ValueError."""
        self.correct(jobs)
        ours = [(job, self._starts[job.id][0] or units.iso(0.0)) for job in jobs if self._moved(job)]
        now_s = time.time()
        back = [Move(job, max(units.from_iso(first), now_s), None, "undo") for job, first in ours]
        back = [one for one in back if abs(one.at_s - max(one.job.set_s or 0.0, now_s)) >= 1.0]
        return back, self.move(back, ())


class FleetRound(NamedTuple):
    """A plan, the starts that it changes, and what Slurm said of those that it refused to change."""

    made: QueueProblem
    plan: FleetPlan
    moves: list[Move]
    unmoved: list[str]
    later: list[Move]
    """Those beyond what a round may move."""
    least_w: float | None
    """If some jobs are not in time: the least constant budget under which all are; None: none, or unknown."""
    constant: ConstantCap | None = None
    """The best constant cap on the same jobs; None where no job has levels."""

    def to_dict(self, now_s: float) -> dict[str, Any]:
        """As JSON has it."""
        made, plan, placed = self.made, self.plan, queue_problem.placements(self.made, self.plan)
        return {
            "at": units.iso(now_s),
            "starts": {one.job.id: iso(one.start_s) for one in placed},
            "jobs": queue_problem.planned_jobs(placed),
            "moved": [move.job.id for move in self.moves],
            "later": [move.job.id for move in self.later],
            "planned_g": float(made.problem.grams(plan.start, plan.level).sum()),
            "gap": plan.gap,
            "undone": queue_problem.undone(made, plan),
            "least_cap_w": self.least_w,
            "constant_cap": self.constant_cap(),
            "slot_s": made.slot_s,
            "first_slot": units.iso(made.start_s),
            "watts": [round(value, 1) for value in (plan.watts + made.fixed_w).tolist()],
            "price_g_per_kwh": [round(value, 2) for value in made.price_g_per_kwh(plan)],
            "faults": list(made.faults),
        }

    def constant_cap(self) -> dict[str, Any] | None:
        """The constant cap, as JSON has it."""
        if self.constant is None:
            return None
        share, plan = self.constant
        grams = float(self.made.problem.grams(plan.start, plan.level).sum())
        undone = queue_problem.undone(self.made, plan)
        return {"share": share, "planned_g": grams, "undone": undone, "used": plan is self.plan}


LEAST_JOBS = 300
"""Of more jobs the least budget is not sought: it takes a dozen plans."""
LEAST_PASSES = 8


def least_cap_w(made: QueueProblem) -> float | None:
    """The least constant budget, in watts and to 0.4 % of all, with which a plan leaves no job undone; None where none
    does: the processors do not suffice."""
    if len(made.jobs) > LEAST_JOBS:
        return None

    def suffices(cap_w: float) -> bool:
        site = replace(made.problem.site, power_w=np.maximum(cap_w - made.fixed_w, 0.0))
        return bool((placing.planned(FleetProblem(site, made.problem.jobs)).start != NEVER).all())

    most = float(made.fixed_w.max() + made.problem.jobs.watts.max(axis=1).sum())
    least = 0.0
    if not suffices(most):
        return None
    for _ in range(LEAST_PASSES):
        cap_w = (most + least) / 2
        least, most = (least, cap_w) if suffices(cap_w) else (cap_w, most)
    return most


def run_round(
    terms: FleetTerms, intensity: Sequence[float], start_s: float, past: Arrivals, log: MoveLog | None
) -> FleetRound:
    """A round whose slots, of these g/kWh, begin at `start_s`; without a log it moves nothing. The queue is noted in
    `past`, and as many jobs are expected. Raises OSError, SlurmError."""
    nodes = queue.nodes()
    jobs = queue.queue(nodes)
    about = queue_problem.pool_of(jobs, nodes)
    made = queue_problem.problem(jobs, about, intensity, terms, start_s, queue.throttled())
    by_priority = np.argsort([-job.priority for job in made.jobs], kind="stable")
    past.observe(jobs, start_s - terms.slot_s)
    more = queue_problem.expected_jobs(made, past, about, terms.assumed)
    plan, constant = placing.decided(made.problem, by_priority, more)
    least_w = least_cap_w(made) if queue_problem.undone(made, plan) else None
    moves, later = terms.allowed(queue_problem.moves(made, plan))
    unmoved = [] if log is None else log.move(moves, jobs)
    return FleetRound(made, plan, moves, unmoved, later, least_w, constant)
