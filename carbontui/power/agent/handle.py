"""The supervisor's handle of the agent: starts it, replaces it when it dies or hangs, keeps the latest readings.

Nothing here waits for a driver. While an agent is being replaced the last readings age, and its
successor is sent the same wish.
"""

import asyncio
import contextlib
import os
import socket
import time
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from carbontui import paths
from carbontui.power import messages
from carbontui.power.agent import processes
from carbontui.power.backends.declared import DeclaredBoards
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.limit import leases
from carbontui.system import isolation, untrusted

BACKOFF_S = (0.0, 1.0, 2.0, 5.0, 15.0)
STABLE_S = 30.0
"""An agent that lived this long died of a new cause: the back-off is reset."""
FIRST_REPORT_S = 20.0
"""Opening the driver takes seconds on a machine with many GPUs and no persistence mode."""
ANSWER_S = 5.0
SAMPLES_KEPT = 20_000


@dataclass(eq=False, kw_only=True)
class AgentHandle:
    """One agent process and its last messages. `log` takes lines for carbontui.log; `cwd` contains no job data.

    `monitor` never writes a limit (--no-cap, replays on real devices); with `probing` it still asks the driver, by
    writing back the limit in force, whether one could be set (doctor).
    """

    simulated: SimulatedSpec | None = None
    declared: DeclaredBoards | None = None
    log: Callable[[str], None]
    cwd: Path
    job: str
    monitor: bool = False
    probing: bool = False

    def __post_init__(self) -> None:
        self._on_report: Callable[[], None] = lambda: None
        self._who = "agent"
        """Its name in carbontui.log."""
        self._silence = "the driver is not answering"
        """What its silence means."""
        self._answers: Any = messages.ToSupervisor
        """What it may send."""
        self.readings = messages.Readings()
        self.outcomes: dict[str, messages.Outcome] = {}
        """The latest outcome per GPU, including unsolicited ones (a cap without effect, a limit changed outside)."""
        self._wish = messages.DesiredPower()
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._samples: deque[messages.Sample] = deque(maxlen=SAMPLES_KEPT)
        self._happened: list[messages.Outcome] = []
        self._waiting: dict[int, asyncio.Future[tuple[messages.Outcome, ...]]] = {}
        self._reported = asyncio.Event()
        self._gone: asyncio.Future[tuple[messages.Outcome, ...]] | None = None
        self._started_s = 0.0
        self._received_s: float | None = None
        self._closing = False

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def nodes(self) -> tuple[messages.Node, ...]:
        """The other machines of the job."""
        return ()

    def on_report(self, received: Callable[[], None]) -> None:
        """`received` is called with every report that has come."""
        self._on_report = received

    async def start(self) -> None:
        """Start the agent and keep one alive from now on."""
        await self._spawn()
        self._tasks = [asyncio.create_task(task) for task in (self._keep(), self._beat(), self._reap())]

    async def close(self, timeout_s: float = 3.0) -> tuple[messages.Outcome, ...]:
        """Restore every limit, then end the agent. Returns the outcomes; empty the second time."""
        if self._closing:
            return ()
        self._closing = True
        outcomes: tuple[messages.Outcome, ...] = ()
        process = self._process
        if process is not None and process.returncode is None:
            self._gone = asyncio.get_running_loop().create_future()
            self._send(messages.Bye())
            with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError):
                outcomes = await asyncio.wait_for(self._gone, timeout_s)
            self._hang_up()
            try:
                await asyncio.wait_for(process.wait(), 1.0)
            except asyncio.TimeoutError:
                self._kill(process)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        processes.end_orphans(self.job)
        return (*outcomes, *self._left_behind(outcomes))

    def _left_behind(self, outcomes: tuple[messages.Outcome, ...]) -> tuple[messages.Outcome, ...]:
        """Outcomes for our limits that are still set. A process is left to restore them once the driver answers."""
        if self.simulated is not None or self.monitor:
            return ()
        left = leases.left_by(self.job)
        refused = {outcome.uuid for outcome in outcomes if outcome.code == "no_permission"}
        if any(lease.uuid not in refused for lease in left):
            try:
                processes.wait_for_driver(self.cwd)
            except OSError as error:
                self.log(f"no process can be left behind to restore limits ({error})")
        known = {outcome.uuid for outcome in outcomes if not outcome.ok}
        tries = f"a process tries again for {processes.WAIT_S // 60} min"
        text = f"limit not restored yet: the driver is not answering; {tries}"
        made = processes.not_restored(tuple(lease for lease in left if lease.uuid not in known), text)
        self._note(made)
        return made

    # --- wishes -----------------------------------------------------------------------------------------------

    def watch(
        self,
        uuids: tuple[str, ...] | None,
        own_pids: tuple[int, ...] = (),
        elsewhere: tuple[tuple[str, tuple[int, ...]], ...] = (),
    ) -> None:
        """The child's GPUs as its client names them (None: all visible), and its pids: others there are foreign."""
        if (uuids, own_pids) != (self._wish.watch, self._wish.own_pids):
            # a new generation: the requested limit applies to these boards now
            self.change(watch=uuids, own_pids=own_pids, gen=self._wish.gen + 1)

    @property
    def left(self) -> tuple[str, ...]:
        """Boards whose limit another program has changed since the last request."""
        return self._wish.left

    async def set_limit(
        self, watts_per_gpu: float | None, *, allow_raise: bool = False, left: tuple[str, ...] = ()
    ) -> tuple[messages.Outcome, ...]:
        """Cap every watched GPU except those in `left`, or restore the original limits (None).

        One outcome per GPU; never raises for a device.
        """
        gen = self._wish.gen + 1
        answer: asyncio.Future[tuple[messages.Outcome, ...]] = asyncio.get_running_loop().create_future()
        self._waiting[gen] = answer
        self.change(gen=gen, limit_w=watts_per_gpu, allow_raise=allow_raise, left=left)
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except asyncio.TimeoutError:
            text = "the driver is not answering; the limit is set as soon as it does"
            watched = (reading.uuid for reading in self.readings.devices if reading.watched)
            return tuple(messages.Outcome(uuid, False, "error", None, text) for uuid in watched)
        finally:
            self._waiting.pop(gen, None)

    def change(self, **fields: object) -> None:
        """Change these fields of the wish, and send it, if they differ."""
        wish = structs.replace(self._wish, **fields)
        if wish != self._wish:
            self._wish = wish
            self._send(wish)

    async def refresh(self, timeout_s: float = 0.3) -> messages.Readings:
        """Request a fresh reading; returns the latest one on timeout."""
        self._reported.clear()
        self._send(messages.Poke())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._reported.wait(), timeout_s)
        return self.readings

    def drain(self) -> list[messages.Sample]:
        """Samples since the last call, oldest first."""
        samples = list(self._samples)
        self._samples.clear()
        return samples

    def happened(self) -> list[messages.Outcome]:
        """Unsolicited outcomes since the last call, oldest first."""
        happened, self._happened = self._happened, []
        return happened

    # --- the process ------------------------------------------------------------------------------------------

    async def _spawn(self) -> None:
        self._process, self._reader, self._writer = await self._open()
        self._started_s = time.monotonic()
        self._received_s = None
        self._send(self._wish)

    async def _open(self) -> tuple[Process, asyncio.StreamReader, asyncio.StreamWriter]:
        """Start the process and open the wire to it. Raises OSError."""
        ours, theirs = socket.socketpair()
        arguments = ["--fd", str(theirs.fileno()), "--job", self.job, "--owner", processes.owner()]
        if self.simulated is not None:
            arguments += ["--simulated", msgspec.json.encode(self.simulated).decode()]
        if self.declared is not None:
            arguments += ["--declared", msgspec.json.encode(self.declared).decode()]
        arguments += paths.apart()
        if self.monitor:
            arguments.append("--monitor")
        if self.probing:
            arguments.append("--probing")
        try:
            process = await asyncio.create_subprocess_exec(
                *processes.command(*arguments),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd=self.cwd,
                env=isolation.environment(os.environ),
                stdin=DEVNULL,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, *await asyncio.open_unix_connection(sock=ours, limit=messages.LINE_MAX)

    async def _keep(self) -> None:
        """Read messages until the agent is gone, then start another."""
        tries = 0
        while True:
            await self._read(self._reader)
            self._hang_up()
            process = self._process
            if process is not None:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), 0.5)
            if self._closing:
                return
            elapsed = time.monotonic() - self._started_s
            tries = 0 if elapsed >= STABLE_S else tries + 1
            wait = BACKOFF_S[min(max(tries - 1, 0), len(BACKOFF_S) - 1)]
            code = process.returncode if process is not None else None
            self.log(f"{self._who}: gone after {elapsed:.0f} s (status {code}); another in {wait:.0f} s")
            await asyncio.sleep(wait)
            while True:
                try:
                    await self._spawn()
                    break
                except OSError as error:
                    self.log(f"{self._who}: cannot be started ({error})")
                    await asyncio.sleep(BACKOFF_S[-1])

    async def _beat(self) -> None:
        """Repeat the wish, and check that the agent still reports."""
        while True:
            begun = time.monotonic()
            await asyncio.sleep(messages.BEAT_S)
            self._send(self._wish)
            now = time.monotonic()
            if now - begun > messages.HUNG_S:
                continue  # we were stopped, or had no core: what it has said meanwhile is heard first
            limit = FIRST_REPORT_S if self._received_s is None else messages.HUNG_S
            silent = now - (self._started_s if self._received_s is None else self._received_s)
            process = self._process
            if silent > limit and process is not None and process.returncode is None and self._writer is not None:
                self.log(f"{self._who}: silent for {silent:.0f} s, {self._silence}; replaced")
                self._kill(process)
                # a process stuck in the kernel does not die of this yet: drop the connection anyway
                self._hang_up()

    async def _reap(self) -> None:
        """Kill agents of earlier supervisors that are still alive: stopped, or hanging in the driver."""
        await asyncio.sleep(processes.GRACE_S)
        for pid in processes.end_orphans(self.job):
            self.log(f"agent: {pid} has outlived its supervisor; killed")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            except (OSError, ValueError):
                return
            if not line:
                return
            try:
                message = untrusted.decode(line, self._answers)
            except ValueError as error:
                self.log(f"{self._who}: not a valid message ({error})")
                continue
            self.take(message)

    def take(self, message: messages.ToSupervisor) -> None:
        if isinstance(message, messages.Report):
            self.readings = message.readings
            self._samples.extend(message.samples)
            self._received_s = time.monotonic()
            self._reported.set()
            self._on_report()
        elif isinstance(message, messages.Done):
            self._note(message.outcomes)
            # the agent answers only the newest wish, which includes every older one
            due = [waiting for gen, waiting in self._waiting.items() if gen <= message.gen and not waiting.done()]
            if not message.asked or not due:
                # when a wish is repeated for a successor or for other boards, report only what changed
                self._happened += (o for o in message.outcomes if o.code != "kept")
                return
            for waiting in due:
                waiting.set_result(message.outcomes)
        elif isinstance(message, messages.Gone):
            self._note(message.outcomes)
            if self._gone is not None and not self._gone.done():
                self._gone.set_result(message.outcomes)
        elif isinstance(message, messages.AgentLine):
            self.log(f"{self._who}: {message.text}")

    def _note(self, outcomes: tuple[messages.Outcome, ...]) -> None:
        for outcome in outcomes:
            if not outcome.ok and self.outcomes.get(outcome.uuid) != outcome:
                self.log(f"{self._who}: {outcome.uuid}: {outcome.text or outcome.code}")
            self.outcomes[outcome.uuid] = outcome
            left = {*self._wish.left} - {outcome.uuid}
            if outcome.code == "outside" and self._wish.limit_w is not None:
                left.add(outcome.uuid)
            self._wish = structs.replace(self._wish, left=tuple(sorted(left)))

    def _send(self, message: messages.ToAgent) -> None:
        writer = self._writer
        if writer is None or writer.is_closing():
            return
        if writer.transport.get_write_buffer_size() < messages.LINE_MAX:
            writer.write(messages.encode(message))

    def _hang_up(self) -> None:
        if self._writer is not None:
            if not self._writer.is_closing():  # a pipe that is already closing cannot be aborted
                self._writer.transport.abort()
            self._writer = None

    def _kill(self, process: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def read_once(
    cwd: Path, own_pids: tuple[int, ...] = (), within_s: float = 6.0, declared: DeclaredBoards | None = None
) -> messages.Readings:
    """This machine's boards, with what could be set on them, without a write; `mono_s` is 0 where the driver has not
    answered in time. Raises OSError where no agent can be started."""
    handle = AgentHandle(log=lambda _line: None, cwd=cwd, job="doctor", monitor=True, probing=True, declared=declared)
    try:
        handle.change(probe=False)
        handle.watch(None, own_pids=own_pids)
        await handle.start()
        due_s = time.monotonic() + within_s
        while not handle.readings.mono_s and time.monotonic() < due_s:
            await asyncio.sleep(0.05)
        return handle.readings
    finally:
        await handle.close()
