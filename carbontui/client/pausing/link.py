"""The link to the supervisor: one background thread, started at the first step, that owns the socket.

It sends the state of the loop about once a second and at every change, and delivers wants to the gate. Without a
supervisor it tries to connect once a second. Nothing it does can block the training thread, and nothing that arrives
on the socket can end it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, Optional, Tuple

from carbontui.client import marker
from carbontui.client.detection.places import watch
from carbontui.client.detection.report import reporter
from carbontui.client.pausing import late, wire
from carbontui.client.pausing.gate import Gate

if TYPE_CHECKING:
    from carbontui.client.pausing.signals import LastSave

BEAT_S = 1.0
RECONNECT_MAX_S = 1.0
"""The longest interval between two attempts to connect: a new supervisor should find its job within a second."""
SENTENCE_S = 2.0
"""The longest wait for our own thread to finish a message; it needs microseconds once it runs."""
FLOOD_LINES = 16
RATE_WINDOW_S = 10.0


class Untrusted(Exception):
    """The socket or its peer cannot be trusted."""


def connect(path: str) -> socket.socket:
    """A non-blocking connection to the socket at `path`. Raises OSError or Untrusted.

    Its directory must be ours (or root's) and closed to others, and the listening process must be ours (or root's).
    """
    ours = (os.getuid(), 0)
    folder = os.lstat(os.path.dirname(path) or ".")
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid not in ours or stat.S_IMODE(folder.st_mode) & 0o077:
        raise Untrusted("the socket's directory is not private")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # never settimeout: with a timeout, send() waits for buffer space even under MSG_DONTWAIT
        sock.setblocking(False)
        sock.connect(path)
        if hasattr(socket, "SO_PEERCRED"):
            uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if uid not in ours:
                raise Untrusted("the supervisor runs under another uid")
    except BaseException:
        sock.close()
        raise
    return sock


def _left_at() -> Optional[str]:
    """Where this process leaves its last step count for when no supervisor is listening; None outside a job.

    One supervisor may have been killed with the last message unread in its socket, and the next may start after the
    training has ended. The file contains the lines that the socket would have carried, hello and obs; the supervisor
    removes it once they are in its journal.
    """
    beside = os.environ.get("CARBONTUI_MARKER")
    return os.path.join(os.path.dirname(beside), f"last-count-{os.getpid()}.jsonl") if beside else None


class Link:
    """Communicates for `gate` over the socket at `path`; `hello` has the fields of the first message."""

    def __init__(self, gate: Gate, path: str, hello: Dict[str, Any]) -> None:
        self.gate = gate
        self.path = path
        self.hello = hello
        self.last_save: Optional[LastSave] = None
        """Once there is a checkpoint function."""
        self.devices: Tuple[str, ...] = ()
        self._ack: Optional[Tuple[int, int]] = None
        self._changed = True
        self._sock: Optional[socket.socket] = None
        self._poll = select.poll()
        self._wake_r, self._wake_w = os.pipe()
        for fd in (self._wake_r, self._wake_w):
            os.set_blocking(fd, False)
        self._poll.register(self._wake_r, select.POLLIN)
        self._in = self._out = b""
        self._welcome = False
        self._beat_at = self._reconnect_at = 0.0
        self._reconnect_s = 0.05
        self._rate: Deque[Tuple[float, int]] = deque(maxlen=32)
        self._rate_for: Tuple[Any, ...] = ()
        self._left_at = _left_at() if hello.get("rank") == 0 else None  # steps are those of rank 0
        self._left: Optional[int] = None
        """The count in the file."""
        self.closed = False
        self._talk = threading.Lock()
        """Held by the sender: this thread, never while it waits, or the training thread for its last message."""
        watch.count, watch.unforked = lambda: gate.counter.done(), gate.cond
        gate.on_change = self.changed
        gate.on_ack = self.ack
        self.thread = threading.Thread(target=self._run, name="carbontui-link", daemon=True)

    def start(self) -> None:
        self.thread.start()

    # --- for the training thread ------------------------------------------------------------------------------

    def changed(self) -> None:
        """A change that should be sent to the supervisor at once."""
        self._changed = True
        with contextlib.suppress(OSError):  # full: the thread is awake anyway
            os.write(self._wake_w, b"!")

    def ack(self, want_gen: int, step: int) -> None:
        self._ack = (want_gen, step)
        self.changed()

    def flush(self, timeout_s: float) -> None:
        """Send the last message from the calling thread: on a busy machine ours may not run again before the exit.

        It is safe once it is in the socket buffer, read or not, so this is quick; `timeout_s` is for a peer that has
        let its socket fill up.
        """
        if self.closed or self.hello["pid"] != os.getpid() or not self._talk.acquire(timeout=SENTENCE_S):
            return
        end = time.monotonic() + timeout_s
        try:
            self._leave_count()  # also where a supervisor is connected: it may be killed before it reads
            self._changed = True
            if self._sock is None:
                self._reconnect(time.monotonic())
            while self._sock is not None:
                self._say(time.monotonic())
                room = select.poll()
                room.register(self._sock, select.POLLOUT)
                left_s = end - time.monotonic()
                if not (self._out or self._changed) or left_s <= 0 or not room.poll(left_s * 1000):
                    return
        except Exception:  # no supervisor, or it is gone: the training ends regardless
            self._drop()
        finally:
            self._talk.release()

    def close(self) -> None:
        """Send the last message, and end."""
        self.flush(SENTENCE_S)
        self.closed = True
        if self.last_save is not None:
            self.last_save.disarm()
        self.changed()
        self.thread.join(SENTENCE_S)
        with self._talk:
            self._drop()

    def abandon(self) -> None:
        """In the child of a fork: close our copies; never shutdown(), which would end the parent's connection."""
        if self.last_save is not None:
            self.last_save.disarm()
        for fd in (self._wake_r, self._wake_w):
            with contextlib.suppress(OSError):
                os.close(fd)
        if self._sock is not None:
            with contextlib.suppress(OSError):
                os.close(self._sock.detach())

    def guard(self) -> None:
        """In the main thread: save before a signal ends the process, if anything can be saved."""
        if self.gate.savers:
            if self.last_save is None:
                self.last_save = late("signals").LastSave(self.gate)
            self.last_save.arm(self._wake_w)
        elif self.last_save is not None:
            self.last_save.disarm()

    # --- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except (OSError, Untrusted, wire.BadLine):
                with self._talk:
                    self._drop()
                    self._leave_count()
            except Exception:  # after any exception training continues and so does the link
                with self._talk:
                    self._drop()
                time.sleep(RECONNECT_MAX_S)
            if self.closed or sys.is_finalizing():
                return

    def _turn(self) -> None:
        now = time.monotonic()
        tick_at = self.gate.tick()
        with self._talk:
            if self._sock is None and now >= self._reconnect_at:
                self._reconnect(now)
            if self._sock is not None:
                self._say(now)
            at = self._reconnect_at if self._sock is None else self._beat_at
        last_save = self.last_save
        save_at = last_save.tick(now) if last_save is not None else None
        at = min(due for due in (at, tick_at, save_at) if due is not None)
        # rounded up: a poll that wakes a hair early would spin until the time has come
        for fd, events in self._poll.poll(max(0, int((at - time.monotonic()) * 1000) + 1)):
            if fd == self._wake_r:
                with contextlib.suppress(OSError):
                    woken = os.read(self._wake_r, 4096)
                    if last_save is not None:
                        last_save.received(woken)
            elif events & ~select.POLLOUT:
                self._receive()

    def _reconnect(self, now: float) -> None:
        self._reconnect_at = now + self._reconnect_s
        self._reconnect_s = min(RECONNECT_MAX_S, self._reconnect_s * 2)
        self._sock = connect(self.path)
        reporter.anew()
        self._poll.register(self._sock, select.POLLIN)
        self._out = self._hello()
        self._beat_at = 0.0

    def _drop(self) -> None:
        """Close the connection; the lease of a pause stays in force."""
        self._welcome = self.gate.connected = False
        self._in = self._out = b""
        self._beat_at = 0.0
        self._reconnect_at = max(self._reconnect_at, time.monotonic() + 0.02)
        if self._sock is not None:
            with contextlib.suppress(OSError, KeyError):
                self._poll.unregister(self._sock)
            self._sock.close()
            self._sock = None

    def _leave_count(self) -> None:
        """Write the count to the file if it has changed: no supervisor may read the socket before this process ends."""
        done = self.gate.counter.done()
        if self._left_at is None or done == self._left:
            return
        with contextlib.suppress(OSError):
            lines = self._hello() + wire.encode("obs", self._observe(time.monotonic()))
            marker.write_atomic(self._left_at, lines, durable=False)
            self._left = done

    def _hello(self) -> bytes:
        return wire.encode("hello", {**self.hello, "v": wire.VERSION, "role": "rank"})

    def _say(self, now: float) -> None:
        """Send, with at most one message in flight; anything newer goes into the next one."""
        assert self._sock is not None
        while True:
            if not self._out:
                if self._ack is not None and self._welcome:
                    (gen, step), self._ack = self._ack, None
                    self._out = wire.encode("ack", {"want_gen": gen, "step": step})
                elif self._changed or now >= self._beat_at:
                    self._changed, self._beat_at = False, now + BEAT_S
                    self._out = wire.encode("obs", self._observe(now))
                elif (sighting := self._sighting()) is not None:
                    self._out = wire.encode("sighting", sighting)
                else:
                    break
            try:
                self._out = self._out[self._sock.send(self._out) :]
            except BlockingIOError:
                self._beat_at = max(self._beat_at, now + BEAT_S)
                break
        self._poll.modify(self._sock, select.POLLIN | (select.POLLOUT if self._out else 0))

    def _sighting(self) -> Optional[Dict[str, Any]]:
        """Where the training is, to be read; not beside its last message."""
        return reporter.sighting() if self._welcome and threading.current_thread() is self.thread else None

    def _observe(self, now: float) -> Dict[str, Any]:
        gate = self.gate
        timed = gate.counter.watch()
        done = gate.counter.done()
        self.count(done)
        return {
            **gate.facts,
            "work": self._work(done),
            "step": done,
            "state": gate.shown_state(),
            "want_gen": gate.seen_gen,
            "rate": self.speed(),
            "devices": self.devices,
            "calls": gate.boundaries(),
            "can_unload": bool(gate.savers and os.environ.get("CARBONTUI_MARKER")),  # else nobody starts it again
            "epoch_left": gate.epoch(),
            "doing": watch.doing() if gate.state == "running" else None,
            "timed": timed and (timed[0], round(max(0.0, gate.clock() - timed[1]), 6)),
        }

    def _work(self, done: int) -> Optional[Dict[str, Any]]:
        """For the total where the script states none."""
        if self.gate.facts.get("total") is not None or self.hello.get("rank"):
            return None
        before = self.gate.step_total() - self.gate.counter.done()
        return reporter.report(done, before, framework=bool(self.gate.framework))

    def count(self, done: int) -> None:
        """So many steps are done now: the newest point of the rate."""
        level = (self.gate.level(), self.gate.counter is self.gate.explicit)
        at = self.gate.running_s()
        if level != self._rate_for or (self._rate and done < self._rate[-1][1]):
            self._rate.clear()
            self._rate_for = level
        if not self._rate or done != self._rate[-1][1]:
            self._rate.append((at, done))
        while len(self._rate) > 2 and at - self._rate[1][0] > RATE_WINDOW_S:
            self._rate.popleft()

    def speed(self) -> Optional[float]:
        """Steps per second over the last ten seconds, or the last two steps if those are longer."""
        if len(self._rate) < 2:
            return None
        (t0, n0), (t1, n1) = self._rate[0], self._rate[-1]
        return round((n1 - n0) / (t1 - t0), 6) if t1 - t0 > 0.2 else None

    def _receive(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(wire.LINE_MAX)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("the supervisor is gone")
        *lines, self._in = (self._in + data).split(b"\n")
        if len(self._in) > wire.LINE_MAX:
            raise wire.BadLine("a line without end")
        for line in lines:
            with contextlib.suppress(wire.BadLine, TypeError, ValueError):  # the latter of lists that are no reading
                self._take(wire.decode(line))
        if len(lines) > FLOOD_LINES:
            time.sleep(0.005)  # a flood of messages waits in the socket, not in the interpreter

    def _take(self, message: Any) -> None:
        if isinstance(message, wire.WelcomeLine):
            self._welcome = self.gate.connected = message.v == wire.VERSION
            self._reconnect_s = 0.05
            if self._left_at is not None and self._left is not None:
                marker.remove(self._left_at)
                self._left = None
            self.gate.new_peer = True
        elif isinstance(message, wire.ReadingLine):
            reporter.read(*message)
            self._changed = True
        elif isinstance(message, wire.FiguresLine) and self._welcome:
            self.gate.figures = message.values
        elif isinstance(message, wire.DesiredLine) and self._welcome:
            self.gate.accept(message)
