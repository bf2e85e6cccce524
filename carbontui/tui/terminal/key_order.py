"""Keys act one after another, however fast they arrive.

Textual hands a key to whichever widget has the focus while the key before it may still be on its way: over a slow line
`Down Down Enter` would open the first row, and letters typed after the key of a question would miss the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from textual.app import App
from textual.events import Event
from textual.message_pump import MessagePump
from textual.screen import Screen

PATIENCE_S = 2.0
"""A page that waits for the supervisor longer than this no longer holds up the keys that follow."""


@runtime_checkable
class Settles(Protocol):
    """A screen that may still be loading after its messages are handled, and so is not ready for the next key."""

    async def settle(self) -> None: ...


async def answered(screen: Screen[Any], group: str) -> None:
    """Wait until this group's workers have delivered what the screen asked for: the next key moves through it."""
    reading = [worker.wait() for worker in screen.workers if worker.group == group and worker.node is screen]
    if reading:
        await asyncio.wait([asyncio.ensure_future(one) for one in reading])


class KeyOrder:
    """A queue of keys before `dispatch`, which hands one to the app. Lives as long as `run()` runs."""

    def __init__(self, app: App[Any], dispatch: Callable[[Event], Awaitable[None]]) -> None:
        self._app, self._dispatch = app, dispatch
        self._waiting: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._waiting.put_nowait(event)

    async def done(self) -> None:
        """Wait until every key so far has acted."""
        await self._waiting.join()

    async def run(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                before = self._app.screen
                path = _path(self._app.focused or before)
                await self._dispatch(event)
                await self._settled(path, before)
            finally:
                self._waiting.task_done()

    async def _settled(self, path: list[MessagePump], before: Screen[Any]) -> None:
        """Wait until the key, what it posted and the screen it opened have been handled.

        A key and the messages it causes bubble from the focused widget to the app; each widget's queue is drained once
        for the key, and once for what that handling posted to the widget itself.
        """
        await _drained([pump for pump in path for _ in range(2)])
        if self._app.screen is not before:
            # a page's first focus and first messages come with its mounting
            await _drained([self._app.screen, self._app, *_path(self._app.focused or self._app.screen)])
        if isinstance(self._app.screen, Settles):
            try:
                await asyncio.wait_for(self._app.screen.settle(), PATIENCE_S)
            except (TimeoutError, asyncio.TimeoutError):
                return


def _path(widget: MessagePump) -> list[MessagePump]:
    """The widget and all above it, the app last."""
    path = [widget]
    while path[-1]._parent is not None:
        path.append(path[-1]._parent)
    return path


async def _drained(pumps: Iterable[MessagePump]) -> None:
    """Wait for each in turn until its queue is handled; a closed one has nothing left to do."""
    for pump in pumps:
        handled = asyncio.Event()
        if pump.is_running and pump.call_later(handled.set):
            waited = asyncio.ensure_future(handled.wait())
            # a loop that has ended no longer runs callbacks
            over = {pump._task} if pump._task is not None else set()
            await asyncio.wait({waited, *over}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            waited.cancel()
