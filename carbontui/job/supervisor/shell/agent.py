"""Creates the power agents of a job, here and on its other machines, from its options, and retries their start."""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from carbontui.job.supervisor.record.disk import say
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Nodes, Options
from carbontui.nodes.agents import Agents
from carbontui.nodes.handle import NodeHandle
from carbontui.power.agent.handle import AgentHandle
from carbontui.slurm import commands
from carbontui.system import isolation

RETRY_S = 30.0


def agent_of(spec: Options, clock: Clock, reported: Callable[[], None]) -> AgentHandle:
    """The handle of all boards of the job, on any machine. `reported` is called with every report."""
    simulated = spec.simulated
    # a replay on real boards never writes a limit
    monitor = (clock.replay and simulated is None) or not spec.cap
    local = AgentHandle(
        simulated=simulated, declared=spec.declared, log=say, cwd=Path(spec.dir), job=spec.job, monitor=monitor
    )
    agent: AgentHandle = local
    if spec.nodes is not None and spec.nodes.others:
        others = tuple(_on_node(name, spec.nodes, spec, monitor) for name in spec.nodes.others)
        agent = Agents(local if spec.nodes.own else None, spec.nodes.own, others)
    agent.on_report(reported)
    agent.change(probe=False)  # until a cap is wanted
    return agent


def _on_node(name: str, nodes: Nodes, spec: Options, monitor: bool) -> NodeHandle:
    command = [sys.executable, "-m", "carbontui.nodes.node", "--socket", spec.socket, "--job", spec.job]
    for option, boards in (("--simulated", spec.simulated), ("--declared", spec.declared)):
        if boards is not None:
            command += [option, msgspec.json.encode(boards).decode()]
    if monitor:
        command.append("--monitor")
    command = [*nodes.reach[name], *([shlex.join(command)] if nodes.by_shell else command)]
    environment = commands.step_environment(isolation.environment(os.environ))
    return NodeHandle(
        name, command, environment, path=Path(spec.socket), simulated=spec.simulated, log=say, job=spec.job
    )


async def keep_starting(agent: AgentHandle, *, fast: bool) -> None:
    """Retry until the agent starts: without it (out of processes or memory) nothing is metered or capped."""
    if fast:
        agent.change(fast=True)
    while True:
        try:
            return await agent.start()
        except OSError as error:
            say(f"agent: cannot be started ({error})")
            await asyncio.sleep(RETRY_S)
