"""What a rank of a distributed job does at a boundary: only what all ranks have agreed on, nothing by itself.

Holds the data shared by the ranks thread (ranks.py) and the training thread, under the gate's lock.
"""

from __future__ import annotations

from typing import Optional

from carbontui.client.pausing.counter import FAR
from carbontui.client.pausing.lease import GO, Act, Lease
from carbontui.client.pausing.wire import Want

UNDECIDED_S = 65.0
"""Longest wait of a rank for a decision; its thread aborts the proposal before that."""
FAIL_OPEN_S = 20.0
"""A committed hold ends when the coordinator has been silent for this long (the lease plus five seconds)."""
NOBODY = Want("unload", 0, 0.0)
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


class Accord(Lease):
    """The authority of a rank, in place of its `lease`: a want is acted on only where all ranks have agreed."""

    def __init__(self, lease: Lease) -> None:
        vars(self).update(vars(lease))
        self.order: Optional[StopAt] = None

    @property
    def marks_early(self) -> bool:  # type: ignore[override]
        """An unwritable marker must count as a failed checkpoint while all ranks can still stay."""
        return self.order is not None and self.order.kind == "leave"

    def running(self, now: float) -> Optional[Want]:
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
        if order.kind == "hold" and want is not None and not self._held(want, can_save):
            want = None
        return Act("idle" if order.kind == "rest" else "hold", order.until, want)

    def _held(self, want: Want, can_save: bool) -> bool:
        """True if being held fulfils this want: not for an unload that is still to be tried, nor if the supervisor of
        this host did not ask for it."""
        return want.mode == "pause" or (want.mode == "unload" and (not can_save or self.saved == want.want_gen))

    def outcome(self, want: Want, well: bool) -> None:
        super().outcome(want, well)
        if self.order is not None:
            self.order.saved = well

    def limit(self, now: float, can_save: bool) -> int:
        return FAR if self.order is None else self.order.at

    def wakes_at(self, now: float) -> Optional[float]:
        return self.until if self.in_force(now) is not None else None
