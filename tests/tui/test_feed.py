"""What the screen is told, and in which order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from fake import FakeSupervisor, scene

from carbontui.tui.model import feed
from carbontui.tui.model.feed import LOG_BEGIN_B, LOG_MOST_B, JobFeed, LogPiece, News
from carbontui.tui.model.view_state import ViewState


class Hears:
    """What a feed posts, of pictures and output alone."""

    def __init__(self, path: Path) -> None:
        self.news: list[ViewState | LogPiece] = []
        self._arrived = asyncio.Event()
        self._running = asyncio.create_task(JobFeed(path, self._post).run())

    def _post(self, news: News) -> None:
        if isinstance(news, ViewState | LogPiece):
            self.news.append(news)
            self._arrived.set()

    async def until(self, count: int) -> list[ViewState | LogPiece]:
        while len(self.news) < count:
            self._arrived.clear()
            await asyncio.wait_for(self._arrived.wait(), 90)
        return self.news

    async def close(self) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running


async def test_output_comes_with_the_picture_after_it(tmp_path: Path) -> None:
    async with FakeSupervisor(tmp_path / "s", scene(), log="before\n") as fake:
        hears = Hears(tmp_path / "s")
        await hears.until(2)
        for n in range(3):
            fake.log += b"line %d\n" % n
            fake.push(status=fake.status(step=n))
            await hears.until(4 + 2 * n)
        await hears.close()
        assert [one.text for one in hears.news if isinstance(one, LogPiece)] == [
            "before\n", "line 0\n", "line 1\n", "line 2\n"
        ]  # fmt: skip


async def test_pictures_do_not_wait_for_an_output_that_cannot_be_read(tmp_path: Path) -> None:
    async with FakeSupervisor(tmp_path / "s", scene()) as fake:
        fake.log_is_read = False
        hears = Hears(tmp_path / "s")
        await hears.until(1)
        fake.push(status=fake.status(step=5))
        fake.push(status=fake.status(step=6))
        news = await hears.until(3)
        await hears.close()
        assert [one.status.step for one in news if isinstance(one, ViewState)][-2:] == [5, 6]


async def test_of_a_flood_of_output_the_end_is_read(tmp_path: Path) -> None:
    async with FakeSupervisor(tmp_path / "s", scene(), log="begin\n") as fake:
        hears = Hears(tmp_path / "s")
        await hears.until(2)
        fake.log += b"x" * 2 * LOG_MOST_B + b"much\n"
        fake.push(status=fake.status(step=1))
        last = [one for one in await hears.until(4) if isinstance(one, LogPiece)][-1]
        await hears.close()
        assert last.fresh
        assert last.text.endswith("much\n") and len(last.text) == LOG_BEGIN_B


async def test_output_that_is_late_needs_no_other_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "TOGETHER_S", 0.0)
    async with FakeSupervisor(tmp_path / "s", scene()) as fake:
        fake.log = b"step 1\n"
        hears = Hears(tmp_path / "s")
        assert any(isinstance(one, LogPiece) for one in await hears.until(2))
        await hears.close()
