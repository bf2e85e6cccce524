"""The server and its peers over a real socket."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from carbontui import protocol as p
from carbontui.job.supervisor.shell.server import Peer, Server


class Listener:
    """A supervisor with nothing to say; `news` rings when a rank has said something new."""

    def __init__(self) -> None:
        self.news = asyncio.Event()

    def override_gen(self) -> int:
        return 0

    def rank_changed(self, peer: Peer, *, connected: bool) -> None:
        self.news.set()


def test_a_timed_step_is_placed_on_the_clock_of_this_side(tmp_path: Path) -> None:
    async def main() -> None:
        listener = Listener()
        server = Server(tmp_path / "run" / "job.sock", listener, lambda line: None)  # type: ignore[arg-type]
        await server.open()
        _, writer = await asyncio.open_unix_connection(server.path)

        async def told(obs: p.RankReport) -> tuple[float, int] | None:
            listener.news.clear()
            writer.write(p.encode(obs))
            await asyncio.wait_for(listener.news.wait(), 30)
            return server.ranks[0].timed

        writer.write(p.encode(p.Hello(p.VERSION, "0.1.0", "rank")))
        assert await told(p.RankReport(7, "running", 0)) is None
        before = time.monotonic()
        timed = await told(p.RankReport(9, "asked", 1, timed=(8, 0.25)))
        assert timed is not None and timed[1] == 8
        assert before - 0.25 <= timed[0] <= time.monotonic() - 0.25
        assert await told(p.RankReport(9, "paused", 1)) == timed, "what an obs does not say stays"
        writer.close()
        await server.close()

    asyncio.run(main())


def test_a_peer_that_is_still_there_at_the_end_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server(tmp_path / "run" / "job.sock", Listener(), lambda line: None)  # type: ignore[arg-type]
        await server.open()
        _, writer = await asyncio.open_unix_connection(server.path)
        writer.write(p.encode(p.Hello(p.VERSION, "0.1.0", "rank")))
        while not server.peers:
            await asyncio.sleep(0.005)

    asyncio.run(main())
    assert "CancelledError" not in caplog.text and "exception" not in caplog.text.lower()
