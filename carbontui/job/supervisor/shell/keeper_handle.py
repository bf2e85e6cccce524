"""The supervisor's end of the keeper's socket pair, and what it does itself once the keeper is gone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from carbontui import proc
from carbontui.job import launch, restart, spool
from carbontui.job.child import Child, exited


class KeeperHandle:
    """What is known of keeper and child. `changed` is called when that changes; `directory` is the job's."""

    def __init__(
        self, fd: int | None, log: Callable[[str], None], changed: Callable[[], None], directory: Path | None = None
    ) -> None:
        self._dir = directory
        self._log = log
        self._changed = changed
        self._socket = socket.socket(fileno=fd) if fd is not None else None
        self._inbox = b""
        self.facts: dict[str, Any] = {}
        self._stop_task: asyncio.Task[None] | None = None

    @property
    def guarded(self) -> bool:
        """Whether the keeper is there to restart and to report."""
        return self._socket is not None

    @property
    def pid(self) -> int | None:
        pid = self.facts.get("pid")
        return int(pid) if pid else None

    @property
    def starts(self) -> int:
        """How often the keeper has started the command."""
        return int(self.facts.get("starts", 0))

    @property
    def keeper_pid(self) -> int | None:
        return int(self.facts["keeper"]) if self.guarded and "keeper" in self.facts else None

    @property
    def to_replace(self) -> str | None:
        """State of a child that nobody is left to start and that a new keeper can: waiting or unloaded. Else None."""
        if self.guarded or self._dir is None or not self.facts or not spool.kept(self._dir):
            return None
        state = self.facts.get("state")
        if state == "running" and not proc.same_process(self.pid, self.facts.get("start_time")):
            return "unloaded" if restart.unloaded(self._dir) else None
        return str(state) if state in ("waiting", "unloaded") else None

    def replace(self, state: str) -> None:
        """Start a new keeper of a child in `state`, which starts a supervisor of its own: the last act of this one."""
        assert self._dir is not None
        try:
            keeper = launch.spawn_keeper(restart.again(self._dir, state))
        except (launch.LaunchError, OSError) as error:
            self._log(f"no new keeper: {error}")
        else:
            self._log(f"the keeper is gone while the command is {state}: {keeper.pid} takes its place")

    def open(self) -> None:
        """Start listening (call inside the running loop); what the keeper has said already is known on return."""
        if self._socket is not None:
            self._socket.setblocking(False)
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._hear)
            self._hear()

    def adopt(self, child: tuple[int, int] | None) -> None:
        """Without a keeper: the child as job.json names it."""
        if child and not self.facts:
            self.facts = {"state": "running", "pid": child[0], "start_time": child[1], "starts": 1, "exit": None}

    def _hear(self) -> None:
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
            with contextlib.suppress(msgspec.DecodeError):
                self.facts = msgspec.json.decode(line, type=dict[str, Any])
        if lines:
            self._changed()

    def _lost(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        if self.facts.get("frozen") and self.pid is not None:
            proc.signal_group(self.pid, signal.SIGCONT)
        self._log("the keeper is gone: no restart from here on")
        self._changed()

    def _say(self, **message: Any) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(msgspec.json.encode(message) + b"\n")

    def beat(self) -> None:
        self._say(t="beat")

    def hold(self, until_wall_s: float | None) -> None:
        """Move the start of a child that is not running; None: now."""
        self._say(t="hold", until=until_wall_s)

    def freeze(self, lease_s: float) -> None:
        """Stop the child's process group by signal, or renew that."""
        self._say(t="freeze", lease_s=lease_s)

    def thaw(self) -> None:
        self._say(t="thaw")

    def done(self) -> None:
        """The books are closed: the keeper may leave."""
        self._say(t="done")

    def child(self) -> Child:
        """The child as the keeper tells, or as the process table does once the keeper is gone."""
        facts = self.facts
        state = facts.get("state", "waiting")
        if state == "exited":
            return exited(facts.get("exit") or {})
        stopping = bool(facts.get("stopping")) or self._stop_task is not None
        if again := self.to_replace:
            return Child("unloaded" if again == "unloaded" else "waiting")
        if state == "running" and not self.guarded and not proc.same_process(self.pid, facts.get("start_time")):
            return Child("vanished", stopped=stopping)
        if state != "running" and not self.guarded:
            return Child("vanished", was=state)  # nobody is left to start it
        frozen = bool(facts.get("frozen")) and self.guarded
        why = str(facts.get("freeze_why") or "")
        return Child(state, age_s=proc.age_s(facts.get("start_time")), stopped=stopping, frozen=frozen, freeze_why=why)

    def stop(self, *, now: bool) -> None:
        """The stop order, by the keeper, or by ourselves when it is gone."""
        if self.guarded:
            self._say(t="stop", now=now)
        elif self._stop_task is None or now:
            if self._stop_task:
                self._stop_task.cancel()
            self._stop_task = asyncio.ensure_future(self._stop_alone(now))

    async def _stop_alone(self, now: bool) -> None:
        gap = proc.STOP_NOW_GAP_S if now else proc.STOP_GAP_S
        group = self.pid
        if group is None or not proc.same_process(group, self.facts.get("start_time")):
            return
        for number in proc.STOP_ORDER:
            proc.signal_group(group, number)
            if number != signal.SIGKILL:
                proc.signal_group(group, signal.SIGCONT)
            due = time.monotonic() + gap
            while time.monotonic() < due and proc.group_alive(group):
                await asyncio.sleep(0.1)
            if not proc.group_alive(group):
                return

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
