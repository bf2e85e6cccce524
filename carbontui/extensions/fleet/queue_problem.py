"""A power budget, Slurm's queue as a fleet problem within it, its plan as changed start times: pure functions."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from carbontui import units
from carbontui.extensions.fleet.placing import FleetPlan
from carbontui.extensions.fleet.problem import NEVER, Arrivals, FleetJobs, FleetProblem, FleetSite, Floats, to_come
from carbontui.slurm.queue import ClusterSize, NodeState, NotedLevel, QueuedJob, size
from carbontui.units import J_PER_KWH

OWNERS_S = 60.0
"""A start this far from the one that we set, which sbatch may have taken this long to set, is its owner's."""
HELD = {
    "JobHeldUser": "held",
    "JobHeldAdmin": "held",
    "Dependency": "waiting for another job",
    "JobArrayTaskLimit": "of an array that runs only some tasks at a time",
}
LIMITED = re.compile("QOS|Assoc|Max[A-Z]")
"""How Slurm's reasons begin where a limit of a QOS or an account holds a job."""


class Pool(NamedTuple):
    """The nodes that a plan is about."""

    size: ClusterSize
    partitions: frozenset[str]
    """Those that have these very nodes."""
    touching: frozenset[str]
    """Those that have some of them."""

    def has(self, job: QueuedJob) -> bool:
        return not job.partition or not self.partitions or not self.partitions.isdisjoint(job.partition.split(","))

    def may_have(self, job: QueuedJob) -> bool:
        """Whether what runs of it may take processors of these nodes."""
        return not job.partition or not self.touching or not self.touching.isdisjoint(job.partition.split(","))


def pool_of(jobs: Iterable[QueuedJob], nodes: Sequence[NodeState]) -> Pool:
    """The nodes with most jobs that may be moved."""
    named: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for partition in node.partitions:
            named[partition].add(node.name)
    stock = {partition: frozenset(names) for partition, names in named.items()}
    movable = [job for job in jobs if not job.runs and job.asked.movable]
    asked = Counter(stock[name] for job in movable for name in job.partition.split(",")[:1] if name in stock)
    most = max(asked.items(), key=lambda one: (one[1], len(one[0])))[0] if asked else frozenset(n.name for n in nodes)
    return Pool(
        size(node for node in nodes if node.name in most),
        frozenset(name for name, names in stock.items() if names == most),
        frozenset(name for name, names in stock.items() if names & most),
    )


def why_left(job: QueuedJob, pool: Pool, throttled: frozenset[str] = frozenset(), since_s: float = 0.0) -> str:
    """Why a job that asked to be moved is not; '' if it is. `throttled`: arrays that run only some tasks at a time;
    `since_s`: the slot before those that are planned."""
    asked = job.asked
    if not asked.movable:
        return ""
    if job.reason in HELD:
        return HELD[job.reason]
    if job.id.partition("_")[0] in throttled:
        return HELD["JobArrayTaskLimit"]
    if LIMITED.match(job.reason):
        return "at a limit of their QOS or account"
    if job.gpus is None:
        return "as Slurm does not tell their GPUs"
    if not pool.has(job):
        return f"in partition {job.partition}, which has other nodes"
    later_s = 0.0 if asked.begin_s is None or job.set_s is None else job.set_s - asked.begin_s
    # a later one that is over is when what it waited for had come
    owners = later_s < -OWNERS_S or (later_s > OWNERS_S and (job.set_s or 0.0) > since_s)
    return "to start when their owner said" if owners else ""


def listed(left: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """One line for each reason; of many jobs the first few are named."""
    return tuple(
        f"job{'s' * (len(ids) > 1)} {', '.join(ids[:5])}{' ...' * (len(ids) > 5)} ({len(ids)}): left alone, {why}"
        for why, ids in sorted(left.items())
    )


_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(k|m)?w?\s*(?:(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2}))?\s*", re.IGNORECASE)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6}


class Cap(NamedTuple):
    """Watts, and the minutes of the local day in which they hold; None: all day."""

    watts: float
    minutes: tuple[int, int] | None

    def holds(self, start_s: float, end_s: float) -> bool:
        """Whether it holds at any moment of a slot."""
        if self.minutes is None or end_s - start_s >= 86400.0:
            return True
        begin, end = self.minutes
        at = time.localtime(start_s)
        first = at.tm_hour * 60 + at.tm_min + at.tm_sec / 60
        last = first + (end_s - start_s) / 60
        spans = [(begin, end)] if begin < end else [(begin, 1440), (0, end)]
        return any(first < e + day and last > b + day for b, e in spans for day in (0, 1440))


