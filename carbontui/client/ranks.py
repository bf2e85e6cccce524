"""All ranks stop at the same step: a two-phase commit on a step number, over torch.distributed's own store.

Rank 0 proposes a step a little ahead; every rank arms its counter and votes whether it is still before it; only if all
are does the step become the boundary. Nothing is added to a step, and no collective. Each rank's thread has a
connection of its own, because a blocking get() holds the connection against every other thread.

Keys below `carbontui/<run id>/<restart>/`, e the number of the proposal, r a rank: prop/e/r, vote/e/r, dec/e, at/e/r,
saved/e/r, go/e, bye/e/r, beat/e, run/e. Decisions are written by compare_set alone, so the first writer is right.
"""

from __future__ import annotations

import json
import math
import os
import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional

from carbontui.client import device
from carbontui.client.accord import FAIL_OPEN_S, UNDECIDED_S, Accord, Order
from carbontui.client.duty import Duty
from carbontui.client.gate import Gate

LEAD_S = 0.02
"""A proposal lies at least this far ahead: the time the votes need to come in."""
VOTE_S = 2.0
DECISION_S = 60.0
ARRIVE_S = 30.0
ARRIVE_STEPS = 10
SAVE_S = 3600.0
BEAT_S = 3.0
BYE_S = 5.0
NAP_S = (0.002, 0.05)
"""First and longest nap between two looks at a key that is about to come."""
STOP_S = 5.0
REST_PERIOD_S = 10.0
RETRY_S = (5.0, 60.0)
"""First and longest wait after a proposal that some rank did not answer at all."""


class Lost(Exception):
    """The store does not answer any more; a process without it never holds."""


class Store:
    """Our own connection to the job's store. Values are text; waiting releases the interpreter lock."""

    def __init__(self, store: Any, prefix: str) -> None:
        self.store, self.prefix = store, prefix

    def take(self, key: str) -> str:
        """Wait for a value without an end. Raises Lost.

        Only for the long wait: one that runs out writes a warning into the log of the training.
        """
        self._try(lambda: self.store.wait([self.prefix + key], timedelta(days=3650)))
        return self._try(lambda: self.store.get(self.prefix + key)).decode()  # type: ignore[no-any-return]

    def get(self, key: str) -> Optional[str]:
        """The value, or None while there is none. Raises Lost."""
        if not self.has(key):
            return None
        return self._try(lambda: self.store.get(self.prefix + key)).decode()  # type: ignore[no-any-return]

    def set(self, key: str, value: str) -> None:
        self._try(lambda: self.store.set(self.prefix + key, value))

    def has(self, *keys: str) -> bool:
        return bool(self._try(lambda: self.store.check([self.prefix + key for key in keys])))

    def first(self, key: str, value: str) -> str:
        """Write unless somebody has; returns what stands."""
        return self._try(lambda: self.store.compare_set(self.prefix + key, "", value)).decode()  # type: ignore[no-any-return]

    def forget(self, *keys: str) -> None:
        for key in keys:
            self._try(lambda key=key: self.store.delete_key(self.prefix + key))  # type: ignore[misc]

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RuntimeError as error:
            raise Lost(str(error)) from None


