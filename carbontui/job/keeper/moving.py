"""A job's places, as its keeper sees them: whether it may train here, and the talk with the place it has moved to.

A move is first a lease of the verb that copies: without renewal the job goes on here. The hand-over is one durable
write. From then on this keeper only watches: it tells the other place that it holds the job, renews that lease, and
takes the job back once the lease has surely ended. A lease counts there from before it was asked for, here from when it
was given, on clocks that count sleep: there it ends first.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carbontui.job.files import places
from carbontui.job.files.places import MARGIN, RENEWED, Grant, Greeting, HoldAnswer, Stay
from carbontui.job.keeper import signals
from carbontui.job.keeper.messages import HandOver, Left, MoveTo, OfPlaces, Renewed
from carbontui.job.terms import records
from carbontui.system import proc

ANSWER_S = 60.0
"""A line that hangs is given up after this."""
MOST_B = 65536


class Call:
    """Runs until the other end closes. `greeted` takes its first line, `answered` the next, `over` in the end what else
    was said."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        selector: selectors.BaseSelector,
        greeted: Callable[[Greeting], Grant],
        answered: Callable[[Grant, HoldAnswer], None],
        over: Callable[[str], None],
    ) -> None:
        """Raises OSError."""
        self._selector, self._greeted, self._answered, self._over = selector, greeted, answered, over
        self._rest, self.fault = b"", ""
        self._sent: Grant | None = None
        self._due = time.monotonic() + ANSWER_S
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=signals.unblock,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        for fd in (self._in, self._out):
            os.set_blocking(fd, False)
        selector.register(self._out, selectors.EVENT_READ, self._receive)

    def tick(self, now: float) -> None:
        """Give up a line that hangs."""
        if now > self._due:
            self.fault = f"no answer within {ANSWER_S:.0f} s"
            self.close()

    def _receive(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._out, MOST_B)
        if not data:
            self.close()
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-MOST_B:]
        for line in filter(bytes.strip, lines):
            try:
                self._take(line)
            except ValueError:
                self.fault = line.decode(errors="replace").strip()[:200]

    def _take(self, line: bytes) -> None:
        """One line. Raises ValueError for one that is no message."""
        if self._sent is None:
            if not records.decode(line, Greeting).ready:
                raise ValueError("not ready")
            self._sent = self._greeted(records.decode(line, Greeting))
            with contextlib.suppress(OSError):  # what cannot be sent at once is not sent
                os.write(self._in, json.dumps(self._sent._asdict()).encode() + b"\n")
            return
        answer = records.decode(line, HoldAnswer)
        self.fault = answer.error[:200]
        self._answered(self._sent, answer)

    def close(self) -> None:
        """End it; the keeper reaps the process."""
        self._selector.unregister(self._out)
        proc.signal_group(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]
        self._process.returncode = 0
        self._over(self.fault)


LEASE_OVER = "ended here: the lease of the job's last place has not been renewed, and it may train there by now"
AGAIN_S = 3.0
"""Between two calls to a place that has not confirmed yet what it is told."""


