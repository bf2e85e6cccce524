"""The supervisor's end of the rank wire for tests: real unix socket, real messages of carbontui.protocol, threads."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from carbontui import protocol as p
from carbontui.job.worker import reading
from carbontui.job.worker.model import WorkModel


class Rank:
    """One connection of a client, and what it has said."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.hello: p.Hello | None = None
        self.obs: list[p.RankReport] = []
        self.acks: list[p.Ack] = []
        self.sightings: list[p.Sighting] = []
        self.work = WorkModel()
        self.bad: list[str] = []
        self.open = True

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(data)


class FakeSupervisor:
    def __init__(
        self, path: Path, *, renew_s: float = 0.5, lease_s: float = p.LEASE_S, version: int = p.VERSION
    ) -> None:
        self.path, self.renew_s, self.lease_s, self.version = path, renew_s, lease_s, version
        self.cond = threading.Condition()
        self.ranks: list[Rank] = []
        self.gen = 0
        self.current: p.DesiredState | None = None
        self.only_rank: int | None = None
        self.welcomes = True
        self.reads = True
        self.alive = True
        self.listener = socket.socket(socket.AF_UNIX)
        temporary = f"{path}.{os.getpid()}.{id(self)}"
        self.listener.bind(temporary)
        Path(temporary).chmod(0o600)
        self.listener.listen(64)
        Path(temporary).replace(path)
        self.threads = [
            threading.Thread(target=self._accept, daemon=True),
            threading.Thread(target=self._renew, daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    # --- what a test says
    def want(self, mode: str = "run", **fields: object) -> int:
        """Ask every rank; returns the gen. Renewed until another want or `silence`."""
        with self.cond:
            self.gen += 1
            self.current = p.DesiredState(
                mode=mode, want_gen=self.gen, lease_s=fields.pop("lease_s", self.lease_s), **fields
            )  # type: ignore[arg-type]
            self._tell()
            return self.gen

    def silence(self) -> None:
        """Renew no more; connections stay."""
        with self.cond:
            self.current = None

    def wait(self, true: Callable[[], object], timeout_s: float = 60.0, what: str = "") -> None:
        with self.cond:
            assert self.cond.wait_for(true, timeout_s), f"never came: {what or true} ({self.reporter()})"

    def seen(self) -> list[tuple[object, ...]]:
        return [
            (r.hello and r.hello.rank, r.obs[-1] if r.obs else None, r.acks[-1:], r.bad, r.open) for r in self.ranks
        ]

    def live(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.open and rank.hello]

    def last(self, rank: int = 0) -> p.RankReport | None:
        for r in reversed(self.ranks):
            if r.hello and r.hello.rank == rank and r.obs:
                return r.obs[-1]
        return None

    def acked(self, gen: int, rank: int = 0) -> p.Ack | None:
        for r in self.ranks:
            if r.hello and r.hello.rank == rank:
                for ack in r.acks:
                    if ack.want_gen == gen:
                        return ack
        return None

    def pause(self, world: int = 1, timeout_s: float = 60.0) -> list[int]:
        """Pause and wait for every rank; their steps."""
        gen = self.want("pause")
        self.wait(lambda: all(self.acked(gen, r) for r in range(world)), timeout_s, f"acks of pause {gen}")
        return [self.acked(gen, r).step for r in range(world)]  # type: ignore[union-attr]

    def kill(self) -> None:
        """As kill -9 would: the sockets close, no goodbye, the path stays behind."""
        with self.cond:
            self.alive = False
            for sock in [self.listener, *(rank.sock for rank in self.ranks)]:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
            self.cond.notify_all()
        for thread in self.threads:
            thread.join(5)

    # --- threads
    def _accept(self) -> None:
        while self.alive:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            rank = Rank(sock)
            with self.cond:
                if not self.alive:  # accepted while it was being killed: nobody would ever close it
                    sock.close()
                    return
                self.ranks.append(rank)
            threading.Thread(target=self._read, args=(rank,), daemon=True).start()

    def _read(self, rank: Rank) -> None:
        buffer = b""
        while self.alive:
            if not self.reads:
                time.sleep(0.05)
                continue
            try:
                data = rank.sock.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self._take(rank, line)
        with self.cond:
            rank.open = False
            self.cond.notify_all()

    def _take(self, rank: Rank, line: bytes) -> None:
        try:
            message = p.decode_from_peer(line)
        except p.BadMessage as error:
            rank.bad.append(f"{error}: {line[:200]!r}")
            return
        with self.cond:
            if isinstance(message, p.Hello):
                rank.hello = message
                if self.welcomes:
                    rank.send(p.encode(p.Welcome(self.version, "test")))
                self._tell(rank)
            elif isinstance(message, p.RankReport):
                rank.obs.append(rank.work.folded(message, time.monotonic()))
                if (kept := rank.work.to_keep()) is not None:
                    rank.send(p.encode(kept))
            elif isinstance(message, p.Sighting):
                rank.sightings.append(message)
                answer = msgspec.structs.replace(reading.read(message.place), id=message.id)
                rank.work.read(answer)
                rank.send(p.encode(answer))
            elif isinstance(message, p.Ack):
                rank.acks.append(message)
            self.cond.notify_all()

    def _tell(self, *ranks: Rank) -> None:
        for rank in ranks or self.live():
            if self.current is not None and (self.only_rank is None or rank.hello.rank == self.only_rank):  # type: ignore[union-attr]
                rank.send(p.encode(self.current))

    def _renew(self) -> None:
        with self.cond:
            while self.alive:
                self.cond.wait_for(lambda: not self.alive, self.renew_s)
                self._tell()


@contextlib.contextmanager
def supervised(**options: object) -> Iterator[FakeSupervisor]:
    """A private directory with a supervisor in it (a short path: tmp_path can be too long for a socket)."""
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as folder:
        supervisor = FakeSupervisor(Path(folder) / "job.sock", **options)  # type: ignore[arg-type]
        try:
            yield supervisor
        finally:
            supervisor.kill()
