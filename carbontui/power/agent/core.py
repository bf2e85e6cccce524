"""The agent without its socket: samples devices, applies requested limits and restores them.

Two threads call it: the sampler's (`open`, `sample`), which may block in the driver for a while, and the main one
(`wish`, `tick`, `leave`), which waits for it only while both touch limits.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from msgspec import Struct

from carbontui.power import messages
from carbontui.power.agent import boards, view
from carbontui.power.agent.boards import JobBoards
from carbontui.power.backends import base
from carbontui.power.backends.base import SLOW_S, Backend, DeviceError, DeviceInfo, RawReading, period_s
from carbontui.power.limit import leases
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.limit.limiter import Limiter
from carbontui.power.messages import AgentLine, DesiredPower, Done, Outcome, Readings, Report, Sample
from carbontui.power.metering.rapl import Host
from carbontui.power.metering.shares import NO_JOBS, BoardUse
from carbontui.power.metering.supply import Supply
from carbontui.power.metering.witness import Parts

SIMULATED_S = 0.25
PROCESSES_S = 10.0
SEEK_S = 2.0
"""How often the boards' processes are listed while it is not yet known which boards the job uses."""
RETRY_S: dict[messages.Code, float] = {"held": 1.0, "foreign": PROCESSES_S}
"""When to retry a wish blocked by another job or process."""
OPEN_S = 2.0
"""How long the exit waits for a driver that is still being opened, if limits are to be restored."""
REOPEN_S = (1.0, 2.0, 3.5)
"""A driver that is being reloaded is back within seconds."""
NO_LIBRARY_S = 15.0
"""How often to look for a driver where none is installed."""


