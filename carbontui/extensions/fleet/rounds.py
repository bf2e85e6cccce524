"""A round of the fleet: Slurm's queue is read, planned within the site's budget, and its starts are moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from carbontui import units
from carbontui.extensions.fleet import placing, queue_problem
from carbontui.extensions.fleet.arrivals import Arrivals
from carbontui.extensions.fleet.placing import ConstantCap, FleetPlan
from carbontui.extensions.fleet.problem import NEVER, FleetProblem
from carbontui.extensions.fleet.queue_problem import Assumed, Cap, Move, QueueProblem
from carbontui.slurm import queue


class FleetTerms(NamedTuple):
    """What every round keeps to: the budget, the watts assumed where a job states none, and the length of a slot."""

    budget: Sequence[Cap]
    assumed: Assumed
    slot_s: float


class FleetRound(NamedTuple):
    """A plan, the starts that it changes, and what Slurm said of those that it refused to change."""

    made: QueueProblem
    plan: FleetPlan
    moves: list[Move]
    unmoved: list[str]
    least_w: float | None
    """If some jobs are not in time: the least constant budget under which all are; None: none, or unknown."""
    constant: ConstantCap | None = None
    """The best constant cap on the same jobs; None where no job has levels."""

    @property
    def constant_wins(self) -> bool:
        return self.constant is not None and self.constant.plan is self.plan

    def to_dict(self, now_s: float) -> dict[str, Any]:
        """As JSON has it."""
        made, plan, begins = self.made, self.plan, queue_problem.starts_s(self.made, self.plan)
        return {
            "at": units.iso(now_s),
            "starts": {job.id: units.iso(begins[job.id]) if job.id in begins else None for job in made.jobs},
            "jobs": queue_problem.planned_jobs(made, plan),
            "moved": [move.job.id for move in self.moves],
            "planned_g": float(made.problem.grams(plan.start, plan.level).sum()),
            "gap": plan.gap,
            "undone": queue_problem.undone(made, plan),
            "least_cap_w": self.least_w,
            "constant_cap": self._constant(),
            "slot_s": made.slot_s,
            "first_slot": units.iso(made.start_s),
            "watts": [round(value, 1) for value in (plan.watts + made.fixed_w).tolist()],
            "price_g_per_kwh": [round(value, 2) for value in made.price_g_per_kwh(plan)],
            "faults": list(made.faults),
        }

    def _constant(self) -> dict[str, Any] | None:
        if self.constant is None:
            return None
        made, (share, plan) = self.made, self.constant
        grams = float(made.problem.grams(plan.start, plan.level).sum())
        return {
            "share": share,
            "planned_g": grams,
            "undone": queue_problem.undone(made, plan),
            "used": self.constant_wins,
        }


LEAST_JOBS = 300
"""Of more jobs the least budget is not sought: it takes a dozen plans."""
LEAST_PASSES, LEAST_SHARE = 10, 0.01


def least_cap_w(made: QueueProblem) -> float | None:
    """The least constant budget, in watts and to a hundredth, with which a plan leaves no job undone; None where none
    does: the processors do not suffice."""
    if len(made.jobs) > LEAST_JOBS:
        return None

    def suffices(cap_w: float) -> bool:
        site = replace(made.problem.site, power_w=np.maximum(cap_w - made.fixed_w, 0.0))
        problem = FleetProblem(site, made.problem.jobs)
        return bool((placing.planned(problem).start != NEVER).all())

    most = float(made.fixed_w.max() + made.problem.jobs.watts.max(axis=1).sum())
    least = 0.0
    if not suffices(most):
        return None
    for _ in range(LEAST_PASSES):
        if most - least <= LEAST_SHARE * most:
            break
        cap_w = (most + least) / 2
        least, most = (least, cap_w) if suffices(cap_w) else (cap_w, most)
    return most


def run_round(
    terms: FleetTerms,
    intensity: Sequence[float],
    start_s: float,
    due: frozenset[str],
    past: Arrivals | None = None,
    *,
    dry_run: bool,
) -> FleetRound:
    """A round whose slots, of these g/kWh, begin at `start_s`; a dry one moves nothing. Jobs that are `due` should have
    started by now. The queue is noted in `past`, and as many jobs are expected. Raises SlurmError."""
    slot_s = terms.slot_s
    cap_w = queue_problem.per_slot(terms.budget, start_s, slot_s, len(intensity))
    nodes = queue.nodes()
    jobs = queue.queue(nodes)
    about, throttled = queue_problem.pool_of(jobs, nodes), queue.throttled()
    made = queue_problem.problem(
        jobs, about, intensity, cap_w, terms.assumed, start_s=start_s, slot_s=slot_s, due=due, throttled=throttled
    )
    by_priority = np.argsort([-job.priority for job in made.jobs], kind="stable")
    past = past or Arrivals()
    past.observe(jobs, start_s - slot_s)
    more = queue_problem.expected_jobs(made, past, about, terms.assumed)
    plan, constant = placing.decided(made.problem, by_priority, more)
    moves = queue_problem.moves(made, plan)
    least_w = least_cap_w(made) if queue_problem.undone(made, plan) else None
    unmoved = [] if dry_run else queue.move(moves)
    return FleetRound(made, plan, moves, unmoved, least_w, constant)
