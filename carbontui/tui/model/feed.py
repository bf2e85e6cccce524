"""The screen's connection to the socket: connects, folds deltas, reconnects, says what is new; touches no widget."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from carbontui import link, protocol, units
from carbontui.tui.model.view_state import PastLevels, ViewState, fold


class BetterHost(NamedTuple):
    """Another machine of the user's, and what the rest of the work would be there, in words."""

    host: str
    words: str


class Target(Struct, frozen=True):
    """One job to show. `status`, `read_log` and `whole_run` (RuntimeError with a line to show) come from its files, the
    only source once the job is over."""

    job: str
    name: str
    socket: Path
    status: protocol.Status | None = None
    read_log: Callable[[protocol.LogRead], protocol.LogAnswer] | None = None
    started_s: float = 0.0
    owner: str = ""
    """The user whose job it is."""
    host: str = ""
    """Another machine, as it was named to ssh; '' for this one."""
    whole_run: Callable[[int], protocol.HistoryAnswer | None] | None = None
    ending: Callable[[], tuple[tuple[str, str], ...]] | None = None
    """(label, text) to add to the summary of a finished job; may block."""
    elsewhere: Callable[[], BetterHost | None] | None = None
    """Of a live job: the machine on which the rest of it would emit clearly less, if there is one; may block."""
    move: Callable[[str], tuple[bool, str]] | None = None
    """Moves it to a machine: whether it trains there, and a line; may block."""
    away: Callable[[], str] = str
    """Where it is, in a line, once it has moved to another machine; '' while it is here."""

    @classmethod
    def remote(cls, status: protocol.Status, socket: Path, host: str) -> Target:
        """A job of another machine; of one that is over, only the last status is known."""
        return cls(status.job, status.name, socket, status=status, host=host, owner=status.owner)

    @property
    def over(self) -> bool:
        return self.status is not None and self.status.state not in protocol.LIVE_STATES


RETRY_S = (0.1, 0.25, 0.5, 1.0, 2.0)
TOGETHER_S = 0.02
"""How long a picture waits for the output that was written before it: both are painted at once then."""
LOG_BEGIN_B = 16 * 1024
"""How much of the log's end an attaching screen reads."""
LOG_MOST_B = 64 * 1024
"""With more than this to read, the tail restarts at the end: a flood of output is not worth reading through."""

PAST_BUCKETS = 240
REPLAY_HZ = 4.0
"""At 1 Hz an hour of a replay may pass between two updates: the start and end of a pause must be visible."""

ReadLog = Callable[[protocol.LogRead], protocol.LogAnswer]
WholeRun = Callable[[int], protocol.HistoryAnswer | None]


class Connection(Struct, frozen=True):
    """Whether the screen is connected to a supervisor, and a line about it."""

    kind: Literal["connecting", "live", "reconnecting", "refused", "over"]
    text: str = ""


class LogPiece(Struct, frozen=True):
    """The next piece of run.log, or of run.err; `fresh` when it does not continue the last one."""

    text: str
    fresh: bool
    err: bool = False


News = ViewState | Connection | LogPiece | PastLevels


