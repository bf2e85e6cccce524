"""Counts steps: one subtraction and one comparison in the training thread, and nothing else."""

import time
from typing import Any, Callable, ContextManager, Optional, Tuple

from carbontui.client import device

SPAN = 250
"""The count runs down from here inside CPython's cache of small integers, so that a step allocates nothing."""
FAR = 1 << 62
MOST = 1 << 40
"""More steps than this at once are a mistake, and count as one."""


class Counter:
    """Steps done, and a limit from which on every step calls `slow`.

    `step` is a closure, not a method: its cells are read and written in a few nanoseconds. CPython switches threads
    only at a call or a backward jump (its body has none), so the subtraction is atomic and concurrent callers lose
    nothing from 3.10 on. `lock` guards everything except `step` itself.
    """

    step: Callable[..., None]
    """step(n=1): `n` steps are done."""
    settle: Callable[[], int]
    """Start a new span and return the steps done; for the training thread."""
    done: Callable[[], int]
    """Steps done; any thread."""
    arm: Callable[[int], None]
    """From `limit` steps on (0: at the very next step; FAR: never) a step calls `slow`."""
    watch: Callable[[], Optional[Tuple[int, float]]]
    """The last timed step, as (steps done, clock time at its end); also requests timing of the next step."""
    restart: Callable[[], None]
    """Count from 0 again."""

    def __init__(
        self,
        slow: Callable[[], None],
        lock: ContextManager[Any],
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`observe` is called in the training thread at the step after each watch(), about once a second; it must not
        raise."""
        left = floor = SPAN  # the first step is slow: that is where the link starts
        base = limit = 0
        timed: Optional[Tuple[int, float]] = None
        asked = True

        def step(n: int = 1) -> None:
            nonlocal left
            left -= n
            if not left > floor:  # written so that a NaN argument gets here too and is discarded
                turn()

        def turn() -> None:
            nonlocal timed, asked
            traced = device.trace(None)
            try:
                count = settle()
                if asked and (timed is None or count != timed[0]):
                    asked = False
                    observe(count)
                timed = (count, clock())
                if count >= limit:
                    slow()
            finally:
                device.trace(traced)

        def settle() -> int:
            nonlocal base, left, floor
            with lock:
                if type(left) is not int:
                    left = _whole(left)
                if left > SPAN:
                    left = SPAN
                elif left < -MOST:
                    left = SPAN - 1
                # no call between the next two lines: no other thread's step can intervene
                base += SPAN - left
                left = SPAN
                ahead = limit - base
                floor = 0 if ahead >= SPAN else SPAN - ahead if ahead > 0 else SPAN
                return base

        def done() -> int:
            with lock:
                return base + SPAN - left if type(left) is int else base

        def arm(at: int) -> None:
            nonlocal limit, floor
            with lock:
                limit = at
                floor = min(SPAN, max(0, base + SPAN - at))

        def watch() -> Optional[Tuple[int, float]]:
            nonlocal floor, asked
            with lock:
                asked = True
                floor = SPAN  # the next step takes the slow path, and resets the floor
                return timed

        def restart() -> None:
            nonlocal left, floor, base, limit, timed, asked
            with lock:
                left = floor = SPAN
                base = limit = 0
                timed, asked = None, True

        self.step, self.settle, self.done, self.arm, self.watch, self.restart = step, settle, done, arm, watch, restart


def _whole(left: Any) -> int:
    """The rest after a numpy integer or float argument, as an int; a NaN or infinity counts as one step."""
    try:
        return int(left)
    except (TypeError, ValueError, OverflowError):
        return SPAN - 1
