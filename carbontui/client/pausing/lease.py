"""What a supervisor's want means at a boundary: it is in force while its lease lasts.

A process alone obeys its own supervisor; a rank of a distributed job does only what all ranks have agreed on, nothing
by itself (`StepBarrier` in holding.py).
"""

from typing import Any, Callable, NamedTuple, Optional

from carbontui.client.pausing.counter import FAR
from carbontui.client.pausing.wire import DesiredLine


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
        self.duty: Any = None
        """A Duty (holding.py), once a supervisor has asked for one."""
        self.saved: Optional[int] = None
        """want_gen of the last requested checkpoint that was tried."""
        self.saved_well = False

    def accept(self, want: DesiredLine, now: float) -> bool:
        """Take a want; True if it differs from the one in force."""
        before = self.in_force(now)
        self.want, self.until = want, now + want.lease_s
        share = want.duty if want.mode == "run" else None
        if self.duty is not None and share != self.duty.share:
            self.duty.set(share, now)
        return before is None or want.asked != before.asked

    def in_force(self, now: float) -> Optional[DesiredLine]:
        if self.want is not None and now >= self.until:
            self.want = None
            if self.duty is not None:
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
        rest_s = self.duty.due(now) if self.duty is not None else 0.0
        return Act("rest", min(now + rest_s, self.until), want) if rest_s > 0 else GO

    def outcome(self, want: DesiredLine, well: bool) -> None:
        """The checkpoint functions have run for this want."""
        self.saved, self.saved_well = want.want_gen, well

    def limit(self, now: float, can_save: bool) -> int:
        """The step count from which on the training thread must come to the gate."""
        want = self.in_force(now)
        due = self.duty.next_at() if want and self.duty else None
        looks = (want is not None and want.epoch_end) or self.asks_boundary(now, can_save)
        return 0 if looks or (due is not None and now >= due) else FAR

    def wakes_at(self, now: float) -> Optional[float]:
        """When `limit` or `act` may change through the passage of time."""
        if self.in_force(now) is None:
            return None
        due = self.duty.next_at() if self.duty else None
        return self.until if due is None or due <= now else min(self.until, due)
