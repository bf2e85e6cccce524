"""The job's clock: live, or a replay at N times real speed from a chosen moment on.

Grid, plan, accounts and screen use this clock; leases, sockets and heartbeats the machine's. It is a mapping, not a
clock itself: the caller passes the wall time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Maps wall time to the job's time and back, in epoch seconds. A live clock has speed 1 and no origin."""

    speed: float = 1.0
    wall_origin_s: float = 0.0
    job_origin_s: float = 0.0

    @property
    def replay(self) -> bool:
        return self.wall_origin_s != 0.0

    def at_wall(self, wall_s: float) -> float:
        """The job's time at a wall time. A replay stands still until its origin, while the command loads."""
        if not self.replay:
            return wall_s
        return self.job_origin_s + max(0.0, wall_s - self.wall_origin_s) * self.speed

    def speed_at(self, wall_s: float) -> float:
        """Seconds of the job per second of the machine."""
        return 0.0 if self.replay and wall_s < self.wall_origin_s else self.speed

    def to_wall(self, job_s: float) -> float:
        """The wall time at which the job's clock shows `job_s`."""
        if not self.replay:
            return job_s
        return self.wall_origin_s + (job_s - self.job_origin_s) / self.speed
