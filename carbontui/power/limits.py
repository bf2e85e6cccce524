"""Limits of GPUs: the power limit first, a clock lock where it is of no use; verified by effect, always given back.

Chooses between the actuators (`power_limit`, `clocks`), takes a GPU before anything is set, and gives it back: when
the wish ends, when this agent leaves, and after an agent that died.
"""

from __future__ import annotations

from collections.abc import Callable

from carbontui.power import clocks, machine, power_limit
from carbontui.power.devices import GPU_IS_LOST, NO_PERMISSION, NOT_SUPPORTED, Backend, DeviceError, DeviceInfo, Look
from carbontui.power.held import CODES, HELD, Held
from carbontui.power.leases import LeaseStore, command, is_stale, mend, stale_leases
from carbontui.power.messages import NOTHING, Cap, Outcome
from carbontui.power.power_limit import Ineffective
from carbontui.power.tenure import Tenure

__all__ = ["Limiter", "mend", "stale_leases"]


class Limiter:
    """All limits of one agent. `say` takes lines for the log, `tell` what happens to limits without being asked for;
    `store` is None for simulated boards.

    `monitor` changes nothing, `probing` (with it) still asks the driver what it would permit.
    """

    def __init__(
        self,
        backend: Backend,
        store: LeaseStore | None,
        job: str,
        say: Callable[[str], None],
        *,
        tell: Callable[[Outcome], None] = lambda _outcome: None,
        monitor: bool = False,
        probing: bool = False,
    ) -> None:
        self._backend = backend
        self._store = store
        self._job = job
        self._say = say
        self._tell = tell
        self._monitor = monitor
        self._probing = probing
        self._held: dict[str, Held] = {}

    # --- knowing ----------------------------------------------------------------------------------------------

    def know(self, info: DeviceInfo) -> None:
        """A device appeared: what stands there is 'found', unless a lease says what stood there before."""
        if info.uuid in self._held:
            self._held[info.uuid].info = info
            return
        held = Held(info, self._backend, self._tenure(info.uuid), self._say, self._tell)
        self._held[info.uuid] = held
        try:
            current: int | None = self._backend.limit_mw(info.uuid)
        except DeviceError as error:
            current = None
            held.cap = held.refusal(error)
        lease = held.tenure.on_disk()
        held.found_mw = held.start_mw = current if lease is None else lease.before_mw
        asking = not self._monitor or self._probing
        if info.mig:
            held.cap = Cap("not_supported", "MIG slices share this board and its limit")
        elif (info.limit_min_mw is None or current is None) and info.clock_max_mhz and asking:
            clocks.lean_on(held, "no power limit here", Cap("not_supported", power_limit.NO_RANGE))
        elif info.limit_min_mw is None or info.limit_max_mw is None:
            held.cap = Cap("not_supported", power_limit.NO_RANGE)
        elif not asking:
            held.cap = Cap("not_supported", "limits are switched off for this job (--no-cap)")

    def probe(self, uuid: str) -> None:
        """Ask the driver by writing the value that is there already: only on a GPU of the child, nothing changes."""
        held = self._held[uuid]
        if held.cap.support == "unknown" and held.tenure.lease is None and not held.because:
            held.cap = self._probe(held)
            if held.cap.support == "not_supported" and held.info.clock_max_mhz:
                clocks.lean_on(held, "its power limit cannot be set", held.cap)

    def _probe(self, held: Held) -> Cap:
        uuid = held.info.uuid
        try:
            if not held.tenure.take():
                # its owner runs as we do, and sets it
                held.passing = Cap("yes", f"{power_limit.span(held.info)}; {HELD}")
                return Cap("unknown", HELD)
        except OSError as error:
            fix = (
                f"mend {self._store.directory}, or export CARBONTUI_LEASE_DIR=/a/local/directory" if self._store else ""
            )
            held.passing = Cap("no_permission", f"no lease can be kept, without which nothing is set ({error})", fix)
            return Cap("unknown", held.passing.why)
        try:
            if self._store is not None:
                self._backend.set_limit_mw(uuid, self._backend.limit_mw(uuid))
        except DeviceError as error:
            return held.refusal(error)
        finally:
            held.tenure.let_go()
        return Cap("yes", power_limit.span(held.info))

    def _tenure(self, uuid: str) -> Tenure:
        return Tenure(self._store, uuid, self._job, self._say)

    def cap(self, uuid: str) -> Cap:
        """Whether watts can be capped here, by whatever actuator."""
        held = self._held.get(uuid)
        return held.shown() if held else Cap("unknown", "not seen")

    def limit_cap(self, uuid: str) -> Cap:
        """What the power limit itself is good for."""
        held = self._held.get(uuid)
        return held.limit if held and held.limit else self.cap(uuid)

    def clocks_cap(self, uuid: str) -> Cap:
        """Whether a clock lock can stand in for the limit."""
        held = self._held.get(uuid)
        return held.clocks_cap() if held else Cap("unknown", "not seen")

    def found_w(self, uuid: str) -> float | None:
        held = self._held.get(uuid)
        return held.found_mw / 1000 if held and held.found_mw else None

    def top_w(self, uuid: str) -> float | None:
        """The highest limit that is set here without being asked to raise it."""
        held = self._held.get(uuid)
        return held.ceiling_mw / 1000 if held and held.ceiling_mw else None

    def clocks_w(self, uuid: str) -> float | None:
        """Watts that a clock lock of ours is steered to."""
        held = self._held.get(uuid)
        return held.steering.wanted_w if held and held.steering else None

    def proving(self, uuid: str) -> bool:
        """Whether a cap stands there whose effect has yet to be seen."""
        held = self._held.get(uuid)
        return held is not None and (held.steering.proving if held.steering else held.binding)

    def active(self) -> tuple[str, ...]:
        """GPUs on which a limit of ours stands."""
        return tuple(uuid for uuid, held in self._held.items() if held.tenure.lease is not None)

    @property
    def notices(self) -> dict[str, str]:
        """What a person should know, per GPU."""
        return {uuid: held.notice for uuid, held in self._held.items() if held.notice}

    # --- setting ----------------------------------------------------------------------------------------------

    def apply(self, uuid: str, watts: float, *, allow_raise: bool, power_w: float | None, now_s: float) -> Outcome:
        """Cap one GPU. Idempotent; `power_w` is what it draws now, by which the effect is judged later."""
        held = self._held[uuid]
        if self._monitor:
            return held.outcome(False, "not_supported", held.cap.why)
        if held.cap.support not in ("yes", "unknown"):
            return held.outcome(False, held.cap.support, held.cap.why, held.cap.fix)  # type: ignore[arg-type]
        try:
            if not held.own():
                return held.outcome(False, "held", HELD)
            lease = held.tenure.lease
            if lease is not None and lease.clocks_mhz is not None and not held.because:
                # so the agent found that left this lease
                clocks.lean_on(held, "its power limit was of no use", Cap("no_effect", "it was of no use before"))
            if held.because:
                return self._by_clocks(held, watts, power_w, now_s)
            try:
                return power_limit.apply(held, watts, allow_raise=allow_raise, power_w=power_w, now_s=now_s)
            except DeviceError as error:
                return self._limit_refused(held, error, watts, power_w, now_s)
        except OSError as error:
            return held.outcome(False, "error", f"no lease can be written ({error}): the limit is left alone")
        finally:
            if held.tenure.lease is None:
                held.tenure.let_go()

    def _limit_refused(
        self, held: Held, error: DeviceError, watts: float, power_w: float | None, now_s: float
    ) -> Outcome:
        """The driver refused. The clock is tried, once, where nothing of ours is left standing on the limit."""
        refused = held.refusal(error)
        back = self.release(held.info.uuid)
        if back.code == "given_back" and error.code in (NO_PERMISSION, NOT_SUPPORTED):
            outcome = self._turn_to_clocks(held, "its power limit cannot be set", refused, watts, power_w, now_s)
            if outcome is not None and outcome.ok:
                return outcome
        held.cap = refused
        return held.outcome(False, CODES.get(error.code, "error"), refused.why, refused.fix)

    def _turn_to_clocks(
        self, held: Held, because: str, limit: Cap, watts: float, power_w: float | None, now_s: float
    ) -> Outcome | None:
        """From the limit, which has been given back, to a clock lock under a lease of its own. None: no clocks here."""
        if not held.info.clock_max_mhz:
            return None
        clocks.lean_on(held, because, limit)
        try:
            if not held.own():
                return held.outcome(False, "held", HELD)
            return self._by_clocks(held, watts, power_w, now_s)
        except OSError as error:
            return held.outcome(False, "error", f"no lease can be written ({error}): clocks are left alone")
        finally:
            if held.tenure.lease is None:
                held.tenure.let_go()

    def _by_clocks(self, held: Held, watts: float, power_w: float | None, now_s: float) -> Outcome:
        outcome = clocks.apply(held, watts, power_w, now_s)
        if not outcome.ok:
            self.release(held.info.uuid)
        return outcome

    # --- giving back ------------------------------------------------------------------------------------------

    def release(self, uuid: str) -> Outcome:
        """Give one GPU's limit back; compare first. Without permission the lease stays and the command is printed."""
        held = self._held[uuid]
        lease = held.tenure.lease
        if lease is None:
            held.tenure.let_go()
            return held.outcome(True, "given_back", NOTHING)
        try:
            outcome = clocks.lift(held) if lease.clocks_mhz is not None else power_limit.restore(held)
        except DeviceError as error:
            fix = "" if error.code == GPU_IS_LOST else command(lease)
            mend = f"run: {fix}" if fix else "a reset of the GPU or a reboot does that"
            notice = f"limit not given back ({error}); {mend}"
            if notice != held.notice:  # a stale lease is tried again and again
                self._say(f"{uuid}: {notice}")
            held.notice = notice
            return held.outcome(False, CODES.get(error.code, "error"), held.notice, fix)
        held.forget()
        return outcome

    def leave(self, uuid: str) -> Outcome:
        """Someone else has set this limit since it was wished for: not fought."""
        self.release(uuid)
        held = self._held[uuid]
        return held.outcome(False, "outside", held.notice or "the limit was changed outside: left alone")

    def release_all(self) -> tuple[Outcome, ...]:
        return tuple(self.release(uuid) for uuid in self.active())

    def mend_stale(self, keep: frozenset[str] = frozenset()) -> tuple[Outcome, ...]:
        """Give back what dead agents left behind, except on the GPUs in `keep`, which are about to be taken over."""
        if self._store is None:
            return ()
        outcomes = []
        for lease in self._store.all():
            uuid = lease.uuid
            if lease.boot_id != machine.boot_id():
                self._tenure(uuid).drop()
                continue
            if uuid in keep or not is_stale(lease):
                continue
            held = self._held.get(uuid)
            if held is None:
                text = f"{uuid} is not here now; when it is: {command(lease)}"
                outcomes.append(Outcome(uuid, False, "lost", None, text, command(lease)))
                continue
            try:
                owned = not self._monitor and held.own()
            except OSError as error:
                self._say(f"{uuid}: its stale lease cannot be taken over ({error})")
                continue
            if owned:
                outcomes.append(self.release(uuid))
        return tuple(outcomes)

    # --- watching ---------------------------------------------------------------------------------------------

    def observe(self, uuid: str, look: Look, now_s: float) -> Outcome | None:
        """Learn from a look: a changed limit is adopted, a cap without effect given up. What happened, if anything."""
        held = self._held[uuid]
        held.sm_mhz, held.module = look.sm_mhz, look.kind == "module"
        if held.steering is not None:
            return self._steer(held, look, now_s)
        found = power_limit.judge(held, look, now_s)
        return self._no_effect(held, found, now_s) if isinstance(found, Ineffective) else found

    def _no_effect(self, held: Held, found: Ineffective, now_s: float) -> Outcome:
        """The power limit goes back; then the clock is tried. Where that is refused too, this stands."""
        back = self.release(held.info.uuid)
        why = f"accepted, but the board still drew {found.drawn_w:.0f} W under {found.limit_w:.0f} W"
        self._say(f"{held.info.uuid}: {why}")
        fix = back.fix
        if back.code == "given_back":
            because, limit = "its power limit has no effect", Cap("no_effect", why)
            outcome = self._turn_to_clocks(held, because, limit, found.limit_w, found.drawn_w, now_s)
            if outcome is not None and outcome.ok:
                return outcome
            if outcome is not None:
                why, fix = f"{why}; {outcome.text}", outcome.fix
        held.cap = Cap("no_effect", why, fix)
        return held.outcome(False, "no_effect", why, fix)

    def _steer(self, held: Held, look: Look, now_s: float) -> Outcome | None:
        """Keep a clock lock at its watts; give it up where it is of no use."""
        happened = clocks.steer(held, look, now_s)
        if isinstance(happened, Outcome):
            self.release(held.info.uuid)
            return happened
        if happened is None:
            return None
        if happened.code == "outside":
            # what stands there now is another's: it is not ours to lift
            held.forget()
            held.notice = why = f"{happened.why}: adopted"
        else:
            self.release(held.info.uuid)
            why = f"{held.because}, and {happened.why}"
            if happened.code == "no_effect":
                held.cap, held.clocks = Cap("no_effect", why), Cap("no_effect", happened.why)
        self._say(f"{held.info.uuid}: {why}")
        return held.outcome(False, happened.code, why)
