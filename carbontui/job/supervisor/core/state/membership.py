"""Which of a job's expected machines and ranks are present. Silent ones are reported, never omitted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.power.messages import SILENT_NODE_S
from carbontui.protocol import LEASE_S, Statement, statement

SILENT_RANK_S = 6.0
"""An expected rank not heard for this long is reported as silent; ranks send a heartbeat every second."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Ranks of the current training in the current start of the command."""

    starts: int = 0
    leader: str = ""
    """The process of rank 0, once it has been heard."""
    world: int = 0
    """World size, as stated by the ranks heard so far."""
    last_mono_s: Mapping[int, float] = field(default_factory=dict)
    """When each expected rank was last heard, or first missed."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Host of each rank heard so far."""


def update(known: Membership, inputs: Inputs) -> Membership:
    """Updated with the ranks heard in this tick."""
    if inputs.starts != known.starts or inputs.child.state != "running" or _ended(known, inputs):
        known = Membership(inputs.starts)
    if inputs.leader is not None and not known.leader:
        known = replace(known, leader=inputs.leader.process)
    world = max([known.world, *(rank.world for rank in inputs.ranks)])
    if world < 2:
        return known
    last = {rank: known.last_mono_s.get(rank, inputs.mono_s) for rank in range(world)}
    last |= {rank.rank: inputs.mono_s - rank.silent_s for rank in inputs.ranks}
    hosts = {**known.hosts, **{rank.rank: rank.host for rank in inputs.ranks}}
    return replace(known, world=world, last_mono_s=last, hosts=hosts)


def _ended(known: Membership, inputs: Inputs) -> bool:
    """A command may run several trainings in sequence. The ranks of the previous one are no longer expected once
    another process has replaced its rank 0, or once rank 0 has left this machine and no rank is heard."""
    if not known.leader or known.leader in inputs.alive:
        return False
    if inputs.ranks:
        leaders = {rank.process for rank in inputs.ranks if rank.rank == 0}
        return bool(leaders) and known.leader not in leaders
    return known.leader.partition(" ")[0] not in {node.host for node in inputs.nodes}


def unread_nodes(inputs: Inputs) -> tuple[str, ...]:
    """Machines of the job whose boards have no recent reading."""
    return tuple(node.name for node in inputs.nodes if node.unread_s >= SILENT_NODE_S)


def silent(known: Membership, inputs: Inputs) -> tuple[str | Statement, ...]:
    """Machines by name, and ranks, that are not heard: n2, rank 3 of n4, ranks 8 to 15.

    A silent machine stands for its ranks. Machines are expected as long as the job lives, ranks while it runs.
    """
    nodes = {node.host or node.name: node.name for node in inputs.nodes}
    quiet = tuple(node.name for node in inputs.nodes if node.quiet_s >= SILENT_NODE_S)
    if inputs.child.state != "running":
        return quiet
    missing = [rank for rank, at in known.last_mono_s.items() if inputs.mono_s - at >= SILENT_RANK_S]
    at_node = {rank: nodes.get(known.hosts.get(rank, ""), known.hosts.get(rank, "")) for rank in missing}
    named = [rank for rank in missing if at_node[rank] and at_node[rank] not in quiet]
    nameless = [rank for rank in missing if not at_node[rank]]
    return (
        *quiet,
        *(statement("silent_rank", rank=rank, node=at_node[rank]) for rank in named),
        *(statement("silent_ranks", first=first, last=last) for first, last in _runs(nameless)),
    )


def lost(known: Membership, inputs: Inputs) -> bool:
    """Whether a lease has expired somewhere: a rank heard before, or a machine of a training that has begun, has been
    silent for longer than one lasts. Training resumes there and waits for the held ranks, at full watts, until its
    own collective timeout. Ranks that exit for an unload do not count."""
    if any(rank.state in ("checkpointing", "unloading") for rank in inputs.ranks):
        return False
    world = max((rank.world for rank in inputs.ranks), default=0)
    ranks = any(
        rank < world and rank in known.hosts and inputs.mono_s - at >= LEASE_S for rank, at in known.last_mono_s.items()
    )
    return ranks or (bool(known.hosts) and any(node.quiet_s >= LEASE_S for node in inputs.nodes))


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """[first, last] of ranges of consecutive numbers."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][-1] = number
        else:
            runs.append([number, number])
    return runs