def parse(text: str) -> Cap:
    """Raises ValueError naming the value and the form."""
    found = _FORM.fullmatch(text)
    watts = float(found[1]) * _SCALE[(found[2] or "").lower()] if found else 0.0
    if found is None or watts <= 0:
        raise ValueError(f"{text!r} is not a power budget; write it like 120kW, or 80kW 17:00-20:00 for some hours")
    if found[3] is None:
        return Cap(watts, None)
    minutes = (int(found[3]) * 60 + int(found[4]), int(found[5]) * 60 + int(found[6]))
    if max(minutes) > 1440 or minutes[0] == minutes[1]:
        raise ValueError(f"{text!r}: hours are from 00:00 to 24:00, the end after the begin")
    return Cap(watts, minutes)


def per_slot(caps: Sequence[Cap], start_s: float, slot_s: float, slots: int) -> list[float]:
    """Watts of every slot: the lowest of those that hold at any moment of it."""
    edges = [start_s + i * slot_s for i in range(slots + 1)]
    return [
        min((cap.watts for cap in caps if cap.holds(begin, end)), default=float("inf"))
        for begin, end in itertools.pairwise(edges)
    ]


SLOTS = 96
SLOT_S = 1800.0
UNDONE = 20.0
"""Leaving a job undone costs this multiple of its own CO2: it is done whenever possible."""
EXPECTED = 5.0
"""What it costs for a job that is only expected: less, as it may not come; more than its own CO2, as it may."""
EARLIER = 1e-6
"""Each later slot counts as this much dirtier: among equals the earliest is taken."""
LEAD_S = 60.0
"""How long before its start a slot is planned and sent to Slurm."""


class Assumed(NamedTuple):
    """Watts assumed where no comment states them: per GPU and per node of a running job."""

    gpu_w: float
    node_w: float


class FleetTerms(NamedTuple):
    """What every round keeps to: the budget, the watts assumed where a job states none, the length of a slot, and how
    many starts it moves at most, in all and of one user."""

    budget: Sequence[Cap]
    assumed: Assumed
    slot_s: float
    moves_most: float = math.inf
    of_user_most: float = math.inf

    def allowed(self, moves: Iterable[Move]) -> tuple[list[Move], list[Move]]:
        """Those of this round, and the rest: what is put off comes first, as that keeps the budget, by its present
        start."""
        of_user, now, later = Counter[str](), list[Move](), list[Move]()
        for move in sorted(moves, key=lambda one: (one.at_s <= (one.job.set_s or 0.0), one.job.set_s or 0.0)):
            fits = len(now) < self.moves_most and of_user[move.job.user] < self.of_user_most
            of_user[move.job.user] += fits
            (now if fits else later).append(move)
        return now, later


class Move(NamedTuple):
    """A job whose start is to be changed."""

    job: QueuedJob
    at_s: float
    cap_w: float | None
    """Watts per GPU that it is to start with; None: at full."""
    why: str


class QueueProblem(NamedTuple):
    """The problem, the jobs that it moves in its order, and the other running or waiting jobs."""

    problem: FleetProblem
    jobs: tuple[QueuedJob, ...]
    start_s: float
    slot_s: float
    cap_w: Floats
    """The budget per slot; infinite without one."""
    fixed_w: Floats
    """Watts per slot of everything else that runs."""
    others: int
    """Waiting jobs that did not ask to be moved: Slurm starts them at a time not known here."""
    faults: tuple[str, ...]

    def price_g_per_kwh(self, plan: FleetPlan) -> list[float]:
        """Shadow price of the budget per slot: the cost of a kWh on top of its own CO2."""
        return [float(price) for price in plan.prices.watt * J_PER_KWH / self.slot_s]


def watts(job: QueuedJob, assumed: Assumed) -> float:
    """A job's draw while it runs, at the level planned for it: from its comment, else as assumed."""
    planned_w = job.asked.planned_w
    return _full_w(job, assumed) if planned_w is None else planned_w


def _full_w(job: QueuedJob, assumed: Assumed) -> float:
    if job.asked.watts is not None:
        return job.asked.watts
    return 0.0 if job.gpus is None else job.gpus * assumed.gpu_w + job.nodes * assumed.node_w


