"""What a supervisor's want means at a boundary: it is in force while its lease lasts."""

from __future__ import annotations

from typing import NamedTuple, Optional

from carbontui.client.pausing.counter import FAR
from carbontui.client.pausing.wire import Want

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


class Act(NamedTuple):
    """What the training thread does at a boundary.

    kind: go (train on), hold (blocked, model in VRAM), rest (the off-phase of a duty cycle), idle (the same for a rank,
    whose coordinator keeps the time), wait (for a decision of the ranks), save (call the checkpoint functions), leave
    (exit 0 after the marker). `until` is on the gate's clock.
    """

    kind: str
    until: float = 0.0
    want: Optional[Want] = None


GO = Act("go")


class Lease:
    """The authority of a single process: a want is in force until its lease expires."""

    marks_early = False
    """The marker is written when the process leaves, not when it saves."""

    def __init__(self) -> None:
        self.want: Optional[Want] = None
        self.until = 0.0
        self.duty = Duty()
        self.saved: Optional[int] = None
        """want_gen of the last requested checkpoint that was tried."""
        self.saved_well = False

    def accept(self, want: Want, now: float) -> bool:
        """Take a want; True if it differs from the one in force."""
        before = self.in_force(now)
        self.want, self.until = want, now + want.lease_s
        share = want.duty if want.mode == "run" else None
        if share != self.duty.share:
            self.duty.set(share, now)
        return before is None or want.asked != before.asked

    def in_force(self, now: float) -> Optional[Want]:
        if self.want is not None and now >= self.until:
            self.want = None
            self.duty.set(None, now)
        return self.want

    def running(self, now: float) -> Optional[Want]:
        """The want to acknowledge while training goes on."""
        return self.in_force(now)

    def asks_boundary(self, now: float, can_save: bool) -> bool:
        """True while the want in force needs the training thread to stop at a boundary."""
        want = self.in_force(now)
        return want is not None and (
            want.mode != "run" or (want.checkpoint and can_save and self.saved != want.want_gen)
        )

    def act(self, now: float, done: int, can_save: bool) -> Act:
        """The action at a boundary."""
        want = self.in_force(now)
        if want is None:
            return GO
        if can_save and (want.checkpoint or want.mode == "unload") and self.saved != want.want_gen:
            return Act("save", want=want)
        if want.mode == "unload" and can_save and self.saved_well:
            return Act("leave", want=want)
        if want.mode != "run":  # an unload that is not possible: hold the model instead
            return Act("hold", self.until, want)
        rest_s = self.duty.due(now)
        return Act("rest", min(now + rest_s, self.until), want) if rest_s > 0 else GO

    def outcome(self, want: Want, well: bool) -> None:
        """The checkpoint functions have run for this want."""
        self.saved, self.saved_well = want.want_gen, well

    def limit(self, now: float, can_save: bool) -> int:
        """The step count from which on the training thread must come to the gate."""
        due = self.duty.next_at() if self.in_force(now) else None
        return 0 if self.asks_boundary(now, can_save) or (due is not None and now >= due) else FAR

    def wakes_at(self, now: float) -> Optional[float]:
        """When `limit` or `act` may change through the passage of time."""
        if self.in_force(now) is None:
            return None
        due = self.duty.next_at()
        return self.until if due is None or due <= now else min(self.until, due)
