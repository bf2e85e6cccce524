"""The supervisor's end of the keeper's socket pair, and the supervisor's own actions once the keeper is gone."""

import asyncio
import contextlib
import fcntl
import signal
import socket
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path

from carbontui.job.files import launch_file, places
from carbontui.job.keeper.messages import Beat, ChildFacts, Order, Stop, decode_child, encode
from carbontui.job.life import launch, restart, stopping
from carbontui.job.terms.child import Child, exited
from carbontui.protocol import statement
from carbontui.system import proc
from carbontui.text.statements import words

SAME = ("retry", "retried", "fall_back", "fell_back", "trying", "freeze_why", "moving")
"""What is known of the command as the keeper tells it."""
READS_S = 1.0
"""A keeper that lives reads at once what it is sent."""


class KeeperHandle:
    """Known facts about keeper and child. `wake` is called when they change; `directory` is the job's."""

    def __init__(self, fd: int | None, log: Callable[[str], None], wake: Callable[[], None], directory: Path) -> None:
        self._dir = directory
        self._log = log
        self._wake = wake
        self._socket = socket.socket(fileno=fd) if fd is not None else None
        self._inbox = b""
        self.facts: ChildFacts | None = None
        """The keeper's last message, or without a keeper the contents of job.json; None before either is known."""
        self._stop_task: asyncio.Task[None] | None = None
        self._stop: Stop | None = None
        """The newest stop that was asked for."""

    @property
    def guarded(self) -> bool:
        """Whether the keeper is alive, to restart and to report."""
        return self._socket is not None

    async def unresponsive(self) -> bool:
        """Whether the keeper lives and reads nothing: stopped or held up, it hears everything once it goes on."""
        due = time.monotonic() + READS_S
        while unread_b := _unread_b(self._socket) if self._socket is not None else 0:
            if time.monotonic() >= due:
                break
            await asyncio.sleep(0.02)
        return unread_b > 0

    @property
    def pid(self) -> int | None:
        return self.facts.pid if self.facts else None

    @property
    def starts(self) -> int:
        """How often the keeper has started the command."""
        return self.facts.starts if self.facts else 0

    @property
    def keeper_pid(self) -> int | None:
        return self.facts.keeper if self.guarded and self.facts else None

    @property
    def to_replace(self) -> str | None:
        """State (waiting or unloaded) of a child that has no keeper to start it and that a new keeper can start, else
        None."""
        if self.guarded or self.facts is None or not launch_file.kept(self._dir):
            return None
        state = self.facts.state
        if state == "running" and not proc.same_process(self.pid, self.facts.start_time):
            return "unloaded" if restart.unloaded(self._dir) else None
        return state if state in ("waiting", "unloaded") else None

    def replace(self, state: str) -> None:
        """Start a new keeper for a child in `state`. It starts its own supervisor: this is the last act of this one."""
        try:
            keeper = launch.spawn_keeper(restart.again(self._dir, state))
        except (launch.LaunchError, OSError) as error:
            self._log(words(statement("no_new_keeper", why=str(error)), 0.0))
        else:
            self._log(words(statement("keeper_replaced", state=state, pid=keeper.pid), 0.0))

    def open(self) -> None:
        """Start listening (call inside the running loop); messages already sent by the keeper are read on return."""
        if self._socket is not None:
            self._socket.setblocking(False)
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._receive)
            self._receive()

    def adopt(self, child: tuple[int, int] | None) -> None:
        """Without a keeper: adopt the child named in job.json."""
        if child and self.facts is None:
            self.facts = ChildFacts("running", pid=child[0], start_time=child[1], starts=1)

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._inbox += data
        *lines, self._inbox = self._inbox.split(b"\n")
        for line in lines:
            self.facts = decode_child(line) or self.facts
        if lines:
            self._wake()

    def _lost(self) -> None:
        self.close()
        if self.facts and self.facts.frozen and self.facts.pid is not None:
            proc.signal_group(self.facts.pid, signal.SIGCONT)
        self._log(words(statement("keeper_gone"), 0.0))
        self._wake()

    def send(self, order: Order) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(encode(order))

    def beat(self) -> None:
        """A heartbeat, and with it every stop that the keeper has not confirmed: its socket may have been full."""
        self.send(Beat())
        if self._stop is not None and not (self.facts and self.facts.stopping):
            self.send(self._stop)

    def child(self) -> Child:
        """The child as reported by the keeper, or by the process table once the keeper is gone."""
        facts = self.facts or ChildFacts("waiting")
        state = facts.state
        if state == "exited":
            return exited(facts.exit or {})
        asked = facts.stopping or self._stop_task is not None
        if again := self.to_replace:
            return Child("unloaded" if again == "unloaded" else "waiting")
        if state == "running" and not self.guarded and not proc.same_process(facts.pid, facts.start_time):
            return Child("vanished", stopped=asked)
        if state != "running" and not self.guarded:
            return Child("vanished", was=state)  # no process is left to start it
        same = {name: getattr(facts, name) for name in SAME}
        age_s = proc.age_s(facts.start_time)
        # what unloads the training here must have come to its end before the lease has
        left_s = None if facts.lease_ends is None else facts.lease_ends - places.now().now_s - facts.margin_s
        most_s = facts.lease_s * places.UNLOAD
        if left_s is not None and left_s <= -facts.margin_s and not self.guarded and facts.pid is not None:
            proc.signal_group(facts.pid, signal.SIGKILL)  # as the keeper would: its last place takes it back
        frozen = facts.frozen and self.guarded
        return Child(
            state, age_s=age_s, stopped=asked, frozen=frozen, lease_left_s=left_s, unload_most_s=most_s, **same
        )

    def stop(self, *, now: bool, why: str = "") -> None:
        """Stop the child through the keeper, or directly when it is gone."""
        if self.guarded:
            self._stop = Stop(now, why)
            self.send(self._stop)
        elif self._stop_task is None or now:
            if self._stop_task:
                self._stop_task.cancel()
            self._stop_task = asyncio.ensure_future(self._stop_alone(now))

    async def _stop_alone(self, now: bool) -> None:
        group = self.pid
        if self.facts is not None and group is not None and proc.same_process(group, self.facts.start_time):
            for _ in stopping.stopped(group, now=now):
                await asyncio.sleep(0.1)

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None


def _unread_b(link: socket.socket) -> int:
    """Bytes of memory that the other end has not read yet (SIOCOUTQ); 0 if that is not known."""
    with contextlib.suppress(OSError):
        return int(struct.unpack("i", fcntl.ioctl(link, termios.TIOCOUTQ, bytes(4)))[0])
    return 0
