"""The agent process, the only user of NVML and RAPL: `python -m carbontui.power.agent --fd N`, in its own session.

Two threads. The main one serves the socket and sets limits; on EOF it restores every limit and exits, even while the
sampling thread is stuck in the driver. If the main thread itself is stuck, the supervisor kills and replaces the
process; the successor finds the lease.
"""

import argparse
import contextlib
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from carbontui.power.agent.core import Agent
from carbontui.power.backends.base import Backend
from carbontui.power.backends.declared import DeclaredBackend, DeclaredBoards
from carbontui.power.backends.several import families
from carbontui.power.backends.simulated import SimulatedBackend, SimulatedSpec
from carbontui.power.limit.leases import LeaseStore, stale_leases
from carbontui.power.messages import Bye, DesiredPower, Gone, Outcome, ToAgent, encode
from carbontui.power.metering.rapl import Host
from carbontui.power.metering.shares import JobsHere
from carbontui.system import isolation, untrusted

BUFFER_MAX = 1024 * 1024
RETRY_S = 2.0
TICK_S = 0.5


class Wire:
    """Sends lines without ever waiting: if the supervisor stops reading, a bounded queue fills, then reports drop."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._rest = bytearray()
        self._lock = threading.Lock()

    def send(self, message: Struct) -> None:
        with self._lock:
            if len(self._rest) < BUFFER_MAX:
                self._rest += encode(message)
            self._push()

    def flush(self, seconds: float) -> None:
        """Keep sending for up to `seconds`: for the last message before the process exits."""
        until = time.monotonic() + seconds
        while self._rest and time.monotonic() < until:
            select.select([], [self._link], [], 0.05)
            with self._lock:
                self._push()

    def _push(self) -> None:
        try:
            while self._rest:
                sent = self._link.send(self._rest, socket.MSG_DONTWAIT)
                del self._rest[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._rest.clear()


def serve(agent: Agent, wire: Wire, link: socket.socket) -> int:
    """Read wishes until EOF, Bye or SIGTERM, then restore the limits. Returns the exit code: 4 if that failed."""
    try:
        _listen(agent, wire, link)
    except Exception as error:
        # after any exception, restore the limits before this process ends
        agent.say(f"ends after {type(error).__name__}: {error}")
    outcomes = agent.leave()
    wire.send(Gone(outcomes))
    wire.flush(0.5)
    return 0 if all(outcome.ok for outcome in outcomes) else 4


def _listen(agent: Agent, wire: Wire, link: socket.socket) -> None:
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    """Lines from the supervisor; an empty one is the end."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: inbox.put(b""))
    threading.Thread(target=_receive, args=(link, inbox), name="hear", daemon=True).start()
    while True:
        latest: DesiredPower | None = None
        with contextlib.suppress(queue.Empty):
            line = inbox.get(timeout=TICK_S)
            while True:
                try:
                    message: ToAgent = untrusted.decode(line, ToAgent)  # type: ignore[arg-type]
                except ValueError as error:
                    if not line:
                        return
                    agent.say(f"not a valid message: {error}")
                else:
                    if isinstance(message, Bye):
                        return
                    if isinstance(message, DesiredPower):
                        latest = message
                    else:
                        agent.poke.set()
                line = inbox.get_nowait()
        if latest is not None:
            agent.wish(latest)
        wire.flush(0.0)
        agent.tick()


def _receive(link: socket.socket, inbox: queue.SimpleQueue[bytes]) -> None:
    """Pass on every line until EOF, also while the main thread is in the driver."""
    with contextlib.suppress(OSError):
        for line in link.makefile("rb"):
            inbox.put(line)
    inbox.put(b"")


def _boards() -> Backend:
    """What the drivers show; writes that they refuse go to a service that may write."""
    from carbontui.power.capd.client import CapdBackend

    return CapdBackend(*families())


def _restore(wait_s: float) -> tuple[Outcome, ...]:
    """Restore stale limits, retrying for `wait_s`: a hung driver may answer later."""
    until = time.monotonic() + wait_s
    if wait_s:
        # the call into the driver may never return
        leave = threading.Timer(wait_s, os._exit, (4,))
        leave.daemon = True
        leave.start()
    while True:
        outcomes = Agent(lambda _message: None, _boards(), Host(), LeaseStore(), "restore").restore_stale()
        if time.monotonic() >= until or not stale_leases():
            return outcomes
        time.sleep(RETRY_S)


def main(argv: list[str] | None = None) -> int:
    """Parse, connect, serve."""
    parser = argparse.ArgumentParser(prog="carbontui.power.agent")
    parser.add_argument("--fd", type=int)
    parser.add_argument("--simulated", help="a SimulatedSpec as JSON")
    parser.add_argument("--declared", help="DeclaredBoards as JSON, for boards whose power cannot be read")
    parser.add_argument("--job", default="")
    parser.add_argument("--owner", help="pid and start time of the supervisor, for who looks at the process table")
    parser.add_argument("--apart", default="", help="of the jobs that keep their leases in a place of their own, which")
    parser.add_argument("--monitor", action="store_true", help="never write a limit")
    parser.add_argument("--probing", action="store_true", help="with --monitor: still ask what could be set")
    parser.add_argument(
        "--mend", action="store_true", help="restore limits left by dead agents, print the outcomes, exit"
    )
    parser.add_argument("--wait", type=float, default=0.0, help="with --mend: seconds to wait for the driver")
    parser.add_argument("--rapl", type=Path, default=None)
    options = parser.parse_args(argv)
    if options.mend:
        outcomes = _restore(options.wait)
        sys.stdout.buffer.write(msgspec.json.encode(outcomes))
        return 0 if all(outcome.ok for outcome in outcomes) else 4
    link = socket.socket(fileno=options.fd)
    wire = Wire(link)
    simulated = options.simulated is not None
    backend: Backend
    if simulated:
        backend = SimulatedBackend(msgspec.json.decode(options.simulated, type=SimulatedSpec), time.monotonic)
    else:
        backend = _boards()
        if options.declared is not None:
            declared = msgspec.json.decode(options.declared, type=DeclaredBoards)
            backend = DeclaredBackend(backend, declared)
    host = Host(options.rapl) if options.rapl else Host()
    host.cpu_time.jobs_here = JobsHere(host.cpu_time.root, options.job, options.apart)
    store = None if simulated else LeaseStore()
    agent = Agent(wire.send, backend, host, store, options.job, monitor=options.monitor, probing=options.probing)
    isolation.tell_what_lacks("agent")
    threading.Thread(target=agent.keep_sampling, name="sampler", daemon=True).start()
    return serve(agent, wire, link)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # a sampler stuck in the driver must not hold up the exit
    os._exit(code)
