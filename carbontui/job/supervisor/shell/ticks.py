"""When the next tick comes, how a request waits for a result of coming ticks, and the clock of a replay, bound to the
steps of its training: a busy machine slows the day down, and nothing is late."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from carbontui import paths
from carbontui.job.supervisor.core.planning.course import in_force
from carbontui.job.supervisor.core.state.job import JobState

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


REPORTED_S = 1.2
"""Steps are reported every second: for as long a training that was heard is taken to go on at its pace."""
LAG_S = 0.3
"""The training may be this far behind the clock, in seconds of the machine."""


class BoundClock:
    """`observe()` at every tick; keeps how many steps the clock's time has asked for so far."""

    _asked: float | None = None
    _last_s = 0.0
    _ran_at = 0.0
    """Steps per second of the job, at the last look."""

    def observe(self, state: JobState, silent_s: float | None, wall_s: float) -> None:
        """`silent_s` since the training's last message; None where none is connected."""
        clock = state.clock
        if clock.stood is None:
            return
        step, now_s = state.progress.step, clock.at_wall(wall_s)
        asked = step if self._asked is None else self._asked + max(0.0, now_s - self._last_s) * self._ran_at
        runs = state.decision.state in ("running", "throttled")
        pace = (state.spec.ref_rate or 0.0) * in_force(state).speed if runs else 0.0
        self._asked, self._last_s, self._ran_at = asked, now_s, pace
        made = step + (0.0 if silent_s is None else min(silent_s, REPORTED_S)) * pace * clock.speed
        behind = runs and asked - made > LAG_S * pace * clock.speed
        clock.stood.stand(behind or between_ends(state), wall_s, paths.write_whole)


def between_ends(state: JobState) -> bool:
    """Whether the command runs, but has not come to its first step, or has made its last one."""
    total, step = state.progress.steps_total, state.progress.step
    alive = state.decision.state in ("starting", "running", "throttled", "pausing")
    return alive and (step == 0 or (total is not None and step >= total))