class Moving:
    """`changed` is called when what is known has changed; times are monotonic seconds."""

    def __init__(
        self,
        directory: str,
        selector: selectors.BaseSelector,
        log: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._dir, self._selector, self._log, self._changed = directory, selector, log, changed
        self.places, self._watch = places.watching(places.read(directory), places.now())
        if self.places == places.UNREADABLE:
            log(f"{places.NAME} is damaged: nothing is started, for another machine may have the job")
        self.to = ""
        """The machine that the job is being copied to."""
        self.reached = ""
        self.leaves = False
        """This keeper is to leave without a word: the job returns with a directory of its own."""
        self.ended: dict[str, Any] | None = None
        """How the job ended elsewhere, as exit.json has it; {} if only its being here has."""
        self._until = self._due = 0.0
        self._order = MoveTo()
        self._call: Call | None = None
        self._fault = ""

    @property
    def may_run(self) -> bool:
        """Whether the command may be running here."""
        return self.places.may_run(places.now())

    @property
    def may_start(self) -> bool:
        """Whether it may be started now."""
        return self.places.may_start(places.now()) and not self.unloads and self.ended is None

    @property
    def unloads(self) -> bool:
        """Whether the command is to be unloaded, for a move."""
        return bool(self.to) and self._order.unload

    def facts(self) -> dict[str, Any]:
        """The facts reported to the supervisor and to verbs."""
        held = self.places.holder and self.places.leased
        ends = self.places.ends if self.places.boot == proc.boot_id() else 0.0
        there = {"moved_to": self.places.moved_to, "lease_ends": ends if held else None}
        there |= {"lease_s": self.places.lease_s, "margin_s": self.places.margin_s}
        moving = {"moving": self.to if self.unloads else "", "release": self.unloads and self._order.release}
        return {**moving, "reached": self.reached if self.to else "", **there}

    def fence(self, pid: int) -> bool:
        """If the command `pid` may not run here any more, kill it and all that it has started."""
        if self.may_run:
            return False
        for one in (*proc.descendants(pid), pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        proc.signal_group(pid, signal.SIGKILL)
        return True

    def end(self) -> dict[str, Any]:
        """What exit.json has besides of a job that ended elsewhere; {} for one that ended here."""
        if self.ended is None:
            return {}
        known = records.known_exit({name: self.ended.get(name) for name in ("code", "signal", "stopped")})
        return {"moved": self.places.peer or "another machine", "unloaded": False, **known}

    # --- what is said to us ---

    def apply_order(self, order: OfPlaces, *, ready: bool) -> None:
        """`ready`: the command is unloaded and the supervisor has left."""
        before = self.facts()
        try:
            self._apply_order(order, ready=ready)
        except OSError as error:  # nothing has changed then
            self._log(f"{places.NAME} could not be written: {error}")
        if self.facts() != before:
            self._changed()

    def _apply_order(self, order: OfPlaces, *, ready: bool) -> None:
        if isinstance(order, MoveTo):
            self._move(order)
        elif isinstance(order, HandOver) and ready and self.unloads and self.may_run:
            self._hand_over(order)
        elif isinstance(order, Renewed) and self.places.holder and order.token == self.places.token:
            self._renewed(order)
        elif isinstance(order, Left):
            self.leaves = not self.places.holder
            if self.places.holder:
                self._log(f"it goes on on {self.places.peer or 'another machine'}: {order.why or 'it has the job'}")
                self._keep(self.places._replace(holder=False, leased=False))
                self.ended = {}

    def _move(self, order: MoveTo) -> None:
        if not self.places.holder:
            return
        if order.to != self.to:
            self._log(f"being moved to {order.to}" if order.to else f"not moved to {self.to}: it goes on here")
            self.reached, self._due = "", 0.0
        self.to, self._order = order.to, order
        self._until = time.monotonic() + order.lease_s

    def _hand_over(self, order: HandOver) -> None:
        here = Stay(socket.gethostname(), order.zone, proc.boot_id(), order.since)
        *before, last = self.places.places or (here,)
        moved = places.handed_over(
            self.places,
            places.now(),
            peer=self.to,
            places=(*before, last._replace(until=order.until)),
            call=tuple(self._order.call),
            agent=self._order.agent,
            lease_s=order.lease_s,
            margin_s=order.lease_s * MARGIN,
            start_s=order.start_s,
        )
        self._keep(moved)
        self._watch = places.WatchState(places.now().now_s, step=int(order.step), for_good=not order.leased)
        self._due, self.to = 0.0, ""
        self._log(f"handed over to {moved.peer}, token {moved.token}")

    def _renewed(self, order: Renewed) -> None:
        if order.ends is None:
            self._keep(self.places._replace(leased=False, peer="", call=()))
            return
        at = places.now()
        lease_s = order.ends - at.now_s if order.lease_s is None else order.lease_s
        terms = Grant(order.token, lease_s, order.margin_s)
        self.places = places.granted(self.places, terms, at._replace(now_s=order.ends - lease_s))
        try:
            places.write(self._dir, self.places)
        except OSError as error:  # a successor of ours has less of it than we
            self._log(f"{places.NAME} could not be written: {error}")

    def _keep(self, new: places.Places) -> None:
        """Nothing counts before it is on disk, and then all that is. Raises OSError."""
        try:
            places.write(self._dir, new)
        except OSError:
            self.places = places.read(self._dir)
            raise
        self.places = new

    # --- what we say ---

    def tick(self, now: float) -> None:
        if self.to and now > self._until:
            self._move(MoveTo())
            self._changed()
        watched = not self.places.holder and self.places.leased
        if watched and self.places.left_s(places.now()) <= 0.0:
            self._take_back(self._watch.recall or "its lease has ended")
        elif self._call is not None:
            self._call.tick(now)
        elif (self.to or self.places.call) and now >= self._due and self.ended is None:
            self._begin_call(now)

    def _begin_call(self, now: float) -> None:
        command, agent = (self._order.call, self._order.agent) if self.to else (self.places.call, self.places.agent)
        environment = {**os.environ, **({"SSH_AUTH_SOCK": agent} if agent else {})}
        self._due = now + (self.places.lease_s * RENEWED if self._watch.settled or self.reached == "yes" else AGAIN_S)
        try:
            self._call = Call(
                command, environment, self._selector, greeted=self._grant, answered=self._answered, over=self._over
            )
        except OSError as error:
            self._over(str(error))

    def _over(self, fault: str) -> None:
        self._call = None
        if fault and self.to and self.reached != "yes":
            self.reached = fault
            self._changed()
        if fault and fault != self._fault:
            self._log(f"{self.to or self.places.peer}: {fault}")
        self._fault = fault

    def _grant(self, greeting: Greeting) -> Grant:
        """What the other place is sent."""
        if self.to:
            if self.reached != "yes":
                self.reached = "yes"
                self._changed()
            return Grant(ping=True)
        was, recalled = self.places, self._watch.recall
        known, self._watch, grant = places.grant(was, self._watch, places.now(), leave=greeting.leave)
        if known.leased != was.leased:
            self._keep(known)
            self._log(f"{known.peer} moves it on: it is not taken back from there any more")
        self.places = known
        if grant.recall and not recalled:
            self._log(f"{known.peer} is to give it back: {grant.recall}")
        return grant

    def _answered(self, sent: Grant, answer: HoldAnswer) -> None:
        if self.to:
            return
        known, self._watch, why, ended = places.answered(self.places, self._watch, sent, answer, places.now())
        if why:
            self._take_back(why)
        elif known != self.places:
            self._keep(known)
            self._due = self._due if self._watch.settled else 0.0
        self.ended = self.ended if ended is None else ended

    def _take_back(self, why: str) -> None:
        """The job is here again; its command is started from its last checkpoint here."""
        stay = Stay(socket.gethostname(), boot=proc.boot_id(), since=time.time())
        self._keep(places.taken_back(self.places, stay))
        self._watch, self._due = places.WatchState(), 0.0
        self._log(f"taken back from {self.places.peer} ({why}), token {self.places.token}")
        self._changed()
