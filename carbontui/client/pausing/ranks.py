"""All ranks stop at the same step: a two-phase commit on a step number, over torch.distributed's own store.

Rank 0 proposes a step a little ahead; every rank arms its counter and votes whether it is still before it; only if all
are does the step become the boundary. This adds no cost to a step, and no collective. Rank 0 has a connection of its
own, the others one for each node (node.py). Every connection is a descriptor of the process with the store: where ours
would leave the training too few, there is no agreement.

Ranks may count differently: one may have searched for a learning rate or warmed up a head alone. If some have stopped
at the step and the others wait for them inside a collective before it, all are at the same step of the training: that
gives the difference of their counts, and the next proposal names each rank's own number.

Keys below `carbontui/<run id>/<restart>/`, e the number of the proposal, r a rank: prop/e/r, vote/e/r, dec/e, at/e/r,
far/e/r, saved/e/r, go/e, bye/e/r, beat/e, run/e. Decisions are written only with compare_set, so the first writer
wins.
"""

import json
import math
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional

from carbontui.client import marker
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.holding import FAIL_OPEN_S, UNDECIDED_S, Duty, StepBarrier, StopAt
from carbontui.client.pausing.node import Hub, NodeStore, joined
from carbontui.client.pausing.store import Lost, Store, descriptors_suffice, open_store

LEAD_S, LEAD_RANK_S = 0.02, 0.0004
"""A proposal lies at least this far ahead, and this further for each rank: the time the votes need to arrive."""
VOTE_S, DECISION_S = 2.0, 60.0
ARRIVE_S, ARRIVE_STEPS = 30.0, 10
STALL_S, STALL_STEPS = 2.0, 4
"""If some ranks are at the step and the others have not moved for this long (seconds, steps), these wait for them."""
POLL_S = 0.5
LATE_MAX = 3
"""After this many consecutive failed proposals it is reported, and retried only occasionally."""
SAVE_S, BEAT_S, BYE_S = 3600.0, 3.0, 5.0
NAP_S = (0.002, 0.05)
"""First and longest sleep between two polls for a key; of more than RANKS_POLLING ranks the longest grows with them."""
RANKS_POLLING = 64
NAP_MOST_S = 1.0
ALONE_TRIES = 5
"""A store that does not open this often is reported; it is tried again."""
STOP_S, REST_PERIOD_S = 5.0, 10.0
RETRY_S = (5.0, 60.0)
"""First and longest wait after a proposal that some rank did not answer."""


