"""What a supervisor's want means at a boundary: it is in force while its lease lasts.

A process alone obeys its own supervisor; a rank of a distributed job does only what all ranks have agreed on, nothing
by itself. An `StepBarrier` holds what the ranks thread (ranks.py) and the training thread share, under the gate's lock.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from carbontui.client.pausing.counter import FAR
from carbontui.client.pausing.wire import DesiredLine

PERIOD_S = 2.0
"""Length of one on-and-off cycle unless a step is longer; clocks and fans do not follow millisecond sleeps."""
UNDECIDED_S = 65.0
"""Longest wait of a rank for a decision; its thread aborts the proposal before that."""
FAIL_OPEN_S = 20.0
"""A committed hold ends when the coordinator has been silent for this long (the lease plus five seconds)."""


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
    want: Optional[DesiredLine] = None


GO = Act("go")


class Lease:
    """The authority of a single process: a want is in force until its lease expires."""

    marks_early = False
    """The marker is written when the process leaves, not when it saves."""
    alone = True
    """No other rank has to agree."""
    epoch_over: Callable[[], bool] = staticmethod(lambda: True)
    """Whether this boundary is the end of an epoch."""

    def __init__(self) -> None:
        self.want: Optional[DesiredLine] = None
        self.until = 0.0
        self.duty = Duty()
        self.saved: Optional[int] = None
        """want_gen of the last requested checkpoint that was tried."""
        self.saved_well = False

    def accept(self, want: DesiredLine, now: float) -> bool:
        """Take a want; True if it differs from the one in force."""
        before = self.in_force(now)
        self.want, self.until = want, now + want.lease_s
        share = want.duty if want.mode == "run" else None
        if share != self.duty.share:
            self.duty.set(share, now)
        return before is None or want.asked != before.asked

    def in_force(self, now: float) -> Optional[DesiredLine]:
        if self.want is not None and now >= self.until:
            self.want = None
            self.duty.set(None, now)
        return self.want

    def running(self, now: float) -> Optional[DesiredLine]:
        """The want to acknowledge while training goes on: not one that waits for the epoch's end."""
        want = self.in_force(now)
        return None if want is not None and want.epoch_end else want

    def asks_boundary(self, now: float, can_save: bool) -> bool:
        """True while the want in force needs the training thread to stop at a boundary."""
        want = self.in_force(now)
        return want is not None and self.stop_for(want, can_save) is not None

    def stop_for(self, want: DesiredLine, can_save: bool) -> Optional[str]:
        """The kind of stop that this want needs: leave, save, hold; None while training may go on."""
        if want.epoch_end and not self.epoch_over():
            return None
        untried = can_save and self.saved != want.want_gen
        if untried and (want.mode == "unload" or want.checkpoint):
            return "leave" if want.mode == "unload" else "save"
        return "hold" if want.mode != "run" else None

    def act(self, now: float, done: int, can_save: bool) -> Act:
        """The action at a boundary."""
        want = self.in_force(now)
        if want is None:
            return GO
        stop = self.stop_for(want, can_save)
        if stop in ("leave", "save"):
            return Act("save", want=want)
        if stop == "hold" and want.mode == "unload" and can_save and self.saved_well:
            return Act("leave", want=want)
        if stop == "hold":  # an unload that is not possible: hold the model instead
            return Act("hold", self.until, want)
        rest_s = self.duty.due(now)
        return Act("rest", min(now + rest_s, self.until), want) if rest_s > 0 else GO

    def outcome(self, want: DesiredLine, well: bool) -> None:
        """The checkpoint functions have run for this want."""
        self.saved, self.saved_well = want.want_gen, well

    def limit(self, now: float, can_save: bool) -> int:
        """The step count from which on the training thread must come to the gate."""
        want = self.in_force(now)
        due = self.duty.next_at() if want else None
        looks = (want is not None and want.epoch_end) or self.asks_boundary(now, can_save)
        return 0 if looks or (due is not None and now >= due) else FAR

    def wakes_at(self, now: float) -> Optional[float]:
        """When `limit` or `act` may change through the passage of time."""
        if self.in_force(now) is None:
            return None
        due = self.duty.next_at()
        return self.until if due is None or due <= now else min(self.until, due)


NOBODY = DesiredLine("unload", 0, 0.0)
"""Stands for the want of a rank without a supervisor of its own; its lease of 0 s is never acknowledged."""


class StopAt:
    """All ranks stop when `at` steps are done: to hold, to rest briefly, or to save and perhaps exit.

    state: asked -> commit -> run (over), or leave. `until` is when this rank stops waiting by itself.
    """

    def __init__(self, epoch: int, at: int, kind: str, not_before: Optional[str], until: float) -> None:
        self.epoch = epoch
        self.at = at
        self.kind = kind  # hold, rest, save, leave
        self.not_before = not_before
        self.state = "asked"
        self.until = until
        self.arrived = False
        self.saved: Optional[bool] = None

    @property
    def saves(self) -> bool:
        return self.kind in ("save", "leave")


class StepBarrier(Lease):
    """The authority of a rank, in place of its `lease`: a want is acted on only where all ranks have agreed."""

    alone = False

    def __init__(self, lease: Lease) -> None:
        vars(self).update(vars(lease))
        self.order: Optional[StopAt] = None

    @property
    def marks_early(self) -> bool:  # type: ignore[override]
        """An unwritable marker must count as a failed checkpoint while all ranks can still stay."""
        return self.order is not None and self.order.kind == "leave"

    def running(self, now: float) -> Optional[DesiredLine]:
        want = self.in_force(now)
        return want if want is not None and want.mode == "run" and not want.checkpoint else None

    def act(self, now: float, done: int, can_save: bool) -> Act:
        order = self.order
        if order is None or done < order.at or order.state == "run" or now >= order.until:
            return GO
        order.arrived = True
        if order.state == "asked":
            return Act("wait", order.until)
        want = self.in_force(now)
        if order.saves:
            meant = (want or NOBODY)._replace(not_before=order.not_before)
            if order.state == "leave":
                return Act("leave", want=meant)
            if order.saved is None:
                return Act("save", want=meant)
            return Act("wait", order.until)  # for the result of the other ranks' saving
        if order.kind == "hold" and want is not None and not self._fulfilled(want, can_save):
            want = None
        return Act("idle" if order.kind == "rest" else "hold", order.until, want)

    def _fulfilled(self, want: DesiredLine, can_save: bool) -> bool:
        """True if being held fulfils this want: not for an unload that is still to be tried, nor if the supervisor of
        this host did not ask for it."""
        return want.mode == "pause" or (want.mode == "unload" and (not can_save or self.saved == want.want_gen))

    def outcome(self, want: DesiredLine, well: bool) -> None:
        super().outcome(want, well)
        if self.order is not None:
            self.order.saved = well

    def limit(self, now: float, can_save: bool) -> int:
        return FAR if self.order is None else self.order.at

    def wakes_at(self, now: float) -> Optional[float]:
        return self.until if self.in_force(now) is not None else None
