"""The power agent of one job: as its options want it, and started however long that takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from carbontui.job.clock import Clock
from carbontui.job.spec import Options
from carbontui.job.supervisor.record.recorder import say
from carbontui.power.handle import AgentHandle
from carbontui.power.simulated import SimulatedSpec

RETRY_S = 30.0


def agent_of(spec: Options, clock: Clock) -> AgentHandle:
    """Not started yet; it simulates boards, or leaves limits alone, where the options say so."""
    simulated = SimulatedSpec(count=spec.simulated.count) if spec.simulated else None
    # a replay on real boards never writes a limit
    monitor = (clock.replay and simulated is None) or not spec.cap
    return AgentHandle(simulated=simulated, log=say, cwd=Path(spec.dir), job=spec.job, monitor=monitor)


async def keep_starting(agent: AgentHandle, *, fast: bool) -> None:
    """Without one (no process or memory to be had) nothing is metered or capped: tried until it starts."""
    if fast:
        agent.set_fast(True)
    while True:
        try:
            return await agent.start()
        except OSError as error:
            say(f"agent: cannot be started ({error})")
            await asyncio.sleep(RETRY_S)
