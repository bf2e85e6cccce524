"""The supervisor's end of job.sock. Ranks and viewers of this user connect; no peer can make it wait.

No viewer is ever awaited: a viewer that does not read is skipped (and gets a fresh snap later), and disconnected once
a megabyte has piled up. Invalid lines are counted; past a hundred the peer is disconnected too. The socket is bound
under a temporary name and renamed, so that a stale one is replaced atomically, and bound again when it vanishes.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carbontui import __version__, paths, protocol
from carbontui.job.worker.model import WorkModel
from carbontui.system import local_socket

BAD_LINES_MAX = 100
QUEUE_MAX_B = 1024 * 1024
SKIP_ABOVE_B = 128 * 1024
LINES_PER_TURN = 64
FIGURES_EVERY_S = 1.7
"""How often a training is sent its own account: at every second tick."""
LAST_ANSWER_S = 5.0
"""How long to finish pending answers for a peer that has closed its sending end."""


@dataclass(eq=False)
class Peer:
    """One connection."""

    writer: asyncio.StreamWriter
    hello: protocol.Hello | None = None
    obs: protocol.RankReport | None = None
    received_mono_s: float = 0.0
    step_mono_s: float = 0.0
    timed: tuple[float, int] | None = None
    """Monotonic time of the end of the last timed step, and its count."""
    acked_gen: int = -1
    bad: int = 0
    rate_hz: float | None = None
    next_mono_s: float = 0.0
    seq: int = 0
    shown: protocol.Snap | None = None
    preview: int | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    work: WorkModel = field(default_factory=WorkModel)

    def send(self, message: object) -> None:
        """Queue one line; never waits."""
        transport = self.writer.transport
        if transport.is_closing():
            return
        self.writer.write(protocol.encode(message))  # type: ignore[arg-type]
        if transport.get_write_buffer_size() > QUEUE_MAX_B:
            transport.abort()


class Answering(Protocol):
    """The supervisor's answers to peers."""

    status: protocol.Status | None
    """The Status of the current tick, if one was made."""

    def override_gen(self) -> int: ...
    def rank_changed(self, peer: Peer, *, connected: bool) -> None: ...
    def sections(self) -> protocol.Snap: ...
    async def answer(self, peer: Peer, ask: protocol.Request) -> protocol.Answer | protocol.Refused: ...