@dataclass(eq=False)
class JobFeed:
    """One job's updates. `run()` until cancelled; `request()` for everything that has an answer.

    `read_log` and `whole_run` read the files of a finished job, which has no supervisor any more; `away` as of the
    target. `with_log` False: its output is not read.
    """

    socket: Path
    post: Callable[[News], object]
    read_log: ReadLog | None = None
    whole_run: WholeRun | None = None
    _: KW_ONLY
    away: Callable[[], str] = str
    with_log: bool = True

    def __post_init__(self) -> None:
        self._rate_hz = 1.0
        self._link: link.ViewerLink | None = None
        self.view_state: ViewState | None = None
        self.over = False
        self._level: tuple[str | None, str] | None = None
        self._learning: asyncio.Task[None] | None = None

    async def request(self, message: link.Request, timeout_s: float = link.ANSWER_TIMEOUT_S) -> link.Answer:
        """The supervisor's answer. Raises LinkError, NoSupervisor while not connected."""
        if self._link is None and self.over:
            if isinstance(message, protocol.LogRead) and self.read_log is not None:
                return self.read_log(message)
            if isinstance(message, protocol.HistoryAsk) and self.whole_run is not None:
                return await self._past_of_one_over(self.whole_run, message.buckets)
            raise link.NoSupervisor("the job is over: it has no supervisor any more")
        if self._link is None:
            raise link.NoSupervisor("not connected just now; the training goes on")
        return await self._link.request(message, timeout_s)

    async def _past_of_one_over(self, whole_run: WholeRun, columns: int) -> protocol.HistoryAnswer:
        try:
            answer = await asyncio.to_thread(whole_run, columns)
        except RuntimeError as error:
            raise link.RequestRefused(str(error)) from None
        if answer is None:
            raise link.NoSupervisor("the account is empty")
        return answer

    async def run(self) -> None:
        """Connect, follow, and connect again until the job is over, or on another machine."""
        tries = 0
        while True:
            try:
                self._link = await link.ViewerLink.connect(self.socket)
                tries = 0
                self.post(Connection("live"))
                await self._follow(self._link)
            except (link.NotOurs, link.VersionMismatch, link.RequestRefused) as error:
                self.post(Connection("refused", str(error)))
                return
            except link.LinkError as error:
                if self.view_state is not None and self.view_state.over:
                    self.over = True
                    self.post(Connection("over"))
                    return
                if where := self.away():
                    self.post(Connection("refused", where))
                    return
                self.post(Connection("reconnecting", str(error)))
            finally:
                held, self._link = self._link, None
                if held is not None:
                    await held.close()
            await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
            tries += 1

    def read_over(self) -> None:
        """For a job that was over before the screen was opened: post the end of its output."""
        self.over = True
        if self.read_log is not None:
            for err in (False, True):
                answer = self.read_log(protocol.LogRead(0, -LOG_BEGIN_B, err=err))
                if answer.err is err:
                    self.post(LogPiece(answer.text, True, err))

    async def _follow(self, wire: link.ViewerLink) -> None:
        await wire.send(protocol.View(self._rate_hz))
        outputs = [_Output(wire, err) for err in (False, True)] if self.with_log else []
        reading = asyncio.create_task(self._read(outputs), name="log reader")  # beside the first picture
        try:
            async for message in wire.messages():
                view_state = fold(self.view_state, message)
                if view_state is None:
                    await wire.send(protocol.View(self._rate_hz))
                    continue
                if reading.done() and self.view_state is not None:
                    reading = asyncio.create_task(self._read(outputs), name="log reader")
                await asyncio.wait({reading}, timeout=TOGETHER_S)
                self.view_state = view_state
                self.post(view_state)
                self._ask_past(view_state)
                if self.with_log and view_state.series.replay_speed is not None and self._rate_hz < REPLAY_HZ:
                    self._rate_hz = REPLAY_HZ
                    await wire.send(protocol.View(self._rate_hz))
        finally:
            reading.cancel()

    async def _read(self, outputs: list[_Output]) -> None:
        """Post what is new of the output as it comes: of a job that stands still no other picture may."""
        for output in outputs:
            for piece in await output.read():
                self.post(piece)

    def _ask_past(self, view_state: ViewState) -> None:
        """Request the levels that held: at the start and whenever the level has changed."""
        status, begun = view_state.status, view_state.status.budget or view_state.series.watts
        level, span_s = (status.level, status.state), view_state.now_s - units.from_iso(begun.start) if begun else 0.0
        if level != self._level and span_s > 1.0 and not view_state.over:
            self._level = level
            self._learning = asyncio.create_task(self._learn_past(span_s), name="past levels")

    async def _learn_past(self, span_s: float) -> None:
        with contextlib.suppress(link.LinkError):
            answer = await self.request(protocol.HistoryAsk(0, span_s, PAST_BUCKETS))
            if isinstance(answer, protocol.HistoryAnswer) and any(answer.kind):
                self.post(PastLevels.of(answer))


class _Output:
    """The end of run.log, or of run.err if there is one, followed by offset; after a gap the tail starts over."""

    def __init__(self, wire: link.ViewerLink, err: bool) -> None:
        self._wire, self._err = wire, err
        self._offset, self._fresh, self._exists = -LOG_BEGIN_B, True, True

    async def read(self) -> list[LogPiece]:
        """What is new; nothing while the connection is lost."""
        if not self._exists:
            return []
        try:
            answer = await self._ask()
            if answer.size > answer.next:
                self._offset, self._fresh = -LOG_BEGIN_B, True
                answer = await self._ask()
        except link.LinkError:
            return []
        self._exists = answer.err is self._err
        if not self._exists:
            return []
        found = [LogPiece(answer.text, self._fresh, self._err)] if answer.text else []
        self._offset, self._fresh = answer.next, self._fresh and not found
        if answer.size < answer.next:
            self._offset, self._fresh = 0, True
        return found

    async def _ask(self) -> protocol.LogAnswer:
        answer = await self._wire.request(protocol.LogRead(0, self._offset, LOG_MOST_B, err=self._err))
        assert isinstance(answer, protocol.LogAnswer)
        return answer
