"""orders.log as the supervisor has it: what it accepts is stored there, and what it finds there it takes.

Found there are the orders of a predecessor that the journal does not have, and those of people who had no answer.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from carbontui.job.keeper import orders
from carbontui.job.keeper.orders import LoggedOrder
from carbontui.job.supervisor.record.disk import Disk

STORED_S = 1.0
"""How long an answer waits for the disk."""
READY_S = 5.0
"""How long an order that nobody has checked waits for the first reading of the boards."""
ACTS_S = 60.0
"""An order that is an act and sets nothing (calibrate, rehearse) is not repeated later than this."""
ACTS = ("calibrate", "rehearse")


@dataclass(eq=False)
class Orders:
    """`directory` is the job's. The disk's thread reads and writes, the loop does the rest."""

    directory: str
    disk: Disk
    taken: int = 0
    """Up to where in the file the state has all orders."""
    fault: str = ""
    """Why accepted orders are not stored; '' if they are."""
    _polled: int = 0
    _own: set[int] = field(default_factory=set)
    """Where the lines end that this process has appended."""
    _unstored: list[LoggedOrder] = field(default_factory=list)
    _unfinished: list[LoggedOrder] = field(default_factory=list)
    _since_mono: float | None = None

    def begin(self, taken: int) -> None:
        """Continue behind what the journal has."""
        self.taken = self._polled = taken

    def store(self, order: LoggedOrder) -> asyncio.Future[None]:
        """Append an accepted order. The future raises OSError; it is tried again until it succeeds."""
        self._unstored.append(order)
        return self.disk.do(self._append)

    def _append(self) -> None:
        try:
            while self._unstored:
                self._own.add(orders.append(self.directory, self._unstored[0])[1])
                self._unstored.pop(0)
        except OSError as error:
            self.fault = f"{orders.NAME} not written: {error.strerror}"
            raise
        self.fault = ""

    async def observe(self) -> None:
        """Store what could not be stored; take note of what others have appended."""
        found, polled = await self.disk.do(partial(self._observe, self._polled))
        self._polled = polled
        self._unfinished += found
        if not self._unfinished:
            self.taken = polled

    def _observe(self, since: int) -> tuple[list[LoggedOrder], int]:
        if self._unstored:
            try:
                self._append()
            except OSError:
                return [], since
        if orders.size(self.directory) == since:
            return [], since
        found, end = orders.since(self.directory, since)
        return [order for order in found if order.end not in self._own], end

    def due(self, now_mono: float, now_wall: float, *, boards_known: bool) -> Iterator[LoggedOrder]:
        """What was found, in order, to be carried out; what nobody has checked, once the boards have answered."""
        if not self._unfinished:
            self._since_mono = None
            return
        self._since_mono = now_mono if self._since_mono is None else self._since_mono
        while self._unfinished:
            order = self._unfinished[0]
            if not (order.accepted or boards_known or now_mono - self._since_mono >= READY_S):
                return
            self._unfinished.pop(0)
            if order.verb not in ACTS or now_wall - order.at < ACTS_S:
                yield order
            self.taken = order.end
        self.taken = self._polled
