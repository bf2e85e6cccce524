"""The gate at which the training thread waits, saves or exits on behalf of the supervisor.

The training thread comes here only when its counter sends it (see counter.py). The link thread delivers wants; the
authority decides what they mean at a boundary: `Lease` (one process obeys its own supervisor) or, in a
distributed job, `StepBarrier` (all ranks agree on a step first).
"""

import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from carbontui.client.detection.places import watch
from carbontui.client.pausing import late
from carbontui.client.pausing.counter import FAR, Counter
from carbontui.client.pausing.lease import Act, Lease
from carbontui.client.pausing.wire import DesiredLine


class Gate:
    """One per process. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        lock = threading.RLock()
        self.cond = threading.Condition(lock)
        self.explicit = Counter(self._explicit, lock, clock, watch.stepped)
        self.hooked = Counter(self._boundary, lock, clock, watch.stepped)
        self.savers: List[Callable[[], Any]] = []
        self.framework = 0
        """Running framework loops that report the end of a step themselves: the optimizer hook is inactive."""
        self.restart()

    def restart(self) -> None:
        """Count from 0, for a supervisor that is still to be found; of the script, its checkpoint functions stay."""
        self.explicit.restart()
        self.hooked.restart()
        self.counter = self.hooked
        self.authority: Any = Lease()
        self.authority.epoch_over = lambda: (self.epoch() or (1, 1))[0] == 0
        self.epoch_left: Callable[[], Optional[Tuple[int, int]]] = lambda: watch.leading.left(self.counter.done())
        """Steps to the end of the epoch, and of a whole one; a framework's own count replaces the loader's."""
        self.facts: Dict[str, Any] = {}
        """Values from report(): loss, epoch, total, metrics, and start_step."""
        self.figures: Dict[str, Any] = {}
        """The job's account as last sent by the supervisor; replaced, never mutated."""
        self.state = "running"
        self.held_s = 0.0
        """Seconds spent held so far, excluded from the step rate."""
        self.asides = 0
        """Boundaries that are not steps, such as those of a second optimizer."""
        self.acked: Optional[DesiredLine] = None  # without its lease
        self.seen_gen = 0
        self.connected = False
        self.on_first: Optional[Callable[[], None]] = None
        """Called once, by `meet()`."""
        self.on_boundary: Optional[Callable[[], None]] = None
        """Called whenever the counter sends the training thread here, before anything else."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after every change that should be sent to the supervisor at once."""
        self.on_ack: Callable[[int, int], None] = lambda gen, step: None
        self.on_leave: Callable[[], None] = lambda: None
        """Makes sure that the last message reaches the supervisor."""
        self.quiesce: Callable[[], None] = lambda: None
        """Waits for work in flight on the device."""
        self.capturing: Callable[[], bool] = lambda: False
        """True while a CUDA graph is recorded: waiting for the device is not allowed then."""
        self.enabled = True
        self.leaving = False
        self.ending = False
        """This process exits at its next boundary, without a checkpoint."""
        self.dying = 0
        """The signal that ends this process once its checkpoint is written; 0: none received."""
        self.die: Callable[[int], None] = lambda number: None
        self._held_since: Optional[float] = None
        self.saving = False
        """The checkpoint functions run, for an unload or because the process is to end."""
        self.new_peer = True
        """Just connected: the present state is sent again."""

    # --- the training thread ---------------------------------------------------------------------------------

    def _explicit(self) -> None:
        """The script calls step() itself: from its first call on only these count, and the hook's count is dropped."""
        if self.counter is not self.explicit:
            with self.cond:
                self.counter = self.explicit
                self.hooked.arm(FAR)
        self._boundary()

    def _boundary(self) -> None:
        try:
            self._on_boundary()
        except Exception:  # a fault of ours must not affect the training: let it run, the next want comes here again
            self.counter.arm(FAR)

    def _on_boundary(self) -> None:
        if not self.enabled:
            self.explicit.arm(FAR)
            self.hooked.arm(FAR)
            return
        self.meet()
        if self.saving or self.capturing():  # a step inside a checkpoint function is not a boundary
            return
        if self.on_boundary is not None:
            self.on_boundary()
        if self.leaving:
            raise SystemExit(0)
        try:
            self._on_want()
        finally:
            if not self.leaving:
                self._set_state("running")

    def meet(self) -> None:
        """Start the link, once: at the first step, or where the script asks for its level before."""
        first, self.on_first = self.on_first, None
        if first is not None:
            first()

    def _on_want(self) -> None:
        while True:
            if self.ending:
                self.on_leave()
                self.depart()
            with self.cond:
                now = self.clock()
                act: Act = self.authority.act(now, self.counter.done(), self.can_save())
                if act.kind == "go":
                    self._ack(self.authority.running(now))
                    self.counter.arm(self.authority.limit(now, self.can_save()))
                    return
                fresh = self.state != "paused"
            if fresh and act.kind in ("hold", "rest", "idle"):
                self.quiesce()  # launches run ahead of the device: it is idle only once they are done
            from carbontui.client.pausing.holding import perform  # loaded before, with the want that asks for it

            perform(self, act)

    def end(self) -> None:
        """Exit at the next boundary, without a checkpoint."""
        with self.cond:
            self.ending = True
            self.counter.arm(0)
            self.cond.notify_all()

    def depart(self) -> None:
        """Exit with code 0, from any training thread."""
        from carbontui.client.pausing.holding import depart

        depart(self)

    def _ack(self, want: Optional[DesiredLine]) -> None:
        if want is not None and want.lease_s > 0 and want.asked != self.acked:
            self.acked = want.asked
            self.on_ack(want.want_gen, self.step_total())

    def _set_state(self, state: str) -> None:
        with self.cond:
            if state == self.state:
                return
            now = self.clock()
            if self._held_since is not None:
                self.held_s += now - self._held_since
                if self.authority.duty is not None:
                    self.authority.duty.away(now)
            self._held_since = None if state == "running" else now
            if self.state == "paused":
                self.acked = None  # a new pause is acknowledged anew
            self.state = state
        self.on_change()

    # --- the link thread --------------------------------------------------------------------------------------

    def accept(self, want: DesiredLine) -> None:
        """A want has arrived."""
        with self.cond:
            if self.dying:
                return
            if want.mode != "run" or want.checkpoint or want.duty is not None:
                holding = late("holding")  # here, and not where the training waits
                self.authority.duty = self.authority.duty or holding.Duty()
            changed = self.authority.accept(want, self.clock())
            self.seen_gen = want.want_gen
            if self.new_peer and want.asked == self.acked:
                self.on_ack(want.want_gen, self.step_total())  # was sent to another supervisor, or never arrived
            self.new_peer = False
            if changed:
                self.counter.arm(0)  # even a plain run: it is acknowledged at the next boundary
                self.cond.notify_all()
        if changed:
            self.on_change()

    def tick(self) -> Optional[float]:
        """Apply the passage of time; returns the clock time of the next tick, or None."""
        with self.cond:
            now = self.clock()
            had = self.authority.want is not None
            at: Optional[float] = self.authority.wakes_at(now)
            if had and self.authority.want is None:
                self.cond.notify_all()
            if self.authority.limit(now, self.can_save()) == 0:
                self.counter.arm(0)
            return at

    def shown_state(self) -> str:
        """The state for the wire: `asked` while a boundary is wanted and has not been reached."""
        with self.cond:
            if self.state == "running" and self.authority.asks_boundary(self.clock(), self.can_save()):
                return "asked"
            return self.state

    def running_s(self) -> float:
        """The gate's clock minus the time spent held."""
        with self.cond:
            now = self.clock()
            return now - self.held_s - (now - self._held_since if self._held_since is not None else 0.0)

    # --- any thread -------------------------------------------------------------------------------------------

    def boundaries(self) -> int:
        """Points where this process could have been held: its steps and those of its other optimizers."""
        return self.counter.done() + self.asides

    def can_save(self) -> bool:
        """Whether a checkpoint may be taken. Not at the hook's first boundary: it lies inside optimizer.step(), and a
        script that calls step() itself should be stopped there instead."""
        where = self.counter is self.explicit or self.framework or self.counter.done() > 1
        return bool(self.savers) and bool(where)

    def epoch(self) -> Optional[Tuple[int, int]]:
        """Steps to the end of the present epoch, and of a whole one. None where that is not known, or does not matter:
        the data goes on in the same order anyway, or several ranks would have to agree on it."""
        if self.facts.get("data_order") == "same" or not self.savers or not self.authority.alone:
            return None
        try:
            return self.epoch_left()
        except Exception:  # no loader, or a loader or a framework that is not as it was known
            return None

    def starts_at(self, step: int) -> None:
        """The training goes on from this step of the whole."""
        with self.cond:
            self.facts["start_step"], self.facts["start_known"] = step - self.counter.done(), True

    def step_total(self) -> int:
        """Steps of the whole training: those before this process started plus its own."""
        start: Union[int, Any] = self.facts.get("start_step", 0)
        return int(start) + self.counter.done()

    def level(self) -> Optional[str]:
        """run, duty, pause or unload as requested; None without a supervisor."""
        with self.cond:
            want = self.authority.in_force(self.clock()) if self.enabled else None
            if want is None:
                return "run" if self.enabled and self.connected else None
            if want.epoch_end and self.state == "running":
                return "run"
            return "duty" if want.mode == "run" and want.duty else str(want.mode)
