"""The shared ledger of a machine's jobs: a directory of this user on local disk, one file per job, one lock.

A job holds the lock while it changes its claim (flock: the kernel frees it at any death), so that of two jobs that
rise at the same moment the second sees the first. A claim outlives its supervisor until the job's processes end.
"""

import contextlib
import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from carbontui import config, link, paths, units
from carbontui.extensions.site import events
from carbontui.extensions.site.events import BASELINE_PLAN, EventError, GridEvent
from carbontui.extensions.site.sharing import Ramp, SiteBudget, settle
from carbontui.headroom import Claim, ExchangeError, Headroom
from carbontui.system import life, proc, untrusted

LOCK_S = 0.5
"""How long to wait for the lock; a holder is done within milliseconds."""
SILENT_S = 6.0
"""A supervisor that has not renewed its claim for this long counts as gone."""
HIDDEN_S = 600.0
"""The same in another pid namespace, whose processes cannot be seen: its training may go on without one."""
NO_BUDGET = SiteBudget(cap_w=math.inf, ramp_w_per_s=1e6)
"""While a grid event comes or lasts, where no budget is set."""
ADMINISTRATOR = Path("/etc/carbontui/site.toml")


class LedgerError(ExchangeError):
    """The ledger cannot be used; the text names the file and the repair."""


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """A claim on disk, and its processes: (pid, start time) of supervisor, keeper and training."""

    claim: Claim
    boot_id: str
    beat_mono_s: float
    supervisor: tuple[int, int]
    keeper: tuple[int, int] | None = None
    child: tuple[int, int] | None = None
    pidns: int = 0
    """Inode of the pid namespace of these pids; 0 where /proc shows another one."""


