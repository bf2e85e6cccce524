"""Which of the cluster's nodes and waiting jobs one plan is about; the others are left as they are, and listed.

A plan has one stock of processors. Where partitions have different nodes, it is that of the partition with most jobs
that may be moved.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from carbontui.slurm.queue import ClusterSize, NodeState, QueuedJob, size

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
    set_s = job.start_s if job.eligible_s is None and job.reason == "BeginTime" else job.eligible_s
    later_s = 0.0 if asked.begin_s is None or set_s is None else set_s - asked.begin_s
    # a later one that is over is when what it waited for had come
    owners = later_s < -OWNERS_S or (later_s > OWNERS_S and (set_s or 0.0) > since_s)
    return "to start when their owner said" if owners else ""


def listed(left: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """One line for each reason; of many jobs the first few are named."""
    return tuple(
        f"job{'s' * (len(ids) > 1)} {', '.join(ids[:5])}{' ...' * (len(ids) > 5)} ({len(ids)}): left alone, {why}"
        for why, ids in sorted(left.items())
    )
