"""A slow line and a long day: what a key costs, what a lost connection leaves alone, what a page that is left keeps."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fake import FakeSupervisor
from test_terminals import Terminal, settled, shown
from textual.screen import Screen
from textual.strip import Strip

from carbontui.tui.screens.dashboard import Dashboard

DELAY_S, RATE_B_PER_S = 0.3, 2000
RIGHT, KNOB = b"\x1b[C", "\N{BLACK CIRCLE}".encode()


class SlowLine:
    """Between a hand and the terminal: a key arrives later, and what comes back passes a few bytes at a time."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    async def carry(self) -> None:
        self.terminal.read(False)
        while True:
            await asyncio.sleep(0.05)
            with contextlib.suppress(OSError):
                self.terminal.take(os.read(self.terminal.master, RATE_B_PER_S // 20))

    async def press(self, key: bytes) -> int:
        """Returns how much had come when the key arrived."""
        await asyncio.sleep(DELAY_S)
        before = len(self.terminal.seen)
        os.write(self.terminal.master, key)
        return before


@asynccontextmanager
async def slow(tmp_path: Path) -> AsyncIterator[tuple[FakeSupervisor, SlowLine]]:
    async with shown(tmp_path) as (fake, terminal):
        await settled(terminal)
        os.set_blocking(terminal.master, False)
        line = SlowLine(terminal)
        carrying = asyncio.create_task(line.carry())
        try:
            yield fake, line
        finally:
            carrying.cancel()


async def test_over_a_slow_line_the_knob_moves_before_the_planner_answers(tmp_path: Path) -> None:
    async with slow(tmp_path) as (fake, line):
        terminal, fake.preview_is_answered = line.terminal, False
        before = await line.press(RIGHT)
        await terminal.until(lambda: KNOB in terminal.seen[before:])
        assert len(terminal.seen) - before <= 1000
        await terminal.quiet(1.5)
        before = await line.press(b"\x1b")
        await terminal.until(lambda: KNOB in terminal.seen[before:])
        await terminal.quiet(1.5)
        assert len(terminal.seen) - before <= 1500 and not fake.commands


async def test_a_lost_connection_leaves_question_and_place(stage: Any) -> None:
    async with stage(size=(120, 24)) as s:
        await s.pilot.press("e", "1", "9", "h")
        s.fake.drop()
        await s.until(s.fake.viewing.is_set)
        assert "19h" in s.text() and "finish within" in s.text()
        await s.pilot.press("escape", "question_mark", "down", "down")
        place, viewed = s.app.screen.query_one("#page").top, len(s.fake.rates_hz)
        s.fake.drop()
        await s.until(lambda: len(s.fake.rates_hz) > viewed)
        assert s.app.screen.query_one("#page").top == place > 0 and not s.fake.commands


async def test_a_page_that_was_left_keeps_nothing(stage: Any) -> None:
    def kept() -> Counter[str]:
        gc.collect()
        return Counter("line" if isinstance(one, Strip) else "page" for one in gc.get_objects() if type(one) is Strip
                       or isinstance(one, Screen))  # fmt: skip

    async def opened(times: int) -> Counter[str]:
        for _ in range(times):
            for key in ("question_mark", "i", "d", "w", "l"):
                await s.pilot.press(key)
                await s.until(lambda: not isinstance(s.app.screen, Dashboard))
                await s.pilot.press("escape")  # leaves every page
                await s.until(lambda: isinstance(s.app.screen, Dashboard))
        return kept()

    async with stage() as s:
        once = await opened(2)
        more = await opened(4)
        assert more["page"] < once["page"] + 12 and more["line"] < once["line"] + 60, "24 pages more"
