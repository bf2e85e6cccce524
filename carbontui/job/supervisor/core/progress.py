"""How much work there is, how much is done, and how fast: in reference-speed seconds of the job's clock.

The reference is the speed of this job flat out. Work is known from --work, from --steps or a reported total once the
reference rate has been measured; while it is unknown nothing is paused or delayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MIN_STEPS = 5
MIN_WALL_S = 3.0
MEMORY_WALL_S = 600.0
MEMORY_STEPS = 20
"""The reference rate forgets what is older than about this much running time, and these many steps."""
REPORT_WALL_S = 1.0
"""A rank tells its steps about this often: in a fast replay that is an hour of work, so it is bridged."""


@dataclass
class Progress:
    """Mutable, fed once a tick by the supervisor; everything it knows survives a respawn through the journal."""

    work_s: float | None = None
    steps_total: int | None = None
    step: int = 0
    base: int = 0
    starts: int = 0
    before: int = 0
    """Steps of the trainings that ended before this one, where a command runs several one after the other."""
    processes: list[str] | None = None
    """The training processes that count on from `before`; None before the first (or of an older journal)."""
    told_total: int | None = None
    """`steps_total` where it is the script's word; a person's --steps stands above it."""
    plain_done_s: float = 0.0
    ref_steps: float = 0.0
    ref_time_s: float = 0.0
    ref_wall_s: float = 0.0
    ahead_s: float = 0.0
    """Reference-speed seconds run since the last step that was told of."""
    quiet_wall_s: float = 0.0
    span_s: float | None = None
    """How long it ran flat out since a step was told of; None: not all the time since."""
    span_wall_s: float = 0.0
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
        person's --work is an estimate; less what ran since the last step was told. None while unknown."""
        rate = self.ref_rate
        if self.steps_total is not None and rate:
            return max(0.0, (self.steps_total - self.step) / rate - self.ahead_s)
        if self.work_s is None:
            return None
        return max(0.0, self.work_s - self.done_s - (self.ahead_s if rate and self.step else 0.0))

    def saw_start(self, starts: int) -> None:
        """The keeper started the command for the `starts`-th time: steps count on from where they were."""
        if starts > self.starts:
            if self.starts:
                self.base = self.step
            self.starts = starts

    def saw_process(self, process: str, alive: Callable[[str], bool], *, fresh: bool) -> None:
        """A training process has spoken. A `fresh` one (it resumed nothing that it told of, no launcher restarted it)
        that finds no other alive is the next training of the command; beside another it is one of a pair."""
        if self.processes is None:
            self.processes = [process]
        elif process not in self.processes:
            self.processes = [other for other in self.processes if alive(other)]
            if not self.processes and fresh:
                self.before = self.base = self.step
                if self.told_total is not None:
                    self.steps_total = self.told_total = None
            self.processes.append(process)

    def saw_step(self, step: int, start_step: int, total: int | None) -> int:
        """A rank's newest count; returns how many steps are new. The script's total counts where no person gave one."""
        absolute = (self.before + start_step if start_step else self.base) + step
        new = max(0, absolute - self.step)
        self.step = max(self.step, absolute)
        if total and self.steps_total == self.told_total:
            told = self.before + total
            if len(self.processes or ()) > 1:  # a pair: the longer one
                told = max(told, self.told_total or 0)
            self.steps_total = self.told_total = told
        return new

    def ran(self, dt_s: float, dt_wall_s: float, speed: float, new_steps: int, *, reference: bool) -> None:
        """`dt_s` of the job's clock passed while running; `reference`: flat out, so it teaches the reference rate."""
        self.plain_done_s += dt_s * speed
        self._bridge(dt_s * speed, dt_wall_s, new_steps)
        if not reference:
            self.span_s = None
            return
        if self.span_s is not None:
            self.span_s += dt_s
            self.span_wall_s += dt_wall_s
            if new_steps:
                self._learn(new_steps, self.span_s, self.span_wall_s)
        if new_steps:
            self.span_s = self.span_wall_s = 0.0

    def _learn(self, steps: int, time_s: float, wall_s: float) -> None:
        """Steps between two reports that were both of running flat out, and how long they took."""
        memory_s = max(MEMORY_WALL_S, MEMORY_STEPS * wall_s / steps)
        keep = max(0.0, 1.0 - wall_s / memory_s) if self.ref_wall_s > memory_s else 1.0
        self.ref_steps = self.ref_steps * keep + steps
        self.ref_time_s = self.ref_time_s * keep + time_s
        self.ref_wall_s = self.ref_wall_s * keep + wall_s

    def rested(self) -> None:
        """The job stands still at a step that was told of."""
        self.ahead_s = self.quiet_wall_s = 0.0
        self.span_s = None

    def _bridge(self, worth_s: float, dt_wall_s: float, new_steps: int) -> None:
        """What ran since the last word counts until the next is due, or within one step: a stall earns nothing."""
        if new_steps:
            self.ahead_s = self.quiet_wall_s = 0.0
            return
        rate = self.ref_rate
        self.quiet_wall_s += dt_wall_s
        if self.quiet_wall_s < REPORT_WALL_S or (rate and self.ahead_s + worth_s < 1.0 / rate):
            self.ahead_s += worth_s

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def restore(self, kept: dict[str, Any] | None) -> None:
        for key, value in (kept or {}).items():
            if key in self.__dict__:
                setattr(self, key, value)
        self.rested()  # nobody timed what was run since