class Ranks:
    """The thread of one rank: follows proposals, and on rank 0 makes them."""

    def __init__(
        self,
        gate: Gate,
        rank: int,
        world: int,
        speed: Callable[[], Optional[float]],
        opener: Callable[..., Store] = open_store,
    ) -> None:
        self.gate, self.rank, self.world, self.speed, self.opener = gate, rank, world, speed, opener
        self.barrier: StepBarrier
        self.duty = Duty(REST_PERIOD_S)
        self.margin = 1
        self.steps_per_s = 0.0
        """As last known: an order ends the measurement, and a proposal made without one comes too late."""
        self.retry_s = RETRY_S[0]
        self.offsets: Dict[int, int] = {}
        """A rank's count minus rank 0's at the same step of the training."""
        self.lates = 0
        self.stopping = False
        self.awaited = ""
        """The key this thread waits for in C++; private, so that stop() may use it to wake the thread."""
        self.store: Any = None
        self.hub: Optional[Hub] = None
        self.nap_most_s = min(NAP_MOST_S, NAP_S[1] * max(1.0, world / RANKS_POLLING))
        self.thread = threading.Thread(target=self._run, name="carbontui-ranks", daemon=True)

    def start(self) -> None:
        with self.gate.cond:
            self.gate.authority = self.barrier = StepBarrier(self.gate.authority)
        self.thread.start()

    def stop(self) -> None:
        """Call before the interpreter exits: a thread that returns from C++ after that aborts the process."""
        with self.gate.cond:
            self.stopping = True
            self.gate.cond.notify_all()
        if self.store is not None and self.thread.is_alive():  # one that has lost the store has ended
            self.store.wake(self.opener, self.awaited, self.thread.is_alive)
        self.thread.join(STOP_S)
        if self.hub is not None:
            self.hub.stop(self.opener)

    def _run(self) -> None:
        if not descriptors_suffice(self.rank, self.world):
            self._apart("descriptors", f"{self.world} ranks need more descriptors than `ulimit -n` leaves the training")
            return
        for tries, wait_s in enumerate((0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 0.0), start=1):
            try:
                self.store, self.hub = joined(self.rank, self.opener, self.nap_most_s)
                break
            except Lost:
                if tries == ALONE_TRIES:
                    self._apart("apart", "they share no torch.distributed store")
                self._pause(wait_s)
            if self.stopping:
                return
        else:
            return
        if self.gate.facts.pop("cannot_hold", None):
            self.gate.on_change()
        epoch = 0
        try:
            while True:
                if self.rank == 0:
                    self._lead(epoch)
                else:
                    self._follow(epoch)
                epoch += 1
        except Exception:  # no store, no pause: release the training thread and stay inactive
            self._clear()

    def _apart(self, code: str, why: str) -> None:
        """These ranks do not agree on anything: no want is obeyed, and the supervisor is told."""
        if self.rank == 0:
            sys.stderr.write(f"carbontui: these ranks cannot be held together: {why}; training goes on\n")
        with self.gate.cond:
            self.gate.facts["cannot_hold"] = code
        self.gate.on_change()

    # --- every rank --------------------------------------------------------------------------------------------

    def _arm(self, order: StopAt) -> bool:
        """Set the boundary first, then check: True if this rank is still before it."""
        with self.gate.cond:
            self.barrier.order = order
            self.gate.counter.arm(order.at)
            return self.gate.counter.done() < order.at

    def _clear(self) -> None:
        with self.gate.cond:
            order, self.barrier.order = self.barrier.order, None
            if order is not None:
                if order.kind == "leave" and order.saved is not None and order.state != "leave":
                    marker.remove(marker.ours())
                order.state = "run"
            self.gate.cond.notify_all()
        self.gate.on_change()

    def _turn(self, order: StopAt, state: str) -> None:
        """The order has come to this state, or is still in it: its rank waits on."""
        with self.gate.cond:
            order.state, order.until = state, self.gate.clock() + FAIL_OPEN_S
            self.gate.cond.notify_all()

    def _until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for the condition at most this long; raises Lost when the process ends."""
        with self.gate.cond:
            self.gate.cond.wait_for(lambda: self.stopping or true(), timeout_s)
            if self.stopping:
                raise Lost("the process ends")
            return true()

    def _pause(self, timeout_s: float) -> None:
        with self.gate.cond:
            self.gate.cond.wait_for(lambda: self.stopping, timeout_s)

    def _get(self, key: str, timeout_s: float) -> Optional[str]:
        """The value, waited for at the node's socket, else polled at increasing intervals; None on timeout."""
        if isinstance(self.store, NodeStore):
            return self.store.wait_for(key, timeout_s)
        end = self.gate.clock() + timeout_s
        for _ in self._polls():
            value: Optional[str] = self.store.get(key)
            if value is not None or self.gate.clock() >= end:
                return value
        return None

    def _polls(self) -> Iterator[None]:
        """For ever, at increasing intervals."""
        nap_s = NAP_S[0]
        while True:
            yield
            self._until(lambda: False, nap_s := min(self.nap_most_s, nap_s * 1.5))

    def _follow(self, e: int) -> None:
        with self.gate.cond:
            if self.stopping:
                raise Lost("the process ends")
            self.awaited = f"prop/{e}/{self.rank}"
        body = json.loads(self.store.take(self.awaited))
        self.awaited = ""
        order = StopAt(e, body["at"], body["kind"], body["not_before"], self.gate.clock() + UNDECIDED_S)
        self.store.set(f"vote/{e}/{self.rank}", "yes" if self._arm(order) else "no")
        decision = self._get(f"dec/{e}", DECISION_S) or self.store.first(f"dec/{e}", "abort")
        if decision == "commit":
            self._turn(order, "commit")
            self._on_want(e, order)
        self._clear()

    def _on_want(self, e: int, order: StopAt) -> None:
        """Committed: report when this rank has arrived, and the result of saving; wait for permission to continue."""
        said_at = said_saved = False
        said_far = -1
        beat, received = None, self.gate.clock()
        while not self.store.has(f"run/{e}"):
            if not said_at and order.arrived:
                said_at = True
                self.store.set(f"at/{e}/{self.rank}", "1")
            far = self.gate.counter.done()
            if not said_at and far != said_far:
                said_far = far
                self.store.set(f"far/{e}/{self.rank}", str(far))
            if order.saves and not said_saved and order.saved is not None:
                said_saved = True
                self.store.set(f"saved/{e}/{self.rank}", "ok" if order.saved else "failed")
            if said_saved and order.kind == "leave" and self.store.has(f"go/{e}"):
                self.store.set(f"bye/{e}/{self.rank}", "1")
                self._turn(order, "leave")
                self._until(lambda: False, SAVE_S)
            if said_at and (said_saved or not order.saves):
                self._get(*((f"go/{e}", 2.0) if order.kind == "leave" else (f"run/{e}", BEAT_S)))
            else:
                self._until(lambda: order.arrived and (not order.saves or order.saved is not None), 0.25)
            now = self.gate.clock()
            if self.store.has(f"beat/{e}"):
                pulse = self._get(f"beat/{e}", 1.0)
                if pulse != beat:
                    beat, received = pulse, now
                    self._turn(order, order.state)
            if now - received > FAIL_OPEN_S:
                self.store.first(f"run/{e}", "silence")

    # --- rank 0 ------------------------------------------------------------------------------------------------

    def _asked(self) -> Optional[str]:
        """The kind of stop that rank 0's supervisor wants now, or None."""
        now = self.gate.clock()
        want = self.barrier.in_force(now)
        share = want.duty if want is not None and want.mode == "run" else None
        if share != self.duty.share:
            self.duty.set(share, now)
        if want is None:
            return None
        return self.barrier.stop_for(want, self.gate.can_save()) or ("rest" if self.duty.due(now) > 0 else None)

    def _lead(self, e: int) -> None:
        kind = None
        while kind is None:
            with self.gate.cond:
                if self.stopping:
                    raise Lost("the process ends")
                kind = self._asked()
                self.steps_per_s = self.speed() or self.steps_per_s
                if kind is None:
                    due = self.duty.next_at()
                    self.gate.cond.wait(1.0 if due is None else min(1.0, max(0.001, due - self.gate.clock())))
        others = range(1, self.world)
        with self.gate.cond:
            want = self.barrier.want
            ahead = max(2, math.ceil((LEAD_S + LEAD_RANK_S * self.world) * self.steps_per_s)) + self.margin
            at = self.gate.counter.done() + ahead
            not_before = want.not_before if want is not None else None
            order = StopAt(e, at, kind, not_before, self.gate.clock() + UNDECIDED_S)
        steps = {r: {"at": at + self.offsets.get(r, 0), "kind": kind, "not_before": not_before} for r in others}
        self.store.put({f"prop/{e}/{r}": json.dumps(own) for r, own in steps.items()})
        yes = self._arm(order)
        end, ballots = self.gate.clock() + VOTE_S, [f"vote/{e}/{r}" for r in others]
        for _ in self._polls():
            if self.store.has(*ballots) or self.gate.clock() >= end:
                break
        votes = self.store.values(ballots)
        agreed = yes and all(vote == "yes" for vote in votes)
        if self.store.first(f"dec/{e}", "commit" if agreed else "abort") == "commit":
            self._turn(order, "commit")
            came = self._hold(e, order, others)
            self.margin = max(1, self.margin // 2)
            self._clear()
            if came:
                self.lates, self.retry_s = 0, RETRY_S[0]
                self.gate.facts.pop("cannot_hold", None)
            else:
                self._late()
        else:
            self._clear()
            self.margin = min(1 << 20, self.margin * 2)
            if None in votes:  # a rank does not answer: do not stop the others repeatedly for nothing
                self._pause(self.retry_s)
                self.retry_s = min(RETRY_S[1], self.retry_s * 2)
        if e > 0 and None not in votes:  # every rank is past the previous proposal
            names = ("prop", "vote", "at", "far", "saved", "bye")
            old = [f"{name}/{e - 1}" for name in ("dec", "go", "beat", "run")]
            self.store.forget(*old, *(f"{name}/{e - 1}/{r}" for name in names for r in others))

    def _hold(self, e: int, order: StopAt, others: range) -> bool:
        """Committed: hold until the want ends or the lease is lost; False if a rank does not arrive."""
        steps_s = ARRIVE_STEPS / (self.speed() or math.inf)
        word = "late"
        arrived = self._gather(e, order, lambda: order.arrived, others, "at", max(ARRIVE_S, steps_s))
        wanted = arrived or self._asked() is not None
        if arrived:
            word = "go"
            if order.saves:
                done = self._gather(e, order, lambda: order.saved is not None, others, "saved", SAVE_S)
                theirs = set(self.store.values([f"saved/{e}/{r}" for r in others]))
                well = done and bool(order.saved) and theirs <= {"ok"}
                self.barrier.saved_well = well
                if well and order.kind == "leave":
                    self._leave(e, order, others)
            elif order.kind == "rest":
                self._rest(e, order)
            else:
                self._stand(e, order, lambda: self._asked() != "hold")
        self.store.first(f"run/{e}", word)
        return arrived or not wanted

    def _late(self) -> None:
        """Not every rank arrived. With their counts known the next proposal may fit; if this repeats, report it."""
        self.lates += 1
        if self.lates < LATE_MAX:
            return
        if self.lates == LATE_MAX:
            sys.stderr.write("carbontui: the ranks of this job do not reach a common step; training continues\n")
        with self.gate.cond:
            self.gate.facts["cannot_hold"] = "ranks"
            asked = self.barrier.want and self.barrier.want.want_gen
        self.gate.on_change()
        with self.gate.cond:
            self.gate.cond.wait_for(
                lambda: self.stopping or (now := self.barrier.want) is None or now.want_gen != asked, self.retry_s
            )
        self.retry_s = min(RETRY_S[1], self.retry_s * 2)

    def _gather(
        self, e: int, order: StopAt, mine: Callable[[], bool], others: range, key: str, timeout_s: float
    ) -> bool:
        """Wait for this rank and the keys of the others; False on timeout or if the stop is no longer wanted."""
        end, pulse_at = self.gate.clock() + timeout_s, 0.0
        keys = [f"{key}/{e}/{r}" for r in others]
        stands: List[int] = []
        preview_at = moved_at = self.gate.clock()
        for _ in self._polls():
            if mine() and (not keys or self.store.has(*keys)):
                break
            now = self.gate.clock()
            if now >= end or (not order.arrived and self._asked() is None):
                return False
            if now >= pulse_at:
                pulse_at = now + BEAT_S
                self._pulse(e, order)
            if key == "at" and now >= preview_at:
                preview_at, counts = now + POLL_S, self._counts(e, order, others)
                if counts != stands:
                    stands, moved_at = counts, now
                elif now - moved_at >= max(STALL_S, STALL_STEPS / (self.speed() or math.inf)) and (
                    order.arrived or any(self.store.has(f"at/{e}/{r}") for r in others)
                ):
                    # no rank moves, and some are at the step: the others wait for them
                    self.offsets.update((r, counts[r] - counts[0]) for r in others if counts[r] >= 0)
                    return False
        return True

    def _counts(self, e: int, order: StopAt, others: range) -> List[int]:
        """Every rank's count: its own step if it has arrived there; -1 if it has not reported."""
        theirs = [
            order.at + self.offsets.get(r, 0)
            if self.store.has(f"at/{e}/{r}")
            else int(self.store.get(f"far/{e}/{r}") or -1)
            for r in others
        ]
        return [self.gate.counter.done(), *theirs]

    def _pulse(self, e: int, order: StopAt) -> None:
        self.store.set(f"beat/{e}", str(self.gate.clock()))
        self._turn(order, order.state)

    def _rest(self, e: int, order: StopAt) -> None:
        now = self.gate.clock()
        end = now + self.duty.due(now)
        self.duty.rest(now)
        self._stand(e, order, lambda: self._asked() in ("hold", "leave", "save") or self.duty.share is None, end)
        self.duty.wake(self.gate.clock())

    def _stand(self, e: int, order: StopAt, over: Callable[[], bool], end: float = math.inf) -> None:
        """All ranks stand until this is so, at the longest until `end`."""
        while not over() and self.gate.clock() < end:
            self._pulse(e, order)
            self._until(over, min(BEAT_S, max(0.0, end - self.gate.clock())))

    def _leave(self, e: int, order: StopAt, others: range) -> None:
        """All ranks have saved: tell them, wait for their confirmations, then exit, which releases the store."""
        self.store.set(f"go/{e}", "leave")
        end = self.gate.clock() + BYE_S
        for r in others:
            self._get(f"bye/{e}/{r}", max(0.001, end - self.gate.clock()))
        self._turn(order, "leave")
        self._until(lambda: False, SAVE_S)
