"""The supervisor's handle of another node: starts its agent, listens to it, replaces it when it dies or falls silent.

To the supervisor a node's boards look like those of this machine. Its clock is not trusted: readings are dated by
their arrival here.
"""

import asyncio
import contextlib
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from carbontui import units
from carbontui.nodes.messages import LINE_MAX, FromNode, Line, Open, Relay, Shut, Up
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.backends import declared
from carbontui.power.messages import Done, Gone, Node, Outcome, Report, encode
from carbontui.system import proc

HOST_PARTS = frozenset({"cpu", "dram"})
COMPLAINTS_B = 4096
"""Of what one start of a node's command says on stderr, kept in the log."""
SHIFTS = 60
"""Number of recent reports, about half a minute, of which the fastest gives the offset of the two clocks."""


@dataclass(eq=False)
class NodeHandle(AgentHandle):
    """The agent on node `name`, started by `command` with `environment`. Its ranks connect to the socket at `path`."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    _: KW_ONLY
    path: Path
    cwd: Path = Path("/")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._answers = FromNode
        self.host = ""
        self._who = f"node {self.name}"
        self._silence = "nothing comes from it"
        self._relays: dict[int, Relay] = {}
        self._carrying: set[asyncio.Task[None]] = set()
        self._shifts: deque[float] = deque(maxlen=SHIFTS)
        self._born_s = time.monotonic()
        self._ever_s: float | None = None

    def news(self, now_mono_s: float) -> Node:
        since = self._born_s if self._ever_s is None else self._ever_s
        return Node(self.name, self.host, now_mono_s - since, self.readings.age_s(now_mono_s))

    async def _open(self) -> tuple[Process, asyncio.StreamReader, asyncio.StreamWriter]:
        self._shifts.clear()
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LINE_MAX,
            start_new_session=True,
            cwd="/",
            env=self.environment,
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._carry_on(self._overhear(process.stderr))
        return process, process.stdout, process.stdin

    async def _overhear(self, stderr: asyncio.StreamReader) -> None:
        """What the command and the node complain of goes to the log, to a bound: the disk is the training's, too."""
        left_b = COMPLAINTS_B
        while piece := await stderr.read(COMPLAINTS_B):
            for line in piece[:left_b].decode(errors="replace").splitlines():
                if line.strip():
                    self.log(f"{self._who}: {units.printable(line)}")
            if 0 < left_b <= len(piece):
                self.log(f"{self._who}: says more than {COMPLAINTS_B} bytes; the rest is left out")
            left_b = max(0, left_b - len(piece))

    async def close(self, timeout_s: float = 3.0) -> tuple[Outcome, ...]:
        outcomes = await super().close(timeout_s)
        if self._process is not None:
            # what a wrapper has left running may hold its pipes: they are let go of while there is a loop to do it
            self._process._transport.close()  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        return outcomes

    def _kill(self, process: Process) -> None:
        if process.returncode is None:  # it leads a session of its own: with what a wrapper has started
            proc.signal_group(process.pid, signal.SIGKILL)

    def take(self, message: FromNode) -> None:
        self._received_s = self._ever_s = time.monotonic()
        if isinstance(message, Up):
            self.host = message.host
        elif isinstance(message, Open):
            new = self._relays[message.c] = Relay(message.c, self._say)
            self._carry_on(self._carry(new))
        elif isinstance(message, Line | Shut):
            relay = self._relays.get(message.c)
            if relay is not None:
                relay.receive(message.text) if isinstance(message, Line) else relay.end()
        elif isinstance(message, Report):
            super().take(self._dated(message))
        elif isinstance(message, Done | Gone):
            here = (structs.replace(outcome, uuid=self._named(outcome.uuid)) for outcome in message.outcomes)
            super().take(structs.replace(message, outcomes=tuple(here)))
        else:
            super().take(message)

    # --- boards ---

    def _dated(self, report: Report) -> Report:
        """The report in our clocks, with its boards and host named after this node."""
        now = time.monotonic()
        wall_ahead = time.time() - now
        self._shifts.append(now - report.readings.mono_s)
        shift = min(self._shifts)
        mono = report.readings.mono_s + shift
        readings = structs.replace(
            report.readings,
            mono_s=mono,
            wall_s=mono + wall_ahead,
            devices=tuple(
                structs.replace(device, uuid=self._named(device.uuid), node=self.name)
                for device in report.readings.devices
            ),
            notices=tuple(f"{self.name}: {notice}" for notice in report.readings.notices),
        )
        samples = tuple(
            structs.replace(
                sample,
                uuid=self._named(sample.uuid),
                mono_s=sample.mono_s + shift,
                wall_s=sample.mono_s + shift + wall_ahead,
            )
            for sample in report.samples
        )
        return Report(readings, samples)

    def _named(self, uuid: str) -> str:
        """A board's own UUID; devices with the same name on every node (host, simulated and declared boards) get the
        node's name."""
        made_up = bool(self.simulated) or uuid.startswith(declared.UUID)
        return f"{uuid}@{self.name}" if uuid in HOST_PARTS or made_up else uuid

    def _left_behind(self, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        return ()  # that node's leases are stored there

    # --- connections ---

    def _carry_on(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, relay: Relay) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.path), limit=LINE_MAX)
        except OSError:
            await self._say(Shut(relay.c))
        else:
            await relay.carry(reader, writer)
        self._relays.pop(relay.c, None)

    async def _say(self, message: Struct) -> None:
        writer = self._writer
        if writer is not None and not writer.is_closing():
            writer.write(encode(message))
            with contextlib.suppress(OSError):
                await writer.drain()

    def _hang_up(self) -> None:
        super()._hang_up()
        for relay in list(self._relays.values()):
            relay.end()
        self._relays.clear()
