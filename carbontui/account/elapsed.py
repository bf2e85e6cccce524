"""How every second since a job's start was spent: metered in a state, in a named gap, or excluded for a reason."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Reason = Literal["try", "estimate", "calibration"]
"""What was run to learn about the work, not to do it: it is neither used nor part of run-now."""
EXCLUDED: tuple[Reason, ...] = get_args(Reason)
Gap = Literal["no_supervisor", "stalled", "clock", "unread", "queue", "move"]
"""Nobody watched (no supervisor, or one that stood still), the clock was set or the machine slept, the boards could
not be read, the job waited in its scheduler's queue, or it was on its way to another machine."""
GAP_S = 5.0
"""A longer time without a look is a gap, as it is one for the meter."""
SWITCHING = "switching"
"""Booked in place of "running" from the request to go on, after a pause or an unload, to the first step."""
AT_SPEED = frozenset({"starting", "running", "pausing"})
"""States that run-now has too, just as they were."""
CAPPED = "throttled"
EVENT, EVENT_HELD = "event", "event_held"
"""Booked in place of "throttled" and of "paused" where a grid event is why."""
HELD = frozenset({"paused", "unloaded", SWITCHING, EVENT_HELD})


def as_booked(state: str, code: str) -> str:
    """The name under which a state is booked whose reason has this code."""
    return {CAPPED: EVENT, "paused": EVENT_HELD}.get(state, state) if code == "event" else state


@dataclass
class ExcludedTime:
    """What one reason of exclusion took. Joules are those of the devices, without PUE."""

    elapsed_s: float = 0.0
    steps: int = 0
    gpu_j: float = 0.0
    rest_j: float = 0.0


@dataclass
class TimeSpent:
    """Seconds of the job's clock: `by_state` + `gaps` + `excluded` = what has passed since the start, always.

    Beside it stands what run-now needs (see run_now.py): seconds and joules at full speed, work under a cap, seconds
    held. These include gaps, for the training went on. Joules are those of the devices, without PUE."""

    until_s: float
    by_state: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, float] = field(default_factory=dict)
    excluded: dict[str, ExcludedTime] = field(default_factory=dict)
    at_speed_s: float = 0.0
    at_speed_j: float = 0.0
    capped_s: float = 0.0
    capped_steps: int = 0
    capped_work_s: float = 0.0
    """Work under a cap by the clock and the speed of its level, for a program that reports no steps."""
    held_s: float = 0.0
    steps_done: int = 0
    """As last told, with those of `steps_apart`."""
    steps_apart: int = 0
    """Steps of excluded times that the job has kept."""

    def advance(
        self, now_s: float, state: str, *, steps: int, work_s: float = 0.0, paused: bool = False, gap: Gap | None = None
    ) -> float:
        """The time since the last call was spent in `state` (as booked: an excluded one is named by its reason), with
        `steps` done in all and `work_s` of work by the clock. `paused`: a start held back, where nothing runs yet.

        Returns the seconds; negative where the job turns out to have ended before the last look."""
        seconds, self.until_s = now_s - self.until_s, now_s
        more = steps - self.steps_done
        self.steps_done = steps
        self.steps_apart = min(self.steps_apart, steps)
        if state in EXCLUDED:
            apart = self.of(state)
            apart.elapsed_s += seconds
            apart.steps += max(0, more)
            self.steps_apart += max(0, more)
            return seconds
        if gap is None:
            self.by_state[state] = self.by_state.get(state, 0.0) + seconds
        else:
            self.gaps[gap] = self.gaps.get(gap, 0.0) + seconds
        if gap == "clock":
            return seconds
        if paused or state in HELD:
            self.held_s += seconds
        elif state in (CAPPED, EVENT):
            self.capped_s += seconds
            self.capped_steps += max(0, more)
            self.capped_work_s += work_s
        elif state in AT_SPEED:
            self.at_speed_s += seconds
        return seconds

    def drew(self, joules: float, state: str, *, gpu: bool) -> None:
        """Joules booked in `state`; negative ones are taken back, or nobody's."""
        if state in EXCLUDED:
            apart = self.of(state)
            if gpu:
                apart.gpu_j += joules
            else:
                apart.rest_j += joules
        elif state in AT_SPEED:
            self.at_speed_j += joules

    def begin_run_now_again(self) -> None:
        """What run-now needs is counted anew, at another machine."""
        self.at_speed_s = self.at_speed_j = self.capped_s = self.capped_work_s = self.held_s = 0.0
        self.capped_steps = 0

    @property
    def steps_kept(self) -> int:
        """Steps of the account."""
        return self.steps_done - self.steps_apart

    def of(self, reason: str) -> ExcludedTime:
        return self.excluded.setdefault(reason, ExcludedTime())

    @property
    def metered_s(self) -> float:
        return sum(self.by_state.values())

    @property
    def gap_s(self) -> float:
        return sum(self.gaps.values())

    @property
    def counted_s(self) -> float:
        """Seconds of the account: all but the excluded ones."""
        return self.metered_s + self.gap_s

    @property
    def lived_s(self) -> float:
        return self.counted_s + sum(apart.elapsed_s for apart in self.excluded.values())

    @property
    def lever_acted(self) -> bool:
        """Whether anything was held back: a start, a pause, an unload, a cap or a duty cycle, as it was observed."""
        return self.held_s > 0 or self.capped_s > 0


def restored(kept: Any, otherwise: TimeSpent) -> TimeSpent:
    """What a predecessor kept, fields of other versions left out; `otherwise` where it kept nothing."""
    if not isinstance(kept, dict):
        return otherwise
    known = {name: kept[name] for name in TimeSpent.__dataclass_fields__ if name in kept}
    known["excluded"] = {reason: ExcludedTime(**apart) for reason, apart in known.get("excluded", {}).items()}
    return TimeSpent(**{"until_s": otherwise.until_s, **known})