class OfAdministrator(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """/etc/carbontui/site.toml: the budgets that the administrator sets for users."""

    cap_w: float | None = None
    """The budget of a user not named below."""
    ramp_w_per_s: float | None = None
    users: dict[str, float] = {}
    """Watts by user name."""


@dataclass(eq=False)
class Ledger:
    """One user's ledger. `alive` tells whether a process (pid, start time) is alive."""

    directory: Path = field(default_factory=lambda: paths.limit_lease_dir() / "site")
    """Inside that of the power-limit leases: both belong to the machine, not to a state directory."""
    _: KW_ONLY
    administrator: Path = ADMINISTRATOR
    alive: Callable[[int, int], bool] = proc.same_process
    boot_id: str = field(default_factory=proc.boot_id)
    pidns: int = field(default_factory=proc.pid_namespace)
    _events: tuple[int, tuple[GridEvent, ...]] = (0, ())
    """As of the folder's last change."""

    # --- the budget ---

    def budget(self, now_s: float) -> SiteBudget | None:
        """The budget in force: the lower of the user's own (as set, else as configured) and the administrator's.
        Raises LedgerError."""
        own = self._own()
        if own is None or (own.until_s is not None and own.until_s <= now_s):
            own = self._configured()
        given = self._of_administrator()
        if own is None or (given is not None and given.cap_w <= own.cap_w):
            return given
        return own

    def set_budget(self, budget: SiteBudget | None) -> None:
        """Set, or remove, the user's own budget. Raises LedgerError."""
        with self._changing():
            if budget is None:
                self._budget_file.unlink(missing_ok=True)
            else:
                paths.write_whole(self._budget_file, msgspec.json.encode(budget))

    @property
    def _budget_file(self) -> Path:
        return self.directory / "budget.json"

    def _own(self) -> SiteBudget | None:
        try:
            return untrusted.decode(_read_private(self._budget_file), SiteBudget)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LedgerError(f"{self._budget_file}: {error}; set the budget again: carbontui site --cap") from None

    def _configured(self) -> SiteBudget | None:
        """The budget from config.toml or the environment."""
        try:
            text = config.load().settings.site_cap
            return SiteBudget(cap_w=units.parse_power(text), by="site_cap of the settings") if text else None
        except config.ConfigError as error:
            raise LedgerError(str(error)) from None
        except ValueError as error:
            raise LedgerError(f"{paths.config_file()} or CARBONTUI_SITE_CAP: site_cap: {error}") from None

    def _of_administrator(self) -> SiteBudget | None:
        """The administrator's budget, valid only if no one but root can have written it."""
        try:
            info = self.administrator.lstat()
            if not stat.S_ISREG(info.st_mode) or info.st_uid != 0 or info.st_mode & 0o022:
                raise LedgerError(f"{self.administrator}: ignored, because others than root may write it")
            found = msgspec.toml.decode(self.administrator.read_bytes(), type=OfAdministrator)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LedgerError(f"{self.administrator}: {error}") from None
        cap = found.users.get(link.whoami().rpartition("@")[0], found.cap_w)
        if cap is None:
            return None
        more = {} if found.ramp_w_per_s is None else {"ramp_w_per_s": found.ramp_w_per_s}
        return SiteBudget(cap_w=cap, by="the administrator", **more)

    # --- grid events ---

    def events(self) -> list[GridEvent]:
        """Every event ever taken, by its start; files that cannot be read are left out."""
        folder = self.directory / "events"
        try:
            changed_ns = folder.stat().st_mtime_ns
        except OSError:
            return []
        # a change within one tick of the disk's clock would not show
        if changed_ns != self._events[0] or time.time_ns() - changed_ns < 2e9:
            found = []
            for path in folder.glob("*.json"):
                with contextlib.suppress(OSError, ValueError):
                    found.append(untrusted.decode(_read_private(path), GridEvent))
            self._events = changed_ns, tuple(sorted(found, key=lambda one: (one.start_s, one.id)))
        return list(self._events[1])

    def event(self, wanted: str) -> GridEvent:
        """Raises EventError."""
        known = {one.id: one for one in self.events()}
        if wanted not in known:
            raise EventError(f"no event {wanted[:64]!r}; known: {', '.join(list(known)[-8:]) or 'none'}")
        return known[wanted]

    def add(self, event: GridEvent) -> None:
        """Take an event, or change the one of its id. Raises EventError, LedgerError."""
        with self._changing():
            known = {one.id: one for one in self.events()}
            event = events.changed(known.pop(event.id, event), event)
            if other := events.clash(event, [*known.values()]):
                span = f"{units.iso(other.start_s)} to {units.iso(other.end_s)}"
                raise EventError(f"it overlaps with {other.id} ({span}): carbontui site --cancel {other.id}")
            self._write(event)

    def cancel(self, wanted: str, now_s: float) -> None:
        """End an event now. Raises EventError, LedgerError."""
        with self._changing():
            self._write(events.cancelled(self.event(wanted), now_s))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            paths.private_dir(self.directory)
            # a process stopped while holding it must not block all others
            if (fd := life.locked(self.directory / "lock", LOCK_S)) is None:
                raise LedgerError(f"the site's ledger has been locked by another process for {LOCK_S:g} s")
            with os.fdopen(fd):  # closed, it is free
                yield
        except OSError as error:
            why = f"{self.directory} cannot hold the site's ledger ({error.strerror or error})"
            raise LedgerError(
                f"{why}: set CARBONTUI_LEASE_DIR, for all jobs of this machine alike, to a local folder of yours"
            ) from None

    def _write(self, event: GridEvent) -> None:
        folder = paths.private_dir(self.directory / "events")
        paths.write_whole(folder / f"{event.id}.json", msgspec.json.encode(event))
        self._events = (0, ())

    def _begun(self, event: GridEvent | None, mine: LedgerEntry, now_s: float) -> GridEvent | None:
        """The event; from its start on with a baseline, which the first job to see it fixes for all."""
        due_s = math.inf if event is None else max(event.start_s, event.taken_s + events.GATHER_S)
        if event is None or event.jobs or now_s < due_s:
            return event
        claims = [mine.claim, *(e.claim for e in self._entries(mine.beat_mono_s) if e.claim.job != mine.claim.job)]
        event = structs.replace(event, jobs=tuple(sorted(one.job for one in claims)))
        if event.baseline_w is None:
            total = round(sum(one.without_event_w for one in claims), 1)
            event = structs.replace(event, baseline_w=total, baseline_method=BASELINE_PLAN)
        self._write(event)
        return event

    # --- claims ---

    def claims(self, now_mono_s: float) -> list[Claim]:
        """All valid claims; those of jobs without a supervisor are marked as gone."""
        return [entry.claim for entry in self._entries(now_mono_s)]

    def exchange(self, mine: LedgerEntry, now_s: float) -> Headroom | None:
        """Renew a claim; returns the share, or None if there is neither a budget nor an event. Raises LedgerError."""
        budget, event = self.budget(now_s), events.current(self.events(), now_s)
        if budget is None and event is None:
            self.forget(mine.claim.job)
            return None
        budget = budget or NO_BUDGET
        with self._changing():
            others = [e.claim for e in self._entries(mine.beat_mono_s) if e.claim.job != mine.claim.job]
            ramp, event = self._ramp(mine, others, budget), self._begun(event, mine, now_s)
            claim, share = settle(mine.claim, others, budget, ramp.left_w, event, now_s)
            risen = max(0.0, claim.held_w - mine.claim.held_w)
            paths.write_whole(self.directory / "ramp", msgspec.json.encode(Ramp(ramp.at_s, ramp.left_w - risen)))
            paths.write_whole(self._file(claim.job), msgspec.json.encode(structs.replace(mine, claim=claim)))
        return share

    def forget(self, job: str) -> None:
        """Remove a claim: the job is over, or there is no budget any more."""
        with contextlib.suppress(OSError):
            self._file(job).unlink(missing_ok=True)

    def _ramp(self, mine: LedgerEntry, others: list[Claim], budget: SiteBudget) -> Ramp:
        burst = max(claim.least_w - min(claim.floor_w, claim.held_w) for claim in (mine.claim, *others))
        try:
            known = untrusted.decode(_read_private(self.directory / "ramp"), Ramp)
        except (OSError, ValueError):
            known = Ramp(mine.beat_mono_s, math.inf)
        if known.at_s > mine.beat_mono_s:
            known = Ramp(mine.beat_mono_s, 0.0)  # from before a reboot
        return known.at(mine.beat_mono_s, budget, burst)

    def _entries(self, now_mono_s: float) -> Iterator[LedgerEntry]:
        try:
            files = sorted(self.directory.glob("*.claim"))
        except OSError:
            return
        for path in files:
            try:
                entry = untrusted.decode(_read_private(path), LedgerEntry)
            except (OSError, ValueError):
                continue
            if entry.boot_id != self.boot_id:
                continue
            silent_s, hidden = now_mono_s - entry.beat_mono_s, entry.pidns not in (0, self.pidns)
            pids = [who for who in (entry.supervisor, entry.keeper, entry.child) if who is not None]
            if (hidden or self.alive(*entry.supervisor)) and silent_s < SILENT_S:
                yield entry
            elif silent_s < HIDDEN_S if hidden else any(self.alive(*who) for who in pids):
                yield structs.replace(entry, claim=structs.replace(entry.claim, gone=True))
            else:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _file(self, job: str) -> Path:
        return self.directory / f"{job}.claim"


def _read_private(path: Path) -> bytes:
    """Read a file that only we can write. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to somebody else")
        return file.read(65536)


class SiteExchange:
    """The ledger of this machine, for one supervisor: the process that asks."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()

    @cached_property
    def _me(self) -> tuple[int, int] | None:
        return _who(os.getpid())

    def exchange(
        self, claim: Claim, now_s: float, mono_s: float, keeper_pid: int | None, child_pid: int | None
    ) -> Headroom | None:
        """Renew the claim. Raises LedgerError."""
        if self._me is None:
            return None
        entry = LedgerEntry(
            claim=claim,
            boot_id=proc.boot_id(),
            beat_mono_s=mono_s,
            supervisor=self._me,
            keeper=_who(keeper_pid),
            child=_who(child_pid),
            pidns=self.ledger.pidns,
        )
        return self.ledger.exchange(entry, now_s)

    def withdraw(self, job: str) -> None:
        self.ledger.forget(job)


def _who(pid: int | None) -> tuple[int, int] | None:
    started = proc.start_time(pid) if pid else None
    return (pid, started) if pid and started else None
