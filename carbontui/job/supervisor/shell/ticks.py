"""When the next tick comes, and how a request waits for a result of coming ticks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

NEAR = 0.1
"""A tick may come this share of its period early or late, to coincide with a report of the boards."""


class Ticks:
    """A period after the last one, or with a report of the boards near that time: waking up is much of a tick's cost,
    and its watts are then of that moment. At once if something changed."""

    def __init__(self, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._clock = clock
        self._began_mono_s = clock()
        self._due = asyncio.Event()
        self._next = asyncio.Event()

    def hurry(self) -> None:
        self._due.set()

    def boards_read(self) -> None:
        if self._clock() - self._began_mono_s >= (1.0 - NEAR) * self._period_s:
            self._due.set()

    async def wait(self) -> None:
        if self._due.is_set():
            await asyncio.sleep(0)  # requests that wait for the last tick's result are answered first
        # not by wait_for, whose task takes as long as a third of a tick
        timer = asyncio.get_running_loop().call_later((1.0 + NEAR) * self._period_s, self._due.set)
        await self._due.wait()
        timer.cancel()
        self._due.clear()
        self._began_mono_s = self._clock()

    def ended(self) -> None:
        """Called after every tick."""
        done, self._next = self._next, asyncio.Event()
        done.set()

    async def until(self, ask: Callable[[], T | None], timeout_s: float) -> T | None:
        """The first non-None result of `ask` after a coming tick; None on timeout."""
        loop = asyncio.get_running_loop()
        due = loop.time() + timeout_s
        while (left := due - loop.time()) > 0:
            try:
                await asyncio.wait_for(self._next.wait(), left)
            except asyncio.TimeoutError:
                break
            if (value := ask()) is not None:
                return value
        return None