def open_store() -> Store:
    """A private connection to the store of this job. Raises Lost when there is none (yet)."""
    run, restart = os.environ.get("TORCHELASTIC_RUN_ID", "run"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"carbontui/{run}/{restart}/"
    try:
        dist = device.distributed()
        address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
        torch = device.loaded_torch()
        if torch is None:
            raise Lost("no torch")
        if address and port.isdigit():
            tcp = torch.distributed.TCPStore
            return Store(
                tcp(address, int(port), is_master=False, timeout=timedelta(seconds=30), wait_for_workers=False), prefix
            )
        if dist is not None:
            return Store(dist.distributed_c10d._get_default_store().clone(), prefix)
    except (RuntimeError, AttributeError, ValueError, TypeError) as error:
        raise Lost(str(error)) from None
    raise Lost("no store")


class Ranks:
    """The thread of one rank: it follows proposals, and on rank 0 makes them."""

    def __init__(
        self,
        gate: Gate,
        rank: int,
        world: int,
        speed: Callable[[], Optional[float]],
        opener: Callable[[], Store] = open_store,
    ) -> None:
        self.gate, self.rank, self.world, self.speed, self.opener = gate, rank, world, speed, opener
        self.accord = Accord(gate.authority)
        self.duty = Duty(REST_PERIOD_S)
        self.margin = 1
        self.retry_s = RETRY_S[0]
        self.stopping = False
        self.awaited = ""
        """The key this thread waits for in C++; ours alone, so that stop() may ring with it."""
        self.store: Store
        self.bell: Store
        self.thread = threading.Thread(target=self._run, name="carbontui-ranks", daemon=True)

    def start(self) -> None:
        with self.gate.cond:
            self.gate.authority = self.accord
        self.thread.start()

    def stop(self) -> None:
        """Before the interpreter ends: a thread that comes back from C++ after that aborts the process."""
        with self.gate.cond:
            self.stopping = True
            self.gate.cond.notify_all()
        if self.awaited:
            try:
                self.bell.set(self.awaited, "{}")
            except Lost:  # then the thread has lost it too
                pass
        self.thread.join(STOP_S)

    def _run(self) -> None:
        for wait_s in (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 0.0):
            try:
                self.store, self.bell = self.opener(), self.opener()
                break
            except Lost:
                self._pause(wait_s)
            if self.stopping:
                return
        else:
            return
        epoch = 0
        try:
            while True:
                if self.rank == 0:
                    self._lead(epoch)
                else:
                    self._follow(epoch)
                epoch += 1
        except Exception:  # no store, no pause: let the training thread go and stay out of its way
            self._clear()

    # --- every rank --------------------------------------------------------------------------------------------

    def _arm(self, order: Order) -> bool:
        """Set the boundary first, then look: True when this rank is still before it."""
        with self.gate.cond:
            self.accord.order = order
            self.gate.counter.arm(order.at)
            return self.gate.counter.done() < order.at

    def _clear(self) -> None:
        with self.gate.cond:
            order, self.accord.order = self.accord.order, None
            if order is not None:
                if order.kind == "leave" and order.saved is not None and order.state != "leave":
                    self.gate.on_unmark()
                order.state = "run"
            self.gate.cond.notify_all()
        self.gate.on_change()

    def _turn(self, order: Order, state: str) -> None:
        with self.gate.cond:
            order.state = state
            order.until = self.gate.clock() + FAIL_OPEN_S
            self.gate.cond.notify_all()

    def _beat(self, order: Order) -> None:
        with self.gate.cond:
            order.until = self.gate.clock() + FAIL_OPEN_S

    def _until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for it at most this long; raises Lost when the process ends."""
        with self.gate.cond:
            self.gate.cond.wait_for(lambda: self.stopping or true(), timeout_s)
            if self.stopping:
                raise Lost("the process ends")
            return true()

    def _pause(self, timeout_s: float) -> None:
        with self.gate.cond:
            self.gate.cond.wait_for(lambda: self.stopping, timeout_s)

    def _get(self, key: str, timeout_s: float) -> Optional[str]:
        """The value, looked for more and more slowly; None when it has not come within the time."""
        end, nap_s = self.gate.clock() + timeout_s, NAP_S[0]
        while True:
            value = self.store.get(key)
            if value is not None or self.gate.clock() >= end:
                return value
            self._nap(nap_s)
            nap_s = min(NAP_S[1], nap_s * 1.5)

    def _nap(self, nap_s: float) -> None:
        self._until(lambda: False, nap_s)

    def _follow(self, e: int) -> None:
        with self.gate.cond:
            if self.stopping:
                raise Lost("the process ends")
            self.awaited = f"prop/{e}/{self.rank}"
        body = json.loads(self.store.take(self.awaited))
        self.awaited = ""
        order = Order(e, body["at"], body["kind"], body["not_before"], self.gate.clock() + UNDECIDED_S)
        self.store.set(f"vote/{e}/{self.rank}", "yes" if self._arm(order) else "no")
        decision = self._get(f"dec/{e}", DECISION_S) or self.store.first(f"dec/{e}", "abort")
        if decision == "commit":
            self._turn(order, "commit")
            self._obey(e, order)
        self._clear()

    def _obey(self, e: int, order: Order) -> None:
        """Committed: say when this rank is there, and what came of saving; wait for the word to go on."""
        said_at = said_saved = False
        beat, heard = None, self.gate.clock()
        while not self.store.has(f"run/{e}"):
            if not said_at and order.arrived:
                said_at = True
                self.store.set(f"at/{e}/{self.rank}", "1")
            if order.saves and not said_saved and order.saved is not None:
                said_saved = True
                self.store.set(f"saved/{e}/{self.rank}", "ok" if order.saved else "failed")
            if said_saved and order.kind == "leave" and self.store.has(f"go/{e}"):
                self.store.set(f"bye/{e}/{self.rank}", "1")
                self._turn(order, "leave")
                self._until(lambda: False, SAVE_S)
            if said_at and (said_saved or not order.saves):
                self._wait_for_run(e, order, 2.0 if order.kind == "leave" else BEAT_S)
            else:
                self._until(lambda: order.arrived and (not order.saves or order.saved is not None), 0.25)
            now = self.gate.clock()
            if self.store.has(f"beat/{e}"):
                pulse = self._get(f"beat/{e}", 1.0)
                if pulse != beat:
                    beat, heard = pulse, now
                    self._beat(order)
            if now - heard > FAIL_OPEN_S:
                self.store.first(f"run/{e}", "silence")

    def _wait_for_run(self, e: int, order: Order, timeout_s: float) -> None:
        self._get(f"go/{e}" if order.kind == "leave" else f"run/{e}", timeout_s)

    # --- rank 0 ------------------------------------------------------------------------------------------------

    def _asked(self) -> Optional[str]:
        """The kind of stop that rank 0's supervisor wants now, or None."""
        now, lease, savers = self.gate.clock(), self.accord.lease, self.gate.can_save()
        want = lease.in_force(now)
        share = want.duty if want is not None and want.mode == "run" else None
        if share != self.duty.share:
            self.duty.set(share, now)
        if want is None:
            return None
        if savers and want.mode == "unload" and lease.saved != want.want_gen:
            return "leave"
        if savers and want.checkpoint and lease.saved != want.want_gen:
            return "save"
        if want.mode != "run":
            return "hold"
        return "rest" if self.duty.due(now) > 0 else None

    def _lead(self, e: int) -> None:
        kind = None
        while kind is None:
            with self.gate.cond:
                if self.stopping:
                    raise Lost("the process ends")
                kind = self._asked()
                if kind is None:
                    due = self.duty.next_at()
                    self.gate.cond.wait(1.0 if due is None else min(1.0, max(0.001, due - self.gate.clock())))
        others = range(1, self.world)
        with self.gate.cond:
            want = self.accord.lease.want
            ahead = max(2, math.ceil(LEAD_S * (self.speed() or 0.0))) + self.margin
            at = self.gate.counter.done() + ahead
            not_before = want.not_before if want is not None else None
            order = Order(e, at, kind, not_before, self.gate.clock() + UNDECIDED_S)
        proposal = json.dumps({"at": at, "kind": kind, "not_before": not_before})
        for r in others:
            self.store.set(f"prop/{e}/{r}", proposal)
        yes = self._arm(order)
        end = self.gate.clock() + VOTE_S
        votes = [self._get(f"vote/{e}/{r}", max(0.001, end - self.gate.clock())) for r in others]
        agreed = yes and all(vote == "yes" for vote in votes)
        if self.store.first(f"dec/{e}", "commit" if agreed else "abort") == "commit":
            self._turn(order, "commit")
            self._hold(e, order, others)
            self.retry_s = RETRY_S[0]
            self.margin = max(1, self.margin // 2)
            self._clear()
        else:
            self._clear()
            self.margin = min(1 << 20, self.margin * 2)
            if None in votes:  # a rank that does not answer: do not stop the others for nothing again and again
                self._pause(self.retry_s)
                self.retry_s = min(RETRY_S[1], self.retry_s * 2)
        if e > 0 and None not in votes:  # every rank has gone past the proposal before this one
            names = ("prop", "vote", "at", "saved", "bye")
            old = [f"{name}/{e - 1}" for name in ("dec", "go", "beat", "run")]
            self.store.forget(*old, *(f"{name}/{e - 1}/{r}" for name in names for r in others))

    def _hold(self, e: int, order: Order, others: range) -> None:
        """Committed: until the want ends, the lease is lost, or somebody does not arrive."""
        steps_s = ARRIVE_STEPS / (self.speed() or math.inf)
        word = "late"
        if self._gather(e, order, lambda: order.arrived, [f"at/{e}/{r}" for r in others], max(ARRIVE_S, steps_s)):
            word = "go"
            if order.saves:
                keys = [f"saved/{e}/{r}" for r in others]
                done = self._gather(e, order, lambda: order.saved is not None, keys, SAVE_S)
                well = done and bool(order.saved) and all(self._get(key, 1.0) == "ok" for key in keys)
                self.accord.lease.saved_well = well
                if well and order.kind == "leave":
                    self._leave(e, order, others)
            elif order.kind == "rest":
                self._rest(e, order)
            else:
                while self._asked() == "hold":
                    self._pulse(e, order)
                    self._until(lambda: self._asked() != "hold", BEAT_S)
        self.store.first(f"run/{e}", word)
        if word == "late":
            self._pause(self.retry_s)
            self.retry_s = min(RETRY_S[1], self.retry_s * 2)

    def _gather(self, e: int, order: Order, mine: Callable[[], bool], keys: List[str], timeout_s: float) -> bool:
        """Wait for this rank and the keys of the others; False when they do not come or nobody wants it any more."""
        end, nap_s, pulse_at = self.gate.clock() + timeout_s, NAP_S[0], 0.0
        while not (mine() and (not keys or self.store.has(*keys))):
            now = self.gate.clock()
            if now >= end or (not order.arrived and self._asked() is None):
                return False
            if now >= pulse_at:
                pulse_at = now + BEAT_S
                self._pulse(e, order)
            self._nap(nap_s)
            nap_s = min(NAP_S[1], nap_s * 1.5)
        return True

    def _pulse(self, e: int, order: Order) -> None:
        self.store.set(f"beat/{e}", str(self.gate.clock()))
        self._beat(order)

    def _rest(self, e: int, order: Order) -> None:
        now = self.gate.clock()
        end = now + self.duty.due(now)
        self.duty.rest(now)
        while self.gate.clock() < end and self.duty.share is not None:
            self._pulse(e, order)
            self._until(
                lambda: self._asked() in ("hold", "leave", "save") or self.duty.share is None,
                min(BEAT_S, max(0.0, end - self.gate.clock())),
            )
            if self._asked() in ("hold", "leave", "save"):
                break
        self.duty.wake(self.gate.clock())

    def _leave(self, e: int, order: Order, others: range) -> None:
        """Everybody has saved: tell them, hear that they know it, then let go of the store by leaving."""
        self.store.set(f"go/{e}", "leave")
        end = self.gate.clock() + BYE_S
        for r in others:
            self._get(f"bye/{e}/{r}", max(0.001, end - self.gate.clock()))
        self._turn(order, "leave")
        self._until(lambda: False, SAVE_S)
