"""capd without its socket: who may lower which limit, how far, and when it is restored."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from carbontui.power.backends import base
from carbontui.power.backends.base import Backend, DeviceError
from carbontui.power.capd import wire
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.limit.limiter import Limiter
from carbontui.power.messages import Code

WRITE_GAP_S = 1.0
"""Minimum interval between two requested writes on one board; a restore is never delayed, but counts as a write."""
WATCH_S = 1.0
"""How often the processes on held boards are checked."""
DRIVER_CALLS_PER_S = 20
"""Requests per second of one uid that may reach the driver, whose calls are slow and serialised for all users."""
CODES: dict[Code, int] = {
    "out_of_range": base.INVALID,
    "not_supported": base.NOT_SUPPORTED,
    "no_permission": base.NO_PERMISSION,
    "held": base.HELD,
}


@dataclass(eq=False)
class Caller:
    """One connection."""

    uid: int
    pid: int


def owner_of(pid: int) -> int | None:
    """The uid that owns a process; None where it cannot be seen."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None


@dataclass(eq=False)
class Capd:
    """Decides and acts, without sockets. `clock` is monotonic seconds, `owner` the uid of a pid or None."""

    backend: Backend
    store: LeaseStore
    say: Callable[[str], None]
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    owner: Callable[[int], int | None] = owner_of

    def __post_init__(self) -> None:
        self._limiter = Limiter(self.backend, self.store, "capd", self.say)
        self._holders: dict[str, Caller] = {}
        self._written_s: dict[str, float] = {}
        self._calls: dict[int, tuple[float, int]] = {}
        self._watch_at = 0.0

    def open(self) -> None:
        """Open the driver and restore what an earlier capd left. Raises DeviceError."""
        self._limiter.open()
        for outcome in self._limiter.restore_stale():
            self.say(f"{outcome.uuid}: left by an earlier capd: {outcome.text or outcome.code}")

    def answer(self, caller: Caller, request: wire.CapdRequest) -> wire.CapdAnswer:
        """Carry out one request. Never raises."""
        try:
            return self._answer(caller, request)
        except DeviceError as error:
            if error.code == base.UNINITIALIZED:  # the driver was reloaded, and has forgotten every limit
                try:
                    self._limiter.open()
                except DeviceError as again:
                    self.say(f"the driver cannot be opened again: {again}")
            return wire.CapdAnswer(False, error.code, str(error))
        except OSError as error:
            return wire.CapdAnswer(False, base.UNKNOWN, f"no lease can be kept ({error})")

    def _answer(self, caller: Caller, request: wire.CapdRequest) -> wire.CapdAnswer:
        if isinstance(request, wire.CapdBeat):
            return wire.CapdAnswer()
        uuid = request.uuid
        known = {info.uuid for info in self.backend.devices()}
        if uuid not in known:
            return wire.CapdAnswer(False, base.INVALID, "no such GPU")
        if self._busy(caller.uid):
            return wire.CapdAnswer(False, wire.SOON, "too many requests")
        if refusal := self._refusal(caller, uuid):
            return refusal
        if uuid not in self._holders:
            self._limiter.begin(uuid)
        if request.limit_mw >= 1000 * (self._limiter.boards[uuid].found_w or float("inf")):
            if uuid in self._holders:
                self._restore(uuid, f"uid {caller.uid} asks for it")
            return wire.CapdAnswer()
        if self.clock() < self._written_s.get(uuid, 0.0) + WRITE_GAP_S:
            return wire.CapdAnswer(False, wire.SOON, f"its limit was written less than {WRITE_GAP_S:g} s ago")
        return self._limit(caller, uuid, request.limit_mw)

    def gone(self, caller: Caller) -> None:
        """The caller disconnected, was killed or fell silent: restore its boards."""
        for uuid in [uuid for uuid, holder in self._holders.items() if holder is caller]:
            self._restore(uuid, "the caller has gone")

    def tick(self) -> None:
        """Once a second: release a held board that another user's process has started to use."""
        now = self.clock()
        if now < self._watch_at:
            return
        self._watch_at = now + WATCH_S
        for uuid, holder in list(self._holders.items()):
            with contextlib.suppress(DeviceError):
                if self._foreign(self.backend.everyone(uuid), holder.uid):
                    self._restore(uuid, "somebody else uses the GPU now")
        for uuid in self._limiter.active():
            if uuid not in self._holders:  # the driver refused before
                self._restore(uuid, "again")

    def close(self) -> None:
        """Restore everything."""
        for uuid in list(self._holders):
            self._restore(uuid, "capd ends")

    # --- permissions ---

    def _busy(self, uid: int) -> bool:
        since_s, count = self._calls.get(uid, (0.0, 0))
        now = self.clock()
        if now - since_s >= 1.0:
            self._calls = {one: kept for one, kept in self._calls.items() if now - kept[0] < 1.0}
            since_s, count = now, 0
        self._calls[uid] = (since_s, count + 1)
        return count >= DRIVER_CALLS_PER_S

    def _refusal(self, caller: Caller, uuid: str) -> wire.CapdAnswer | None:
        holder = self._holders.get(uuid)
        if holder is not None and holder is not caller:
            return wire.CapdAnswer(False, base.HELD, f"uid {holder.uid} (pid {holder.pid}) holds this GPU's limit")
        try:
            pids = self.backend.everyone(uuid)
        except DeviceError as error:
            if error.code == base.UNINITIALIZED:
                raise
            return wire.CapdAnswer(False, base.REFUSED, f"the driver does not say who uses this GPU ({error})")
        if self._foreign(pids, caller.uid):
            return wire.CapdAnswer(False, base.REFUSED, "processes that are not yours, or hidden, use this GPU")
        if not pids and holder is None:
            return wire.CapdAnswer(False, base.NOT_YET, "no process of yours uses this GPU yet")
        return None

    def _foreign(self, pids: Sequence[int], uid: int) -> bool:
        """Whether one of these processes is not known to belong to the uid."""
        return any(self.owner(pid) != uid for pid in pids)

    # --- actions ---

    def _limit(self, caller: Caller, uuid: str, limit_mw: int) -> wire.CapdAnswer:
        outcome = self._limiter.apply(uuid, limit_mw / 1000, allow_raise=False, power_w=None, now_s=self.clock())
        self._written_s[uuid] = self.clock()
        if not outcome.ok:
            return wire.CapdAnswer(False, CODES.get(outcome.code, base.UNKNOWN), outcome.text)
        self._holders[uuid] = caller
        found_w = self._limiter.boards[uuid].found_w or 0.0
        self.say(f"{uuid}: {limit_mw / 1000:.0f} W for uid {caller.uid} (pid {caller.pid}), found {found_w:.0f} W")
        return wire.CapdAnswer()

    def _restore(self, uuid: str, why: str) -> None:
        self._holders.pop(uuid, None)
        outcome = self._limiter.release(uuid)
        self._written_s[uuid] = self.clock()
        self.say(f"{uuid}: {'restored' if outcome.ok else outcome.text or 'not restored'} ({why})")
