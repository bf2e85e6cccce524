"""The job's clock: live, or a replay at N times real speed from a chosen moment on.

Grid, plan, accounts and screen use this clock; leases, sockets and heartbeats the machine's. It is a mapping, not a
clock itself: the caller passes the wall time.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


class Standstills:
    """When a replay's clock stood still, in wall time: closed spans, the last one perhaps open. Only the present is
    ever changed, so a time that was read stays what it was. Kept in a file, which a successor reads."""

    def __init__(self, file: Path | None = None, from_s: float | None = None) -> None:
        """`from_s`: without a file it stands from then on, until the training comes to its first step."""
        self._file = file
        self.spans: list[tuple[float, float | None]] = [] if from_s is None else [(from_s, None)]
        with suppress(OSError, ValueError, TypeError):
            if file is not None:
                self.spans = [(float(a), None if b is None else float(b)) for a, b in json.loads(file.read_bytes())]

    @property
    def standing(self) -> bool:
        return bool(self.spans) and self.spans[-1][1] is None

    def until(self, wall_s: float) -> float:
        """Seconds stood still up to a wall time."""
        return sum(min(wall_s, wall_s if b is None else b) - a for a, b in self.spans if a < wall_s)

    def stand(self, still: bool, wall_s: float, write: Callable[[Path, bytes], None]) -> None:
        """Stand still from now on, or go on."""
        if still == self.standing:
            return
        if still:
            self.spans.append((max(wall_s, self.spans[-1][1] or 0.0) if self.spans else wall_s, None))
        else:
            self.spans[-1] = self.spans[-1][0], max(wall_s, self.spans[-1][0])
        if self._file is not None:
            with suppress(OSError):
                write(self._file, json.dumps(self.spans).encode())


@dataclass(frozen=True, slots=True)
class Clock:
    """Maps wall time to the job's time and back, in epoch seconds. A live clock has speed 1 and no origin."""

    speed: float = 1.0
    wall_origin_s: float = 0.0
    job_origin_s: float = 0.0
    stood: Standstills | None = field(default=None, compare=False)
    """Of a replay that is bound to the steps of its training."""

    @property
    def replay(self) -> bool:
        return self.wall_origin_s != 0.0

    def at_wall(self, wall_s: float) -> float:
        """The job's time at a wall time. A replay stands still until its origin, while the command loads."""
        if not self.replay:
            return wall_s
        stood_s = self.stood.until(wall_s) if self.stood else 0.0
        return self.job_origin_s + max(0.0, wall_s - self.wall_origin_s - stood_s) * self.speed

    def speed_at(self, wall_s: float) -> float:
        """Seconds of the job per second of the machine."""
        if self.stood and self.stood.standing:
            return 0.0
        return 0.0 if self.replay and wall_s < self.wall_origin_s else self.speed

    def to_wall(self, job_s: float) -> float:
        """The wall time at which the job's clock shows `job_s`."""
        if not self.replay:
            return job_s
        stood_s = 0.0
        if self.stood:
            stood_s = self.stood.until(self.stood.spans[-1][0] if self.stood.standing else float("inf"))
        return self.wall_origin_s + stood_s + (job_s - self.job_origin_s) / self.speed
