"""The helper of a keeper whose job moves: it alone writes places.json, and talks with the job's other places.

A move is first a lease of the verb that copies: without renewal the job goes on here. The hand-over is one durable
write. From then on this place only watches: it tells the other one that it holds the job, renews that lease, and
takes the job back once the lease has surely ended. A lease counts there from before it was asked for, here from when it
was given, on clocks that count sleep: there it ends first. What its keeper is told is on disk before.

`python -m carbontui.extensions.moves.helper DIR --fd N`, by the keeper alone; a successor may be of another version.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from carbontui.extensions.moves import lease
from carbontui.extensions.moves.lease import RENEWED, Grant, Greeting, HoldAnswer, WatchState
from carbontui.job.files import places
from carbontui.job.files.places import MARGIN, Permit, Places, Stay
from carbontui.job.keeper.job_files import log
from carbontui.job.keeper.messages import HandOver, Left, MoveTo, Order, Renewed, decode_order
from carbontui.job.terms import records
from carbontui.system import proc

ANSWER_S = 60.0
"""A line that hangs is given up after this."""
MOST_B = 65536
AGAIN_S = 3.0
"""Between two calls to a place that has not confirmed yet what it is told."""
BEAT_S = 1.0


class Helper:
    """`say` tells the keeper; times are monotonic seconds."""

    def __init__(self, directory: str, say: Callable[[Permit], None]) -> None:
        self._dir, self._say = directory, say
        self.places, self._watch = lease.watching(places.read(directory), places.now())
        self._order = MoveTo()
        """Where the job is being copied to, and how that is reached."""
        self._reached, self._fault, self._unwritten = "", "", ""
        self._ended: dict[str, object] | None = None
        self._until = self._due = 0.0
        self._call: asyncio.Task[None] | None = None

    @property
    def permit(self) -> Permit:
        """What the keeper is told."""
        moving = {"moving": self._order.to, "release": self._order.release} if self._order.unload else {}
        return self.places.permit(reached=self._reached if self._order.to else "", ended=self._ended, **moving)

    def tell(self) -> None:
        """Tell it, which compares it with what it knows."""
        self._say(self.permit)

    # --- what is said to us ---

    def apply_order(self, order: Order) -> None:
        """A hand-over comes only once the command is unloaded and the supervisor has left."""
        try:
            self._apply_order(order)
            self.tick(time.monotonic())
        except OSError as error:
            self.fail(error)
        self.tell()

    def fail(self, error: OSError) -> None:
        """What could not be written down is not so; it is tried again, and said once."""
        if (why := str(error)) != self._unwritten:
            log(f"not done, the disk does not take it: {why}")
        self._unwritten = why

    def _apply_order(self, order: Order) -> None:
        if isinstance(order, MoveTo):
            self._move(order)
        elif isinstance(order, HandOver) and self._order.unload and time.monotonic() <= self._until:
            self._hand_over(order)
        elif isinstance(order, Renewed) and self.places.holder and order.token == self.places.token:
            self._renewed(order)
        elif isinstance(order, Left) and self.places.holder:
            log(f"it goes on on {self.places.peer or 'another machine'}: {order.why or 'it has the job'}")
            self._keep(self.places._replace(holder=False, leased=False))
            self._end({})
        elif isinstance(order, Left):
            self._ended = {}  # the job returns with a directory of its own

    def _move(self, order: MoveTo) -> None:
        if not self.places.holder:
            return
        if order.to != self._order.to:
            log(f"being moved to {order.to}" if order.to else f"not moved to {self._order.to}: it goes on here")
            self._reached, self._due = "", 0.0
            if self._call is not None:  # with the machine of before, which may hang, or answer for the new one
                self._call.cancel()
                self._call = None
        self._order = order if order.to else MoveTo()
        self._until = time.monotonic() + order.lease_s

    def _hand_over(self, order: HandOver) -> None:
        at = places.now()
        if not self.places.permit().may_run(at):
            return
        *before, last = self.places.places or (Stay(socket.gethostname(), order.zone, at.boot, order.since),)
        moved = lease.handed_over(
            self.places,
            at,
            peer=self._order.to,
            segments=(*before, last._replace(until=order.until)),
            call=tuple(self._order.call),
            agent=self._order.agent,
            lease_s=order.lease_s,
            margin_s=order.lease_s * MARGIN,
            start_s=order.start_s,
        )
        self._keep(moved)
        self._watch = WatchState(at.now_s, step=int(order.step), for_good=not order.leased)
        self._due, self._order = 0.0, MoveTo()
        log(f"handed over to {moved.peer}, token {moved.token}")

    def _renewed(self, order: Renewed) -> None:
        if order.ends is None:
            self._keep(self.places._replace(leased=False, peer="", call=()))
            return
        at = places.now()
        lease_s = order.ends - at.now_s if order.lease_s is None else order.lease_s
        terms = Grant(order.token, lease_s, order.margin_s)
        self.places = lease.granted(self.places, terms, at._replace(now_s=order.ends - lease_s))
        places.write(self._dir, self.places)  # where it cannot be, a successor of ours has less of it than we

    def _keep(self, new: Places) -> None:
        """Nothing counts before it is on disk, and then all that is. Raises OSError."""
        try:
            places.write(self._dir, new)
        except OSError:
            self.places = places.read(self._dir)
            raise
        self.places = new

    def _end(self, over: dict[str, object]) -> None:
        """It has ended elsewhere, or at least here."""
        known = records.known_exit({name: over.get(name) for name in ("code", "signal", "stopped")})
        self._ended = {"moved": self.places.peer or "another machine", "unloaded": False, **known}

    # --- what we say ---

    def tick(self, now: float) -> None:
        """Do what is due. Raises OSError where it cannot be written down."""
        if self._order.to and now > self._until:
            self._move(MoveTo())
        if not self.places.holder and self.places.leased and self.places.permit().left_s(places.now()) <= 0.0:
            self._take_back(self._watch.recall or "its lease has ended")
        elif self._call is None and (self._order.to or self.places.call) and now >= self._due and self._ended is None:
            confirmed = self._watch.settled or self._reached == "yes"
            self._due = now + (self.places.lease_s * RENEWED if confirmed else AGAIN_S)
            self._call = asyncio.ensure_future(self._converse())

    async def _converse(self) -> None:
        """One conversation with the other place, until it closes."""
        try:
            fault = await asyncio.wait_for(self._talk(), ANSWER_S)
        except asyncio.TimeoutError:  # another class before Python 3.11
            fault = f"no answer within {ANSWER_S:.0f} s"
        except (OSError, ValueError) as error:
            fault = str(error)
        self._call = None
        if fault and self._order.to and self._reached != "yes":
            self._reached = fault
        if fault and fault != self._fault:
            log(f"{self._order.to or self.places.peer}: {fault}")
        self._fault = fault
        self.tell()

    async def _talk(self) -> str:
        """Why it has not been understood, '' if it has; its first line greets, what follows answers. Raises OSError,
        and ValueError for a line without an end."""
        to = self._order if self._order.to else self.places
        process = await asyncio.create_subprocess_exec(
            *to.call,
            env={**os.environ, **({"SSH_AUTH_SOCK": to.agent} if to.agent else {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=MOST_B,
        )
        assert process.stdin is not None and process.stdout is not None
        sent, fault = None, ""
        try:
            async for line in process.stdout:
                if to.call != (self._order if self._order.to else self.places).call:
                    return "it has answered too late"  # another machine's by now: no grant of that one is sent here
                try:
                    if sent is not None:
                        fault = self._answered(sent, records.decode(line, HoldAnswer))
                    elif line.strip():
                        sent = self._grant(records.decode(line, Greeting))
                        process.stdin.write(json.dumps(sent._asdict()).encode() + b"\n")
                except ValueError:
                    fault = line.decode(errors="replace").strip()[:200]
                self.tell()
            return fault
        finally:
            proc.signal_group(process.pid, signal.SIGKILL)
            process.stdin.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), BEAT_S)

    def _grant(self, greeting: Greeting) -> Grant:
        """What the other place is sent. Raises ValueError, and OSError where it cannot be written down."""
        if not greeting.ready:
            raise ValueError("not ready")
        if self._order.to:
            self._reached = "yes"
            return Grant(ping=True)
        was, recalled = self.places, self._watch.recall
        known, self._watch, grant = lease.grant(was, self._watch, places.now(), leave=greeting.leave)
        if known.leased != was.leased:
            self._keep(known)
            log(f"{known.peer} moves it on: it is not taken back from there any more")
        self.places = known
        if grant.recall and not recalled:
            log(f"{known.peer} is to give it back: {grant.recall}")
        return grant

    def _answered(self, sent: Grant, answer: HoldAnswer) -> str:
        """What it says of why nothing has been done. Raises OSError."""
        if not self._order.to:
            known, self._watch, why, ended = lease.answered(self.places, self._watch, sent, answer, places.now())
            if why:
                self._take_back(why)
            elif known != self.places:
                self._keep(known)
                self._due = self._due if self._watch.settled else 0.0
            if ended is not None:
                self._end(ended)
        return answer.error[:200]

    def _take_back(self, why: str) -> None:
        """The job is here again; its command is started from its last checkpoint here."""
        stay = Stay(socket.gethostname(), boot=proc.boot_id(), since=time.time())
        self._keep(lease.taken_back(self.places, stay))
        self._watch, self._due = WatchState(), 0.0
        log(f"taken back from {self.places.peer} ({why}), token {self.places.token}")


async def serve(directory: str, fd: int) -> None:
    """Until the keeper is gone, which starts another."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))

    async def beat() -> None:
        while True:
            try:
                helper.tick(time.monotonic())
            except OSError as error:
                helper.fail(error)
            except Exception as error:  # without a helper no lease is renewed
                log(f"error in the helper, which continues: {type(error).__name__}: {error}")
            helper.tell()
            await asyncio.sleep(BEAT_S)

    helper = Helper(directory, lambda permit: writer.write(json.dumps(permit._asdict()).encode() + b"\n"))
    beats = asyncio.ensure_future(beat())
    async for line in reader:
        if (order := decode_order(line)) is not None:
            helper.apply_order(order)
    beats.cancel()


def main() -> None:
    asyncio.run(serve(sys.argv[1], int(sys.argv[sys.argv.index("--fd") + 1])))


if __name__ == "__main__":
    main()