@dataclass(eq=False)
class Server:
    """The listening socket and its peers."""

    path: Path
    answers: Answering
    log: Callable[[str], None]
    _figures_due: float = 0.0
    peers: set[Peer] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _inode: int | None = None
    fault: str = ""
    """Why the socket is not bound; empty when it is."""

    # --- listening ---

    async def open(self) -> None:
        """Bind (0600, in a 0700 directory that is ours) and listen. Raises OSError or PermissionError."""
        paths.private_dir(self.path.parent)
        listener, self._inode = local_socket.listen(self.path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=protocol.LINE_MAX)

    async def keep_open(self) -> None:
        """Bind, and rebind if the socket has vanished (a /tmp cleaner, a logout that removes the runtime directory).

        Existing connections stay open. A failure is kept in `fault` and retried.
        """
        with contextlib.suppress(OSError):
            if self._inode is not None and self.path.stat().st_ino == self._inode:
                return
        old, again = self._server, self._inode is not None
        try:
            await self.open()
        except OSError as error:
            if not self.fault:
                self.log(f"{self.path} cannot be bound: {error}")
            self.fault = f"no new connections: {self.path} cannot be bound ({error.strerror or error})"
            return
        self.fault = ""
        if again:
            self.log(f"{self.path} vanished; bound again")
        if old is not None:
            old.close()

    async def close(self) -> None:
        """Stop listening and drop every peer; removes the socket if it is still ours."""
        if self._server is not None:
            self._server.close()
        local_socket.remove(self.path, self._inode)
        for peer in list(self.peers):
            peer.writer.close()
        await asyncio.sleep(0)

    # --- connected peers ---

    @property
    def ranks(self) -> list[Peer]:
        """Training processes that have been heard, by rank."""
        found = [p for p in self.peers if p.hello and p.hello.role == "rank" and p.obs is not None]
        return sorted(found, key=lambda p: p.hello.rank if p.hello else 0)

    @property
    def viewers(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.hello and peer.hello.role == "viewer"]

    # --- one connection ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not local_socket.may_speak(writer.get_extra_info("socket")):
            writer.close()
            return
        peer = Peer(writer)
        self.peers.add(peer)
        try:
            await self._listen(reader, peer)
            if peer.tasks:  # a peer that has asked and closed its sending end still gets its answers
                peer.rate_hz = None
                await asyncio.wait(peer.tasks, timeout=LAST_ANSWER_S)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError) as error:
            if isinstance(error, ValueError):
                peer.send(protocol.Refused(f"a line above {protocol.LINE_MAX} bytes"))
        except asyncio.CancelledError:
            pass  # the loop ends with a peer still there, and would log what nobody awaits
        finally:
            self.peers.discard(peer)
            for task in peer.tasks:
                task.cancel()
            writer.close()
            if peer.hello and peer.hello.role == "rank":
                self.answers.rank_changed(peer, connected=False)

    async def _listen(self, reader: asyncio.StreamReader, peer: Peer) -> None:
        turn = 0
        while line := await reader.readline():
            turn += 1
            if turn % LINES_PER_TURN == 0:
                await asyncio.sleep(0)  # a flood must not starve the others
            try:
                message = protocol.decode_from_peer(line)
            except protocol.BadMessage as error:
                peer.bad += 1
                if peer.bad <= 3:
                    peer.send(protocol.Refused(str(error)[:300]))
                if peer.bad > BAD_LINES_MAX:
                    return
                continue
            if message is not None and not self._take(peer, message):
                return

    def _take(self, peer: Peer, message: protocol.FromPeer) -> bool:
        """Handle one message; False ends the connection."""
        if isinstance(message, protocol.Hello):
            return self._greet(peer, message)
        if peer.hello is None:
            peer.send(protocol.Refused("say hello first"))
            return False
        if peer.hello.role == "rank":
            self._receive_rank(peer, message)
        else:
            self._receive_viewer(peer, message)
        return True

    def _greet(self, peer: Peer, hello: protocol.Hello) -> bool:
        if hello.v != protocol.VERSION:
            peer.send(protocol.Refused(f"protocol {hello.v} is not spoken here (this is {protocol.VERSION})"))
            return False
        peer.hello = hello
        peer.send(protocol.Welcome(protocol.VERSION, __version__, self.answers.override_gen()))
        return True

    def _receive_rank(self, peer: Peer, message: protocol.FromPeer) -> None:
        now = peer.received_mono_s = time.monotonic()
        if isinstance(message, protocol.RankReport):
            message = peer.work.folded(message, now)
            if (kept := peer.work.to_keep()) is not None:
                peer.send(kept)
            if peer.obs is None or message.step != peer.obs.step:
                peer.step_mono_s = now
            if message.timed is not None:
                count, ago_s = message.timed
                peer.timed = (now - ago_s, count)
            changed = peer.obs is None or (message.state, message.want_gen) != (peer.obs.state, peer.obs.want_gen)
            peer.obs = message
            if changed:
                self.answers.rank_changed(peer, connected=True)
        elif isinstance(message, protocol.Ack):
            peer.acked_gen = message.want_gen
            if peer.obs is not None:  # the acknowledged step is new information between two heartbeats
                step = max(0, message.step - (peer.obs.start_step or 0))
                peer.obs = msgspec.structs.replace(peer.obs, step=step)
            self.answers.rank_changed(peer, connected=True)
        elif isinstance(message, protocol.Sighting):
            self._receive_viewer(peer, message)

    def _receive_viewer(self, peer: Peer, message: protocol.FromPeer) -> None:
        if isinstance(message, protocol.View):
            peer.rate_hz, peer.shown, peer.next_mono_s = message.rate_hz, None, 0.0
            self.show(only=peer)
        elif isinstance(message, protocol.Request):
            if len(peer.tasks) >= 32:
                peer.send(protocol.Refused("too many requests are waiting"))
                return
            if isinstance(message, protocol.Preview):
                peer.preview = message.id
            task = asyncio.ensure_future(self._answer(peer, message))
            peer.tasks.add(task)
            task.add_done_callback(peer.tasks.discard)

    async def _answer(self, peer: Peer, ask: protocol.Request) -> None:
        def moot() -> bool:
            """A newer preview has been asked for: the latest wins."""
            return isinstance(ask, protocol.Preview) and peer.preview != ask.id

        await asyncio.sleep(0)
        if moot():
            return
        answer: protocol.Answer | protocol.Refused
        try:
            answer = await self.answers.answer(peer, ask)
            if isinstance(answer, protocol.CodeRead):
                peer.work.read(answer)
        except Exception as error:
            # who asked must not wait for an answer that never comes
            name = ask.verb if isinstance(ask, protocol.Cmd) else ask.__struct_config__.tag
            self.log(f"{name} failed: {type(error).__name__}: {error}")
            answer = protocol.Refused(f"{name} failed: {error}", ask.id)
            if isinstance(ask, protocol.Cmd):
                answer = protocol.Result(ask.id, False, error=answer.error, exit_code=1)
        if not moot():
            peer.send(answer)

    # --- viewers ---

    def _tell_ranks(self, now: float) -> None:
        """Send the account to the training, every few seconds."""
        told = self.answers.status
        if told is None or now < self._figures_due or not self.ranks:
            return
        self._figures_due = now + FIGURES_EVERY_S
        message = figures(told)
        for peer in self.ranks:
            peer.send(message)

    def show(self, only: Peer | None = None, *, everyone: bool = False) -> None:
        """Send each viewer that is due (or everyone, after an event) what has changed since its last update."""
        now = time.monotonic()
        self._tell_ranks(now)
        due = [only] if only else [p for p in self.viewers if p.rate_hz and (everyone or now >= p.next_mono_s)]
        if not due:
            return
        sections = self.answers.sections()
        for peer in due:
            if peer.rate_hz is None:
                continue
            # tolerance: avoids aliasing between a 1 Hz viewer and a 1 Hz tick, which may come a tenth sooner
            peer.next_mono_s = time.monotonic() + 0.85 / peer.rate_hz
            if peer.writer.transport.get_write_buffer_size() > SKIP_ABOVE_B:
                peer.shown = None
                continue
            peer.seq += 1
            if peer.shown is None:
                peer.send(msgspec.structs.replace(sections, seq=peer.seq))
            else:
                peer.send(_delta(peer.seq, peer.shown, sections))
            peer.shown = sections


