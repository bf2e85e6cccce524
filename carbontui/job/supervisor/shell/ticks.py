"""Lets a request wait for a result of coming ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Ticks:
    """The loop calls `ended` after every tick; requests wait with `until`."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def ended(self) -> None:
        done, self._next = self._next, asyncio.Event()
        done.set()

    async def until(self, found: Callable[[], T | None], timeout_s: float) -> T | None:
        """The first non-None result of `found` after a coming tick; None on timeout."""
        loop = asyncio.get_running_loop()
        due = loop.time() + timeout_s
        while (left := due - loop.time()) > 0:
            try:
                await asyncio.wait_for(self._next.wait(), left)
            except asyncio.TimeoutError:
                break
            if (value := found()) is not None:
                return value
        return None
