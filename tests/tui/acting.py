"""A screen on a fake supervisor: the app, who waits for it, and what it shows."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fake import FakeSupervisor, past_levels
from msgspec.structs import replace
from textual.message import Message
from textual.pilot import Pilot
from textual.screen import Screen

from carbontui import protocol, units
from carbontui.tui.app import CarbonApp
from carbontui.tui.model.feed import Target
from carbontui.tui.screens.dashboard import Dashboard

WAIT_S = 90.0
POLL_EVERY_S = 0.25


def target(socket: Path) -> Target:
    return Target("k7q2mz", "charlm", socket)


def app_on(
    socket: Path,
    ascii: bool = False,
    readonly: bool = False,
    theme: str = "carbon-dark",
    table: Callable[[], Screen[str | None]] | None = None,
    monotonic: Callable[[], float] = lambda: 0.0,
    **of_target: object,
) -> CarbonApp:
    job = replace(target(socket), **of_target)  # type: ignore[arg-type]
    app = CarbonApp(lambda: Dashboard(job, readonly=readonly, table=table, monotonic=monotonic), ascii=ascii)
    app.theme = theme
    return app


class Watcher:
    """Waits for what a message brings about; what a task brings about without one is looked for now and then."""

    def __init__(self) -> None:
        self._something = asyncio.Event()

    def hook(self, message: Message) -> None:
        self._something.set()

    async def until(self, true: Callable[[], object]) -> None:
        due = asyncio.get_running_loop().time() + WAIT_S
        while not true():
            self._something.clear()
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._something.wait(), POLL_EVERY_S)
            if asyncio.get_running_loop().time() > due:
                raise TimeoutError


class Stage:
    """A supervisor, a screen on it, and a pilot at its keys."""

    def __init__(self, fake: FakeSupervisor, app: CarbonApp, pilot: Pilot[str | None], watcher: Watcher) -> None:
        self.fake, self.app, self.pilot, self._watcher = fake, app, pilot, watcher

    @property
    def dashboard(self) -> Dashboard:
        return next(screen for screen in self.app.screen_stack if isinstance(screen, Dashboard))

    async def until(self, true: Callable[[], object]) -> None:
        await self._watcher.until(true)
        await self.pilot.pause()

    def text(self) -> str:
        return text_of(self.app)


def text_of(app: CarbonApp) -> str:
    """What is on the screen, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


@contextmanager
def served(path: Path, snap: protocol.Snap, gpus: int = 1) -> Iterator[FakeSupervisor]:
    """A fake supervisor on a thread of its own, for tests whose event loop is not ours."""
    loop = asyncio.new_event_loop()
    fake = FakeSupervisor(path, snap)
    fake.levels = past_levels(gpus, now=units.from_iso(snap.series.now))
    loop.run_until_complete(fake.__aenter__())
    thread = threading.Thread(target=loop.run_forever, name="fake supervisor")
    thread.start()
    try:
        yield fake
    finally:

        async def close() -> None:
            await fake.__aexit__()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
