"""How much work there is, how much is done, and how fast: in reference-speed seconds of the job's clock.

The reference is the speed of this job flat out. Work is known from --work, from --steps or a reported total once the
reference rate has been measured; while it is unknown nothing is paused or delayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MIN_STEPS = 5
MIN_WALL_S = 3.0
MEMORY_WALL_S = 600.0
"""The reference rate forgets what is older than about this much running time."""


@dataclass
class Progress:
    """Mutable, fed once a tick by the supervisor; everything it knows survives a respawn through the journal."""

    work_s: float | None = None
    steps_total: int | None = None
    step: int = 0
    base: int = 0
    starts: int = 0
    plain_done_s: float = 0.0
    ref_steps: float = 0.0
    ref_time_s: float = 0.0
    ref_wall_s: float = 0.0
    given_rate: float | None = None
    """Reference steps per job second, when the caller measured it beforehand (demo)."""

    @property
    def ref_rate(self) -> float | None:
        """Reference-speed steps per second of the job's clock; None until measured."""
        if self.ref_steps >= MIN_STEPS and self.ref_wall_s >= MIN_WALL_S:
            return self.ref_steps / self.ref_time_s
        return self.given_rate

    @property
    def total_s(self) -> float | None:
        """The whole work in reference-speed seconds; None while unknown."""
        if self.work_s is not None:
            return self.work_s
        if self.steps_total is not None and self.ref_rate:
            return self.steps_total / self.ref_rate
        return None

    @property
    def done_s(self) -> float:
        """How long the work done so far takes flat out, by the measured rate where there is one."""
        rate = self.ref_rate
        return self.step / rate if rate and self.step else self.plain_done_s

    @property
    def left_s(self) -> float | None:
        """The work left in reference-speed seconds: by steps and the measured rate where both are known, since a
        person's --work is an estimate; None while unknown."""
        rate = self.ref_rate
        if self.steps_total is not None and rate:
            return max(0, self.steps_total - self.step) / rate
        return None if self.work_s is None else max(0.0, self.work_s - self.done_s)

    def saw_start(self, starts: int) -> None:
        """The keeper started the command for the `starts`-th time: steps count on from where they were."""
        if starts > self.starts:
            if self.starts:
                self.base = self.step
            self.starts = starts

    def saw_step(self, step: int, start_step: int, total: int | None) -> int:
        """A rank's newest count; returns how many steps are new. A total from the script is adopted once."""
        absolute = (start_step or self.base) + step
        new = max(0, absolute - self.step)
        self.step = max(self.step, absolute)
        if total and self.steps_total is None:
            self.steps_total = total
        return new

    def ran(self, dt_s: float, dt_wall_s: float, speed: float, new_steps: int, *, reference: bool) -> None:
        """`dt_s` of the job's clock passed while running; `reference`: flat out, so it teaches the reference rate."""
        self.plain_done_s += dt_s * speed
        if not reference or dt_s <= 0:
            return
        keep = max(0.0, 1.0 - dt_wall_s / MEMORY_WALL_S) if self.ref_wall_s > MEMORY_WALL_S else 1.0
        self.ref_steps = self.ref_steps * keep + new_steps
        self.ref_time_s = self.ref_time_s * keep + dt_s
        self.ref_wall_s = self.ref_wall_s * keep + dt_wall_s

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def restore(self, kept: dict[str, Any] | None) -> None:
        for key, value in (kept or {}).items():
            if key in self.__dict__:
                setattr(self, key, value)
