"""The viewer's end of the socket against a real unix socket that behaves well, badly, or not at all."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from carbontui import link, protocol

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
STATUS = {
    "schema": protocol.STATUS_SCHEMA,
    "job": "j1",
    "name": "charlm",
    "host": "box",
    "measured_at": "2030-01-01T00:00:00.000Z",
    "state": "running",
    "reason": {"code": "plan", "text": "as planned"},
}


@asynccontextmanager
async def serving(path: Path, serve: Serve) -> AsyncIterator[None]:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(guarded, str(path))
    try:
        yield
    finally:
        server.close()


def line(**message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


WELCOME = line(t="welcome", v=protocol.VERSION, version="0", override_gen=0)


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, object]:
    hello = json.loads(await reader.readline())
    writer.write(WELCOME)
    return dict(hello)


async def test_hello_says_viewer_and_answers_come_back_by_id(tmp_path: Path) -> None:
    seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await greet(reader, writer))
        first, second = [json.loads(await reader.readline()) for _ in range(2)]
        writer.write(line(t="never heard of", x=1))
        writer.write(line(t="result", id=second["id"], ok=False, error="no", text=second["verb"]))
        writer.write(line(t="result", id=first["id"], ok=True, text=first["verb"]))
        await reader.read()

    async with serving(tmp_path / "s", serve):
        wire = await link.ViewerLink.connect(tmp_path / "s")
        pause, boost = await asyncio.gather(
            wire.request(protocol.Cmd(0, "pause")), wire.request(protocol.Cmd(0, "boost"))
        )
        await wire.close()
    assert isinstance(pause, protocol.Result) and pause.ok and pause.text == "pause"
    assert isinstance(boost, protocol.Result) and not boost.ok and boost.text == "boost"
    assert seen[0]["role"] == "viewer" and "@" in str(seen[0]["by"])


async def test_news_stream_ends_with_a_typed_error(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        writer.write(line(t="delta", seq=1, status=STATUS) + line(t="delta", seq=2))

    async with serving(tmp_path / "s", serve):
        wire = await link.ViewerLink.connect(tmp_path / "s")
        got = []
        with pytest.raises(link.Broken):
            async for message in wire.messages():
                got.append(message)
        assert [m.seq for m in got] == [1, 2]
        assert got[0].status.name == "charlm"
        with pytest.raises(link.Broken):
            await wire.request(protocol.StatusAsk(0))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (line(t="welcome", v=99, version="9.0"), link.VersionMismatch),
        (line(t="refused", error="no viewers today"), link.RequestRefused),
        (b"garbage\n", link.Broken),
        (b"x" * (protocol.VIEWER_LINE_MAX + 10) + b"\n", link.Broken),
        (b"", link.Broken),
    ],
)
async def test_a_bad_welcome_is_named(tmp_path: Path, reply: bytes, error: type[link.LinkError]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        await writer.drain()

    async with serving(tmp_path / "s", serve):
        with pytest.raises(error) as caught:
            await link.ViewerLink.connect(tmp_path / "s")
        with pytest.raises(error):
            await asyncio.to_thread(link.ask, tmp_path / "s", protocol.StatusAsk(0), 5.0)
    assert "\n" not in str(caught.value)


async def test_nobody_there_and_nobody_answering(tmp_path: Path) -> None:
    with pytest.raises(link.NoSupervisor):
        await link.ViewerLink.connect(tmp_path / "none")
    with pytest.raises(link.NoSupervisor):
        link.ask(tmp_path / "none", protocol.StatusAsk(0))
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "stale"))
    stale.close()
    with pytest.raises(link.NoSupervisor):
        link.ask(tmp_path / "stale", protocol.StatusAsk(0))

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(tmp_path / "s", mute):
        with pytest.raises(link.NoAnswer):
            await link.ViewerLink.connect(tmp_path / "s", timeout_s=0.1)
        with pytest.raises(link.NoAnswer):
            await asyncio.to_thread(link.ask, tmp_path / "s", protocol.StatusAsk(0), 0.1)


async def test_a_cancel_that_comes_with_the_answer_is_not_lost(tmp_path: Path, monkeypatch) -> None:
    """Ctrl-C at the moment at which the supervisor answers: the screen ends."""

    async def refused(*_: object, **__: object) -> None:
        connecting.cancel()
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio, "open_unix_connection", refused)
    connecting = asyncio.create_task(link.ViewerLink.connect(tmp_path))
    with pytest.raises(asyncio.CancelledError):
        await connecting


async def test_a_socket_of_another_user_is_refused_before_a_byte_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.read())

    async with serving(tmp_path / "s", serve):
        uid = link.os.getuid()
        monkeypatch.setattr(link.os, "getuid", lambda: uid + 1)
        with pytest.raises(link.NotOurs):
            await link.ViewerLink.connect(tmp_path / "s")
        assert await received == b""


@contextmanager
def blocking_server(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def run() -> None:
        sock, _ = listener.accept()
        with sock:
            serve(sock)

    thread = threading.Thread(target=run, name="one viewer")
    thread.start()
    try:
        yield
    finally:
        thread.join(10)
        listener.close()


def test_ask_reads_past_news_and_pieces(tmp_path: Path) -> None:
    def serve(sock: socket.socket) -> None:
        stream = sock.makefile("rb")
        stream.readline()
        answer = WELCOME + line(t="delta", seq=7) + line(t="status", id=1, status=STATUS)
        for cut in range(0, len(answer), 7):
            sock.sendall(answer[cut : cut + 7])
        stream.readline()

    with blocking_server(tmp_path / "s", serve):
        answer = link.ask(tmp_path / "s", protocol.StatusAsk(0))
    assert isinstance(answer, protocol.StatusAnswer) and answer.status.state == "running"


def test_a_refusal_carries_the_supervisors_words(tmp_path: Path) -> None:
    def serve(sock: socket.socket) -> None:
        stream = sock.makefile("rb")
        stream.readline()
        sock.sendall(WELCOME)
        stream.readline()
        sock.sendall(line(t="refused", id=1, error="budget: cannot read 'soon'"))

    with (
        blocking_server(tmp_path / "s", serve),
        pytest.raises(link.RequestRefused, match="cannot read 'soon'"),
    ):
        link.ask(tmp_path / "s", protocol.Cmd(0, "budget", {"budget": "soon"}))