def problem(
    queue: Sequence[QueuedJob],
    pool: Pool,
    intensity: Sequence[float],
    terms: FleetTerms,
    start_s: float,
    throttled: frozenset[str] = frozenset(),
) -> QueueProblem:
    """The waiting jobs that asked to be moved, within the capacity left by the others. `intensity` (g/kWh) is per slot
    from `start_s` on. Of two jobs that cannot both be done, the one with the higher Slurm priority (its fair share) is
    done."""
    slots, slot_s, assumed = len(intensity), terms.slot_s, terms.assumed
    cap = np.array(per_slot(terms.budget, start_s, slot_s, slots))
    by_gpu = pool.size.gpus > 0
    room = np.full(slots, float(pool.size.gpus if by_gpu else pool.size.cpus))
    weight = np.array(intensity, dtype=float) * slot_s / J_PER_KWH * (1.0 + EARLIER * np.arange(slots))
    fixed = np.zeros(slots)
    mine, faults = [], []
    left = defaultdict(list)
    for job in queue:
        if job.runs:
            n = min(slots, math.ceil(max(1.0, _end_s(job, start_s) - start_s) / slot_s))
            fixed[:n] += watts(job, assumed)
            room[:n] -= job.takes(gpus=by_gpu) * pool.may_have(job)
        elif job.asked.fault:
            faults.append(f"job {job.id} is left as it is: {job.asked.fault}")
        elif why := why_left(job, pool, throttled, start_s - slot_s):
            left[why].append(job.id)
        elif job.asked.movable:
            if _full_w(job, assumed) > 0:
                mine.append(job)
            else:
                faults.append(f"job {job.id} is left as it is: nothing says what it draws (--gpu-w, --node-w)")
    most = max((job.priority for job in mine), default=0.0) or 1.0
    urgency = np.array([1.0 + job.priority / most for job in mine])
    since = [(start_s, job) for job in mine]
    jobs = _fleet_jobs(since, assumed, weight, UNDONE * urgency, slot_s=slot_s, by_gpu=by_gpu).within(slots)
    power = np.minimum(cap, fixed + jobs.watts.max(axis=1, initial=0.0).sum() + 1.0)  # an hour without a budget
    site = FleetSite(weight, np.maximum(power - fixed, 0.0), np.maximum(room, 0.0))
    others = sum(not job.runs and not job.asked.movable for job in queue)
    made = FleetProblem(site, jobs)
    return QueueProblem(made, tuple(mine), start_s, slot_s, cap, fixed, others, (*faults, *listed(left)))


def expected_jobs(made: QueueProblem, past: Arrivals, pool: Pool, assumed: Assumed) -> FleetJobs | None:
    """The jobs to come, as those came before that this plan would have moved; None: none are known to have come."""
    came = [
        (at, job) for at, job in past.came() if pool.has(job) and job.asked.deadline_s and _full_w(job, assumed) > 0
    ]
    if not came or past.since_s is None:
        return None
    slot_s, weight, by_gpu = made.slot_s, made.problem.site.weight, pool.size.gpus > 0
    jobs = _fleet_jobs(came, assumed, weight, EXPECTED, slot_s=slot_s, by_gpu=by_gpu)
    age = np.array([(made.start_s - at) / slot_s for at, _ in came])
    return to_come(jobs, age, (made.start_s - past.since_s) / slot_s, len(weight))


def open_levels(job: QueuedJob, assumed: Assumed) -> list[NotedLevel]:
    """Those at which a waiting job may start, full speed first: all that end within its time limit."""
    full = NotedLevel(_full_w(job, assumed), 1.0)
    limit_s, work_s = job.limit_s, _work_s(job)
    caps = [one for one in job.asked.levels if one.cap_w is not None and one.watts < full.watts]
    return [full, *(one for one in caps if limit_s is None or work_s / one.slow <= limit_s)]


