"""The boards of all nodes of a job behind the interface of a single machine's agent."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable

from msgspec import structs

from carbontui.nodes.handle import NodeHandle
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.messages import SILENT_NODE_S, HostReading, Node, NodeWatts, Outcome, Reading, Readings, Sample


class Agents(AgentHandle):
    """`local` has the boards of this machine, node `own`; None if it is not a node of the job. `others`: the rest."""

    def __init__(self, local: AgentHandle | None, own: str, others: tuple[NodeHandle, ...]) -> None:
        self._local, self._own, self._others = local, own, others
        self._running: set[AgentHandle] = set()
        self._pids: dict[str, tuple[int, ...]] = {}
        """The last known processes of the job by node: ranks that are not connected, as after their agent's restart,
        still train, and nobody else's share of that node is theirs."""

    @property
    def _all(self) -> tuple[AgentHandle, ...]:
        return ((self._local,) if self._local else ()) + self._others

    @property
    def pid(self) -> int | None:
        return self._local.pid if self._local else None

    def on_report(self, received: Callable[[], None]) -> None:
        """With every report of one of them."""
        self._all[0].on_report(received)

    async def start(self) -> None:
        for each in self._all:
            if each not in self._running:
                await each.start()
                self._running.add(each)

    async def close(self, timeout_s: float = 3.0) -> tuple[Outcome, ...]:
        told = await asyncio.gather(*(each.close(timeout_s) for each in self._all))
        return tuple(outcome for outcomes in told for outcome in outcomes)

    def nodes(self) -> tuple[Node, ...]:
        now = time.monotonic()
        return tuple(node.news(now) for node in self._others)

    # --- readings ---

    @property
    def readings(self) -> Readings:  # type: ignore[override]
        found = [] if self._local is None else [(self._own, self._local.readings)]
        return merged([*found, *((node.name, node.readings) for node in self._others)], time.monotonic())

    @property
    def outcomes(self) -> dict[str, Outcome]:  # type: ignore[override]
        return {uuid: outcome for each in self._all for uuid, outcome in each.outcomes.items()}

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(sorted({uuid for each in self._all for uuid in each.left}))

    def drain(self) -> list[Sample]:
        return [sample for each in self._all for sample in each.drain()]

    def happened(self) -> list[Outcome]:
        return [outcome for each in self._all for outcome in each.happened()]

    async def refresh(self, timeout_s: float = 0.3) -> Readings:
        await asyncio.gather(*(each.refresh(timeout_s) for each in self._all))
        return self.readings

    # --- wishes ---

    def watch(
        self,
        uuids: tuple[str, ...] | None,
        own_pids: tuple[int, ...] = (),
        elsewhere: tuple[tuple[str, tuple[int, ...]], ...] = (),
    ) -> None:
        if self._local is not None:
            self._local.watch(uuids, own_pids)
        self._pids |= {name: pids for name, pids in elsewhere if pids}
        for node in self._others:
            node.watch(uuids, self._pids.get(node.name, ()))

    async def set_limit(
        self, watts_per_gpu: float | None, *, allow_raise: bool = False, left: tuple[str, ...] = ()
    ) -> tuple[Outcome, ...]:
        limits = (each.set_limit(watts_per_gpu, allow_raise=allow_raise, left=left) for each in self._all)
        told = await asyncio.gather(*limits)
        return tuple(outcome for outcomes in told for outcome in outcomes)

    def change(self, **fields: object) -> None:
        for each in self._all:
            each.change(**fields)


def merged(nodes_read: list[tuple[str, Readings]], now_mono_s: float) -> Readings:
    """The readings of all nodes, given by name, as one. The newest time stamp applies.

    A board of a silent node stays in the list, with unknown watts.
    """
    known = [readings for _, readings in nodes_read if readings.mono_s]
    if not known:
        return Readings()
    devices: list[Reading] = []
    watts: list[NodeWatts] = []
    for name, readings in nodes_read:
        stale = readings.age_s(now_mono_s) >= SILENT_NODE_S
        for device in readings.devices:
            device = structs.replace(device, node=name)
            if stale and len(nodes_read) > 1:
                device = structs.replace(device, power_w=None, util=None, why={})
            devices.append(device)
        drawn = [device.own_w for device in readings.devices if device.watched and device.own_w is not None]
        host = [part for part in (readings.host.cpu_w, readings.host.dram_w) if part is not None]
        watts.append(NodeWatts(name, None if stale or not (drawn or host) else sum(drawn) + sum(host)))
    some = any(readings.devices for _, readings in nodes_read)
    bare = [name for name, one in nodes_read if some and one.mono_s and not (one.devices or one.notices)]
    notices = [notice for readings in known for notice in readings.notices]
    notices += [f"{name}: no GPU is seen there: only its CPU and memory are counted" for name in bare]
    received = [(name, one.host) for name, one in nodes_read if one.mono_s and one.age_s(now_mono_s) < SILENT_NODE_S]
    newest = max(known, key=lambda readings: readings.mono_s)
    return structs.replace(
        newest,
        devices=tuple(devices),
        by_process=all(readings.by_process for readings in known),
        nodes=tuple(watts),
        host=_hosts(received),
        notices=tuple(dict.fromkeys(notices)),
        absent=tuple(gone for readings in known for gone in readings.absent),
    )


def _hosts(received: list[tuple[str, HostReading]]) -> HostReading:
    """CPU and memory of several machines: watts are sums, with the weakest provenance among them, and each machine's
    meters are named."""
    hosts = [host for _, host in received]
    if not hosts:
        return HostReading()
    witnesses = [structs.replace(one, what=f"{name} {one.what}") for name, host in received for one in host.witnesses]
    cpu, dram = [host.cpu_w for host in hosts], [host.dram_w for host in hosts if host.dram_w is not None]
    return structs.replace(
        hosts[0],
        cpu_w=None if None in cpu else sum(watts for watts in cpu if watts is not None),
        dram_w=sum(dram) if dram else None,
        how="measured" if all(host.how == "measured" for host in hosts) else "estimated",
        idle_w=_sum(host.idle_w for host in hosts),
        beside_w=_sum(host.beside_w for host in hosts),
        beside_by="; ".join(f"{name} {host.beside_by}" for name, host in received if host.beside_by),
        witnesses=tuple(witnesses) if len(hosts) > 1 else hosts[0].witnesses,
        source="; ".join(dict.fromkeys(host.source for host in hosts if host.source)),
    )


def _sum(watts: Iterable[float | None]) -> float | None:
    """None where one is not known: a part would pass for the whole."""
    known = list(watts)
    return None if None in known else math.fsum(one or 0.0 for one in known)
