"""A plan of the fleet as text, in lines."""

from __future__ import annotations

import numpy as np

from carbontui.extensions.fleet import queue_problem as fleet
from carbontui.extensions.fleet.placing import FleetPlan
from carbontui.extensions.fleet.problem import NEVER
from carbontui.extensions.fleet.queue_problem import QueueProblem
from carbontui.text import figures


def told(made: QueueProblem, plan: FleetPlan, least_w: float | None = None) -> list[str]:
    """The plan as text, in lines; `least_w`: the least constant budget under which all its jobs are in time."""
    jobs = len(made.jobs)
    begun = int((plan.start != NEVER).sum())
    drawn = plan.watts + made.fixed_w
    budgeted = np.isfinite(made.cap_w).any()
    fullest = int(np.argmax(drawn / np.maximum(made.cap_w, 1e-9) if budgeted else drawn))
    room = "" if np.isinf(made.cap_w[fullest]) else f" of {figures.watts(float(made.cap_w[fullest]))}"
    many = "1 job waits" if jobs == 1 else f"{jobs} jobs wait"
    begin = "starts" if begun == 1 else "start"
    lines = [
        f"{many} and may be moved; {begun} {begin} within {figures.duration(made.problem.site.slots * made.slot_s)}"
    ]
    if begun:
        grams = float(made.problem.grams(plan.start, plan.level).sum())
        at_once_g = float(made.problem.grams(np.where(plan.start == NEVER, NEVER, 0), plan.level).sum())
        lines.append(
            f"planned {figures.grams(grams)}; started at once without the budget: {figures.grams(at_once_g)}; "
            f"fullest {figures.watts(float(drawn[fullest]))}{room}"
        )
    if begun and begun == jobs:
        lines.append(f"certificate: no plan of these is better by more than {figures.percent(plan.gap, 2)}")
    if begun < jobs:
        late = jobs - begun
        they = "has no room before its deadline: it is" if late == 1 else "have no room before their deadline: they are"
        lines.append(f"{late} {they} put behind the others")
        lines.append(f"not in time: {', '.join(fleet.undone(made, plan)[:8])}{' ...' * (late > 8)}")
        least = "" if least_w is None else f"; a constant budget of {figures.watts(least_w)} suffices for all"
        most_w = float((made.cap_w - made.fixed_w).max())
        alone = [
            job.id for job, row in zip(made.jobs, made.problem.jobs.watts, strict=True) if row[row > 0].min() > most_w
        ]
        if alone:
            lines.append(f"more than the budget leaves in any hour, each alone: {', '.join(alone[:8])}")
        lines.append(f"no plan can be proven best where jobs are left out{least}")
    if made.others:
        them = "1 other job waits that" if made.others == 1 else f"{made.others} other jobs wait that"
        lines.append(f"{them} did not ask: Slurm alone decides when, beyond this plan")
    if np.any(made.fixed_w > made.cap_w + 1e-6) or np.any(made.problem.site.power_w <= 0):
        lines.append("what runs already draws more than the budget: it cannot be kept until that ends")
    return [*lines, *made.faults]


def told_constant(made: QueueProblem, plan: FleetPlan, share: float, *, used: bool) -> str:
    """The best constant cap on the same jobs, beside the plan."""
    grams, late = figures.grams(float(made.problem.grams(plan.start, plan.level).sum())), fleet.undone(made, plan)
    what = f"one cap for all ({figures.percent(share)} of full watts, each as soon as there is room): {grams}"
    return f"{what}, {len(late)} not in time{'; it is better, and used' if used else ''}"