@dataclass(eq=False)
class Agent:
    """State of the process; `clock` is monotonic seconds, `wall` epoch seconds."""

    send: Callable[[Struct], None]
    backend: Backend
    host: Host
    store: LeaseStore | None
    job: str
    _: KW_ONLY
    monitor: bool = False
    probing: bool = False
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        modes = {"monitor": self.monitor, "probing": self.probing}
        self._limiter = Limiter(self.backend, self.store, self.job, self.say, tell=self._tell, **modes)
        self._supply = None if self.backend.name == "simulated" or self.monitor else Supply()
        self._guard = threading.RLock()
        self._wish: DesiredPower | None = None
        self._opened = False
        self._ready = threading.Event()
        self._settled = False
        self._released = False
        self._last_wish_s = self.clock()
        self._infos: tuple[DeviceInfo, ...] = ()
        self._boards = JobBoards()
        self._raw: dict[str, RawReading] = {}
        self._pids: dict[str, tuple[int, ...] | None] = {}
        self._users: dict[str, str] = {}
        self._foreign: dict[str, tuple[int, ...]] = {}
        self._use = BoardUse(self.backend)
        self._samples: list[Sample] = []
        self._report_at = 0.0
        self._slow_at = 0.0
        self._retry_at = 0.0
        self._acted_s = 0.0
        """When limits were last set or restored: an older look says nothing about them."""
        self._reopen_at: float | None = None
        self._reopen_tries = 0
        self._trouble = ""
        self._reported: dict[str, Outcome] = {}
        self.poke = threading.Event()
        """Sample and report now."""

    def say(self, text: str) -> None:
        self.send(AgentLine(text))

    def _tell(self, *outcomes: Outcome) -> None:
        """Report unsolicited changes of limits; the same outcome is not repeated."""
        news = tuple(outcome for outcome in outcomes if self._reported.get(outcome.uuid) != outcome)
        self._reported.update((outcome.uuid, outcome) for outcome in outcomes)
        if news:
            self.send(Done(self._wish.gen if self._wish else 0, news, asked=False))

    # --- the sampler's side -----------------------------------------------------------------------------------

    def keep_sampling(self) -> None:
        """The sampler's thread: read every device in turn and report. Only it calls getters in a loop."""
        self.open()  # the first driver call may be slow; the main thread serves wishes and EOF meanwhile
        while True:
            try:
                pause = self.sample()
            except Exception as error:
                # an agent that falls silent is replaced, over and over: report the fault and keep sampling
                self.say(f"sampler: {type(error).__name__}: {error}")
                pause = SLOW_S
            self.poke.wait(pause)

    def open(self) -> None:
        """Open the backend; if that fails, report why and retry later."""
        try:
            self.backend.open()
            self._trouble, self._reopen_at, self._reopen_tries = "", None, 0
        except DeviceError as error:
            none = error.code == base.NO_LIBRARY
            self._trouble = "" if none else f"{self.backend.name}: {error}"
            wait = NO_LIBRARY_S if none else REOPEN_S[min(self._reopen_tries, len(REOPEN_S) - 1)]
            self._reopen_tries += 1
            self._reopen_at = self.clock() + wait
        with self._guard:
            self._opened, self._settled = True, False
            self._ready.set()
            self._know()
            if self._wish is not None:
                self._take(self._wish, fresh=True)

    def _know(self) -> None:
        """Take the boards as they are described now: one that was lost has been described anew."""
        self._infos = self.backend.devices()
        for info in self._infos:
            self._limiter.know(info)
        self._retry_at = self.clock()  # what is wanted may be possible now

    def sample(self) -> float:
        """Read everything once; returns the seconds until the next look."""
        if self._wish is None and self.clock() - self._last_wish_s < SLOW_S:
            return 0.02  # a first report without the first wish would not know which boards are watched
        if self._reopen_at is not None and self.clock() >= self._reopen_at:
            self.open()
        poked = self.poke.is_set()
        self.poke.clear()
        began = self.clock()
        slow = began >= self._slow_at
        if slow:
            self._slow_at = began + (SEEK_S if self._boards.seeking else PROCESSES_S)
        for info in self._infos:
            self._observe(info, slow)
        # reopening closes the driver for a moment; it may forget limits if no other process holds it open
        incomplete = self.backend.incomplete and not self._limiter.active()
        if (self.backend.broken or incomplete) and self._reopen_at is None:
            self._reopen_at = began
        now = self.clock()
        if poked or now >= self._report_at:
            period = SIMULATED_S if self.backend.name == "simulated" else SLOW_S
            self._report_at = max(self._report_at + period, now + 0.5 * period)
            self._report()
        # a slow driver is read less often: at most a twentieth of the time
        return max(self._period(), min(3.0, 20.0 * (self.clock() - began)))

    def _observe(self, info: DeviceInfo, slow: bool) -> None:
        mono, wall = self.clock(), self.wall()
        raw = self.backend.sample(info.uuid)
        before = self._raw.get(info.uuid)
        back = before is not None and before.lost and not raw.lost
        self._raw[info.uuid] = raw
        if info.uuid in self._boards.visible and (slow or self._use.changed(info.uuid, raw)):
            self._find_foreign(info.uuid)
        self._use.split(info, raw, self._own(info.uuid), self._boards.seeking)
        self._samples.append(
            Sample(
                uuid=info.uuid,
                mono_s=mono,
                wall_s=wall,
                how="simulated" if info.simulated else "estimated" if raw.kind == "model" else "measured",
                **view.shared(raw, Sample),
                max_w=None if info.limit_max_mw is None else info.limit_max_mw / 1000,
                share=self._share(info),
            )
        )
        with self._guard:
            if self.backend.devices() != self._infos:
                self._know()
            if back:
                self.say(f"GPU {info.index} ({info.uuid}) is back")
                self._limiter.returned(info.uuid)
                self._retry_at = mono  # the limit that is wanted belongs on it again
            if self.backend.away or mono < self._acted_s:
                return  # it was taken under the previous limit: setting one through capd may take a second
            happened = self._limiter.observe(info.uuid, raw, mono)
            if happened is not None:
                self._tell(happened)

    def _share(self, info: DeviceInfo) -> float | None:
        """The job's part of a board's watts; None: all of them."""
        if info.uuid in self._use.shares or not info.mig:
            return self._use.shares.get(info.uuid)
        named = self._wish.watch if self._wish is not None else None
        names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if named is None else named
        return boards.slices_share(names, info)

    def _find_foreign(self, uuid: str) -> None:
        self._pids[uuid] = self._use.list(uuid, self._raw.get(uuid))
        own = self._wish.own_pids if self._wish else ()
        # if hidden processes may be on any of several boards, those beyond the number of our own are foreign
        crowded = not self._boards.by_process and len(boards.hidden(self._pids)) > len(own) > 0
        self._foreign[uuid] = view.foreign(self._pids[uuid] or (), own, hidden_too=crowded)
        self._users[uuid] = view.users(self._pids[uuid] or ())

    def _own(self, uuid: str) -> frozenset[int] | None:
        """The job's processes on a board shared with others; None if it is not shared or that is unknown."""
        foreign, listed = self._foreign.get(uuid), self._pids.get(uuid)
        if not foreign or not listed or not (self._wish and self._wish.own_pids):
            return None
        return None if boards.hidden({uuid: listed}) else frozenset(listed) - frozenset(foreign)

    def _period(self) -> float:
        if self.backend.name == "simulated":
            return SIMULATED_S
        fast = self._wish is not None and self._wish.fast
        return period_s({uuid: raw for uuid, raw in self._raw.items() if uuid in self._boards.uuids}, fast)

    def _report(self) -> None:
        mono, wall = self.clock(), self.wall()
        own = None if self.job in NO_JOBS else self._wish.own_pids if self._wish else ()
        # a simulated board stands in no machine: this one's CPU, as busy as it is, is no part of it
        nothing = (), messages.HostReading()
        host_samples, host = nothing if self.backend.name == "simulated" else self.host.sample(mono, wall, own)
        if self._supply is not None and self._supply.by:
            limits_w = sum((info.limit_max_mw or 1000 * base.MAX_LIMIT_W) / 1000 for info in self._infos)
            parts = Parts(limits_w, len(self._infos), self.host.threads)
            mine = len(self._boards.visible or self._infos)
            host = self._supply.beside(host, self.host.whole_w, self._boards_w(), parts, mine, mono)
        samples, self._samples = (*self._samples, *host_samples), []
        self.send(Report(self._readings(mono, wall, host), samples))

    def _boards_w(self) -> float | None:
        """Watts of all the machine's boards; None unless each is known."""
        raw_readings = [self._raw.get(info.uuid) for info in self._infos]
        watts = [raw.power_w for raw in raw_readings if raw is not None and raw.power_w is not None]
        return sum(watts) if len(watts) == len(raw_readings) else None

    def _readings(self, mono: float, wall: float, host: messages.HostReading) -> Readings:
        several = {info.uuid: f"GPU {info.index}: " for info in self._infos} if len(self._infos) > 1 else {}
        limits = [several.get(uuid, "") + text for uuid, text in self._limiter.notices.items()]
        absent = self.backend.absent
        gone = [f"GPU {index} does not answer ({why}): reboot or reset it" for index, why in absent]
        notices = [text for text in (self._trouble, *self.backend.troubles, *gone, *limits) if text]
        if not self._boards.certain:
            notices.append(
                "CUDA_VISIBLE_DEVICES gives numbers, which may name other GPUs until the script reports UUIDs"
            )
        return Readings(
            mono_s=mono,
            wall_s=wall,
            backend=self.backend.name if self._infos else "none",
            driver=self.backend.driver,
            devices=tuple(
                view.reading(
                    info,
                    raw,
                    self._limiter.boards[info.uuid],
                    watched=info.uuid in self._boards.uuids,
                    pids=self._pids.get(info.uuid),
                    foreign=self._foreign.get(info.uuid, ()),
                    share=self._share(info),
                    users=self._users.get(info.uuid, ""),
                )
                for info in self._infos
                if (raw := self._raw.get(info.uuid)) is not None
            ),
            absent=absent,
            by_process=self._boards.by_process,
            host=host,
            notices=tuple(notices),
        )

    # --- the supervisor's wishes ------------------------------------------------------------------------------

    def wish(self, wish: DesiredPower) -> None:
        """Take the current wish; only a new generation, or a wish after silence, causes actions."""
        with self._guard:
            before, self._wish = self._wish, wish
            self._last_wish_s = self.clock()
            self.backend.drive(wish.activity, wish.duty)
            if self._opened:
                self._take(wish, fresh=before is None or wish.gen != before.gen)
        self.poke.set()

    def _take(self, wish: DesiredPower, *, fresh: bool) -> None:
        before = self._boards.uuids
        self._resolve(wish)
        moved = before != self._boards.uuids and (wish.limit_w is not None or bool(self._limiter.active()))
        if not self._settled:
            self._settled = True
            keep = frozenset(self._boards.uuids) if wish.limit_w is not None else frozenset()
            self._tell(*self._limiter.restore_stale(keep))
        if fresh or moved or self._released or (wish.limit_w is not None and self.clock() >= self._retry_at):
            self._released = False
            outcomes = self._act(wish)
            waits = {outcome.code for outcome in outcomes} & set(RETRY_S)
            self._retry_at = self.clock() + min((RETRY_S[code] for code in waits), default=float("inf"))
            if fresh:
                self._reported.clear()
                self.send(Done(wish.gen, outcomes))
            elif not waits:
                self._tell(*outcomes)

    def _resolve(self, wish: DesiredPower) -> None:
        """Find the child's boards: reported by its client, else those with its processes, else visible to CUDA."""
        stands_alone = self.backend.stands_alone
        named = None if wish.watch is None or stands_alone else boards.boards_of(wish.watch, self._infos)
        # torch reports the names of AMD boards in another form, or not at all
        if named or (named is not None and not (wish.watch and any(info.maker == "amd" for info in self._infos))):
            self._boards.given(named)
        elif self.probing or stands_alone or self.backend.name == "simulated":
            self._boards.given(tuple(info.uuid for info in self._infos))
        else:
            now, sought = self.clock(), self._boards.seeking
            raw_readings = self._pids, self._raw
            self._boards.find(self._infos, os.environ, wish.own_pids, *raw_readings, now, wish.known)
            if self._boards.seeking and not sought:
                self._slow_at = now  # its processes may already be on the boards
        for uuid in self._boards.uuids:
            self._limiter.probe(uuid, write=wish.probe)

    def _act(self, wish: DesiredPower) -> tuple[Outcome, ...]:
        outcomes = [self._limiter.release(uuid) for uuid in self._limiter.active() if uuid not in self._boards.uuids]
        outcomes += [self._set(uuid, wish) for uuid in self._boards.uuids]
        self._acted_s = self.clock()
        return tuple(outcomes)

    def _set(self, uuid: str, wish: DesiredPower) -> Outcome:
        if wish.limit_w is None:
            return self._limiter.release(uuid)
        if uuid in wish.left:
            return self._limiter.leave(uuid)
        self._find_foreign(uuid)
        if self._foreign[uuid]:
            return self._refuse_foreign(uuid)
        raw = self._raw.get(uuid)
        power_w = raw.power_w if raw else None
        raising = wish.allow_raise
        return self._limiter.apply(uuid, wish.limit_w, allow_raise=raising, power_w=power_w, now_s=self.clock())

    def _refuse_foreign(self, uuid: str) -> Outcome:
        self._limiter.release(uuid)
        text = f"{view.user(self._foreign[uuid][0])} uses this GPU too: its limit is left alone"
        return Outcome(uuid, False, "foreign", None, text)

    def tick(self) -> None:
        """Every half second: the dead-man, foreign processes, leases of agents that died meanwhile."""
        with self._guard:
            if not self._settled:
                return
            if self.backend.beat():
                self.say("capd is back: it has restored our limits, they are asked for again")
                for uuid in self._limiter.active():
                    self._limiter.returned(uuid)
                self._retry_at = self.clock()
            silent_s = self.clock() - self._last_wish_s
            if silent_s > messages.DEAD_MAN_S and not self._released and self._limiter.active():
                self.say(f"nothing heard from the supervisor for {messages.DEAD_MAN_S:.0f} s: limits restored")
                self._tell(*self._limiter.release_all())
                self._released = True
            for uuid in self._limiter.active():
                if self._foreign.get(uuid) and self._wish is not None:
                    self._tell(self._refuse_foreign(uuid))
                    self._retry_at = self.clock() + RETRY_S["foreign"]
            if self.clock() >= self._slow_at - 0.5:
                for uuid in self._boards.uuids:
                    self._limiter.check_low(uuid)
                self._tell(*self._limiter.restore_stale(frozenset(self._limiter.active())))

    def leave(self) -> tuple[Outcome, ...]:
        """Restore all limits: our own, and those of a predecessor that we have not taken over yet."""
        if self.store is not None and leases.left_by(self.job):
            self._ready.wait(OPEN_S)  # the driver may still be opening
        with self._guard:
            outcomes = self._limiter.release_all()
            if self._opened and not self.monitor:
                outcomes += self._limiter.restore_stale()
            return outcomes

    def restore_stale(self) -> tuple[Outcome, ...]:
        """Restore limits left by dead agents; for `--mend`."""
        self.open()
        return self._limiter.restore_stale()