AS_SHOWN = ("measured_at", "state", "level", "power_w", "energy_gpu_kwh", "energy_wall_kwh", "gco2_g", "avoided_g")


def figures(status: protocol.Status) -> protocol.Figures:
    """What a training script receives about its own job."""
    intensity, cost = status.intensity, status.cost
    return protocol.Figures(
        **{name: getattr(status, name) for name in AS_SHOWN},
        intensity_g_per_kwh=None if intensity is None else intensity.value_g_per_kwh,
        cost=None if cost is None else cost.value,
        currency=None if cost is None else cost.currency,
    )


def _delta(seq: int, old: protocol.Snap, new: protocol.Snap) -> protocol.Delta:
    series, tail = _series_delta(old.series, new.series)
    return protocol.Delta(
        seq,
        status=new.status if new.status != old.status else UNSET,
        series=series,
        series_tail=tail,
        plan=new.plan if new.plan != old.plan else UNSET,
        frontier=new.frontier if new.frontier != old.frontier else UNSET,
    )


def _series_delta(
    old: protocol.ChartSeries, new: protocol.ChartSeries
) -> tuple[protocol.ChartSeries | UnsetType, protocol.SeriesTail | UnsetType]:
    """The whole series, or only its last columns of watts when nothing else changed."""
    if new == old:
        return UNSET, UNSET
    a, b = old.watts, new.watts
    same_rest = old.intensity is new.intensity and old.loss == new.loss and old.replay_speed == new.replay_speed
    if a is None or b is None or not same_rest or (a.start, a.step_s) != (b.start, b.step_s):
        return new, UNSET
    start = max(0, len(a.total_w) - 1)
    if len(b.total_w) < len(a.total_w) or b.total_w[:start] != a.total_w[:start] or b.gpus_w.keys() != a.gpus_w.keys():
        return new, UNSET
    gpus = {uuid: columns[start:] for uuid, columns in b.gpus_w.items()}
    return UNSET, protocol.SeriesTail(start, new.now, b.total_w[start:], gpus)