def _fleet_jobs(
    rows: Sequence[tuple[float, QueuedJob]],
    assumed: Assumed,
    weight: Floats,
    undone: float | Floats,
    *,
    slot_s: float,
    by_gpu: bool,
) -> FleetJobs:
    """Jobs, whose ends are counted from these times; left undone each costs `undone` times its own CO2."""
    levels = [open_levels(job, assumed) for _, job in rows]
    most = max(map(len, levels), default=1)
    drawn, length = np.zeros((len(rows), most)), np.full((len(rows), most), np.inf)
    for row, (_, job) in enumerate(rows):
        for level, one in enumerate(levels[row]):
            drawn[row, level], length[row, level] = one.watts, _work_s(job) / one.slow / slot_s
    work = np.minimum(length.min(axis=1, initial=np.inf), len(weight))
    return FleetJobs(
        gpus=np.array([job.takes(gpus=by_gpu) for _, job in rows]),
        watts=drawn,
        length=length,
        first=np.zeros(len(rows), dtype=np.int64),
        end=np.array([((job.asked.deadline_s or np.inf) - at) / slot_s for at, job in rows]),
        undone_g=undone * drawn[:, 0] * work * float(weight.mean()),
    )


def _work_s(job: QueuedJob) -> float:
    work = job.asked.work_s or 0.0
    return work if job.limit_s is None else min(work, job.limit_s)


def _end_s(job: QueuedJob, now_s: float) -> float:
    """When a running job ends: as it stated, else at its time limit."""
    end = math.inf if job.end_s is None else job.end_s
    if job.asked.planned_s is not None:
        begun = job.start_s if job.runs and job.start_s is not None else now_s
        end = min(end, begun + job.asked.planned_s)
    return now_s + SLOTS * SLOT_S if math.isinf(end) else end


def next_slot_s(now_s: float, slot_s: float) -> float:
    """When the slots of a plan made now begin."""
    return math.ceil((now_s + min(LEAD_S, slot_s / 4)) / slot_s) * slot_s


def next_plan_s(start_s: float, slot_s: float) -> float:
    """When to plan again after the plan whose slots begin at `start_s`: once its first jobs have started."""
    return start_s + slot_s - 2 * min(LEAD_S, slot_s / 4)


class Placement(NamedTuple):
    """Of a waiting job in a plan: start and end (epoch seconds; None: no room before its deadline), watts, and its
    limit in watts per GPU (None: at full)."""

    job: QueuedJob
    start_s: float | None
    end_s: float | None
    watts: float
    cap_w: float | None


def placements(made: QueueProblem, plan: FleetPlan) -> list[Placement]:
    """Of each job that may be moved, in the order of the problem."""
    found, jobs = [], made.problem.jobs
    for row, (job, start, level) in enumerate(zip(made.jobs, plan.start.tolist(), plan.level.tolist(), strict=True)):
        drawn = float(jobs.watts[row, level])
        levels = job.asked.levels if drawn < jobs.watts[row].max() else ()
        cap_w = next((one.cap_w for one in levels if one.watts == drawn and one.cap_w), None)
        start_s = made.start_s + start * made.slot_s
        end_s = start_s + float(jobs.length[row, level]) * made.slot_s
        placed = (None, None, drawn, None) if start == NEVER else (start_s, end_s, drawn, cap_w)
        found.append(Placement(job, *placed))
    return found


def iso(at_s: float | None) -> str | None:
    return None if at_s is None else units.iso(at_s)


def planned_jobs(placed: Iterable[Placement]) -> list[dict[str, object]]:
    """Per job its start and end (null: no room before its deadline), watts, deadline and level, for machines."""
    return [
        {
            "job": one.job.id,
            "start": iso(one.start_s),
            "end": iso(one.end_s),
            "watts": one.watts,
            "deadline": iso(one.job.asked.deadline_s),
            "level": "full" if one.cap_w is None else f"cap {one.cap_w:g} W",
        }
        for one in placed
    ]


def moves(made: QueueProblem, plan: FleetPlan) -> list[Move]:
    """The starts and caps that differ from Slurm's. A job without room within the slots is put after them."""
    found, end_s = [], made.start_s + made.problem.site.slots * made.slot_s
    for job, start_s, _, _, cap_w in placements(made, plan):
        wanted, why = (start_s, "planned") if start_s is not None else (end_s, "no room before its deadline")
        if abs(max(job.set_s or 0.0, made.start_s) - wanted) >= 1.0 or cap_w != job.asked.cap_w:
            found.append(Move(job, wanted, cap_w, why if cap_w is None else f"{why} at {cap_w:g} W per GPU"))
    return found


def undone(made: QueueProblem, plan: FleetPlan) -> list[str]:
    """The ids of the jobs without room before their deadlines."""
    return [one.job.id for one in placements(made, plan) if one.start_s is None]
