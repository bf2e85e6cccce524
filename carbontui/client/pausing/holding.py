"""What the training thread does at the gate where it may not go on: it is held, rests, saves or exits; and where it may
not, if it is a rank of a distributed job. Nothing of this is loaded before it is asked for."""

import os
import sys
import threading
import traceback
from typing import Any, Optional

from carbontui.client import marker
from carbontui.client.pausing.counter import FAR
from carbontui.client.pausing.lease import GO, Act, Lease
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


def perform(gate: Any, act: Act) -> None:
    """Do what is asked at this boundary, if it is not to train on."""
    if act.kind in ("hold", "idle", "wait"):
        _hold(gate, act)
    elif act.kind == "rest":
        _rest(gate, act)
    elif act.kind == "save" and act.want is not None:
        _save(gate, act.want)
    elif act.kind == "leave" and act.want is not None:
        _leave(gate, act.want)


def _hold(gate: Any, act: Act) -> None:
    with gate.cond:
        now = gate.clock()
        if gate.authority.act(now, gate.counter.done(), gate.can_save()) != act:
            return
        if act.kind == "hold":
            gate._set_state("paused")
        if act.kind != "wait":
            gate._ack(act.want)
        gate.cond.notify_all()  # the ranks thread may wait for this rank to arrive
        # the wait ends with the lease even if the link thread is gone
        gate.cond.wait(max(0.0, act.until - now))


def _rest(gate: Any, act: Act) -> None:
    with gate.cond:
        duty = gate.authority.duty
        now = gate.clock()
        end = now + duty.due(now)
        duty.rest(now)
        gate._ack(act.want)
        try:
            gate.cond.wait_for(
                lambda: duty.share is None or gate.clock() >= end or gate.clock() >= act.until,
                max(0.0, min(end, act.until) - now),
            )
        finally:
            duty.wake(gate.clock())


def _save(gate: Any, want: DesiredLine) -> None:
    gate._set_state("checkpointing")
    gate.saving, well, before_b = True, True, _written()
    try:
        for saver in list(gate.savers):
            saver()
        if gate.authority.marks_early:
            marker.write(gate.step_total(), want.not_before)
    except Exception:
        well = False
        what_now = "ending" if gate.dying else "training goes on"
        sys.stderr.write(f"carbontui: the checkpoint function failed; {what_now}\n" + traceback.format_exc())
        if gate.dying:
            gate.die(gate.dying)
    finally:
        gate.saving = False
        with gate.cond:
            gate.authority.outcome(want, well)
            if well and before_b is not None:
                gate.facts["saved_b"] = (_written() or before_b) - before_b


def _written() -> Optional[int]:
    """Bytes that this process has passed to write() so far; None without /proc."""
    try:
        with open("/proc/self/io") as file:
            return next(int(line[6:]) for line in file if line.startswith("wchar:"))
    except (OSError, ValueError, StopIteration):
        return None


def _leave(gate: Any, want: DesiredLine) -> None:
    try:
        marker.write(gate.step_total(), want.not_before)
    except OSError as error:
        if not gate.authority.marks_early:
            sys.stderr.write(f"carbontui: the resume marker cannot be written ({error}); not leaving\n")
            with gate.cond:
                gate.authority.outcome(want, False)
            return
    gate._set_state("unloading")
    gate._ack(want)
    gate.on_leave()
    gate.depart()


def depart(gate: Any) -> None:
    """Exit with code 0, from any training thread."""
    gate.leaving = True
    if gate.dying:
        gate.die(gate.dying)
    if threading.current_thread() is not threading.main_thread():  # SystemExit would end only this thread
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    raise SystemExit(0)


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
    """The authority of a rank, in place of its `lease`: a want is acted on only where all ranks have agreed. The ranks
    thread (ranks.py) and the training thread share it, under the gate's lock."""

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
