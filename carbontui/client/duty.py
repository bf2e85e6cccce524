"""The duty cycle: run a share of the time, in whole steps."""

from __future__ import annotations

from typing import Optional

PERIOD_S = 2.0
"""Length of one on-and-off cycle unless a step is longer; clocks and fans do not follow millisecond sleeps."""


class Duty:
    """Rest owed for time run: `off = on * (1 - share) / share`, taken in one piece once a period is full.

    The rest owed survives a change of the share, so that many short stretches at different shares add up correctly;
    it is dropped when the duty cycle ends. Times are seconds of one monotonic clock, passed in.
    """

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self.share: Optional[float] = None
        self.period_s = period_s
        self._on = self._owed = self._since = 0.0
        self._resting = False

    def set(self, share: Optional[float], now: float) -> None:
        """Run this share of the time from now on, 0 < share < 1; None ends the cycle."""
        self._settle(now)
        self.share = share
        if share is None:
            self._on = self._owed = 0.0

    def due(self, now: float) -> float:
        """Seconds to rest at this boundary; 0 while the on-phase lasts."""
        self._settle(now)
        return self._owed if self._on + self._owed >= self.period_s and self._owed > 0 else 0.0

    def rest(self, now: float) -> None:
        """The training thread starts to rest."""
        self._settle(now)
        self._resting, self._on = True, 0.0

    def wake(self, now: float) -> None:
        """It continues; oversleeping counts as rest paid in advance."""
        self._settle(now)
        self._resting = False

    def away(self, now: float) -> None:
        """The time since the last call was spent neither running nor resting (a pause)."""
        self._since = now

    def next_at(self) -> Optional[float]:
        """When the on-phase will be full, if the loop runs on; None without a duty cycle."""
        if self.share is None or self._resting:
            return None
        return self._since + max(0.0, self.period_s - self._on - self._owed) * self.share

    def _settle(self, now: float) -> None:
        spent, self._since = max(0.0, now - self._since), now
        if self.share is None:
            return
        if self._resting:
            self._owed -= spent
        else:
            self._on += spent
            self._owed += spent * (1 - self.share) / self.share
