"""Which machines and ranks of a job are there of those that were promised; who is silent is said, never left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from carbontui.job.supervisor.core.observation import Inputs
from carbontui.power.messages import SILENT_NODE_S
from carbontui.protocol import LEASE_S

SILENT_RANK_S = 6.0
"""A rank that others promise and that has not been heard for this long is said to be silent; it beats every second."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """Of the present training of the present start of the command."""

    starts: int = 0
    leader: str = ""
    """The process that is its rank 0, once that has spoken."""
    world: int = 0
    """Ranks that those which have spoken say there are."""
    last_mono_s: Mapping[int, float] = field(default_factory=dict)
    """When each promised rank was last heard, or first missed."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Where each rank that has spoken runs."""


def saw(known: Attendance, seen: Inputs) -> Attendance:
    """With what is heard at this moment."""
    if seen.starts != known.starts or seen.child.state != "running" or _ended(known, seen):
        known = Attendance(seen.starts)
    if seen.leader is not None and not known.leader:
        known = replace(known, leader=seen.leader.process)
    world = max([known.world, *(rank.world for rank in seen.ranks)])
    if world < 2:
        return known
    last = {rank: known.last_mono_s.get(rank, seen.mono_s) for rank in range(world)}
    last |= {rank.rank: seen.mono_s - rank.unheard_s for rank in seen.ranks}
    hosts = {**known.hosts, **{rank.rank: rank.host for rank in seen.ranks}}
    return replace(known, world=world, last_mono_s=last, hosts=hosts)


def _ended(known: Attendance, seen: Inputs) -> bool:
    """A command may run one training after the other: the ranks of the former are promised no more once another
    process is rank 0 in place of one that is gone, or once that is gone from this machine and no rank speaks."""
    if not known.leader or known.leader in seen.alive:
        return False
    if seen.ranks:
        leaders = {rank.process for rank in seen.ranks if rank.rank == 0}
        return bool(leaders) and known.leader not in leaders
    return known.leader.partition(" ")[0] not in {node.host for node in seen.nodes}


def silent_nodes(seen: Inputs) -> tuple[str, ...]:
    """Machines of the job of which nothing is heard."""
    return tuple(node.name for node in seen.nodes if node.quiet_s >= SILENT_NODE_S)


def unread_nodes(seen: Inputs) -> tuple[str, ...]:
    """Machines of the job whose boards have not been read lately, or not yet."""
    return tuple(node.name for node in seen.nodes if node.unread_s >= SILENT_NODE_S)


def silent(known: Attendance, seen: Inputs) -> tuple[str, ...]:
    """Machines and ranks of which nothing is heard, like 'n2', 'rank 3 (n4)', 'ranks 8-15'.

    The ranks of a silent machine go with it; machines are asked for as long as the job lives, ranks while it runs.
    """
    nodes = {node.host or node.name: node.name for node in seen.nodes}
    quiet = silent_nodes(seen)
    if seen.child.state != "running":
        return quiet
    missing = [rank for rank, at in known.last_mono_s.items() if seen.mono_s - at >= SILENT_RANK_S]
    at_node = {rank: nodes.get(known.hosts.get(rank, ""), known.hosts.get(rank, "")) for rank in missing}
    named = [rank for rank in missing if at_node[rank] and at_node[rank] not in quiet]
    nameless = [rank for rank in missing if not at_node[rank]]
    return (
        *quiet,
        *(f"rank {rank} ({at_node[rank]})" for rank in named),
        *(f"rank{'s' if '-' in run else ''} {run}" for run in _runs(nameless)),
    )


def lost(known: Attendance, seen: Inputs) -> bool:
    """Whether a lease has ended somewhere: a rank that was heard, or a machine of a training that has begun, is silent
    for longer than one lasts. There the training goes on, and waits in vain for the ranks that are held, at full watts
    and until its own patience ends. Ranks that leave for an unload are missed by nobody."""
    if any(rank.state in ("checkpointing", "unloading") for rank in seen.ranks):
        return False
    world = max((rank.world for rank in seen.ranks), default=0)
    ranks = any(
        rank < world and rank in known.hosts and seen.mono_s - at >= LEASE_S for rank, at in known.last_mono_s.items()
    )
    return ranks or (bool(known.hosts) and any(node.quiet_s >= LEASE_S for node in seen.nodes))


def _runs(numbers: Iterable[int]) -> list[str]:
    """'3', '8-15': neighbours together."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
