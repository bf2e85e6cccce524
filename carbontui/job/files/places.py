"""The right to train: on which machines a job has trained, which one may start its command, and until when.

places.json in the job's directory at each of its places; absent for a job that never moved. Exactly one place is the
*holder*. Its right to train is a lease of the place before it, the *watcher*, which takes the job back once that has
surely ended. The rules by which it passes are the extension's (`extensions/moves/lease.py`), and so is what the places
say to each other. A keeper knows the *permit* alone. Standard library only, for the keeper.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from carbontui.client import marker
from carbontui.job.terms import records
from carbontui.system import proc

NAME = "places.json"

LEASE_S = 600.0
"""How long a machine that is not heard keeps the job: a reboot or a lost line shorter than this costs nothing."""
MARGIN = 0.1
"""Of a lease. The watcher takes the job back this much after the holder has ended it: clocks that run apart, a process
slow to die. The holder unloads this much before that, and the time that a checkpoint takes."""
UNLOAD = 0.8
"""Of a lease: an unload takes no more of it, or the holder would unload between two renewals."""
START = 2 / 3
"""Of a lease: with less of it left the holder starts nothing."""


class Stay(NamedTuple):
    """One machine at which the job trains for a while. Times are epoch seconds."""

    host: str = ""
    zone: str = ""
    """Its grid zone; '' where that is not known."""
    boot: str = ""
    since: float = 0.0
    until: float | None = None
    """When the job left it; None: it is there."""
    bytes: int = 0
    """Copied to bring the job here; with `took_s` and `joules` the cost of the move into this place."""
    took_s: float = 0.0
    """From the last step there to the start of the command here."""
    joules: float | None = None


class At(NamedTuple):
    """An instant of one machine: the clock of boots, which counts sleep, and which boot that is."""

    now_s: float
    boot: str


class Permit(NamedTuple):
    """Whether a place may train: of this file as its keeper starts, then as its helper says, with what that is about.
    It is on disk before it is said."""

    holder: bool
    leased: bool
    ends: float = 0.0
    lease_s: float = LEASE_S
    margin_s: float = LEASE_S * MARGIN
    boot: str = ""
    peer: str = ""
    moving: str = ""
    """The machine that the command is to be unloaded for; '' if for none."""
    release: bool = False
    """The place before is asked to let the job go."""
    reached: str = ""
    """Whether the machine that it is being moved to can be reached: `yes`, or why not; '' before that is known."""
    ended: dict[str, Any] | None = None
    """How the job has ended elsewhere, as exit.json has it; {}: its keeper is to leave without a word."""

    def left_s(self, at: At) -> float:
        """Seconds until the lease ends; none after a reboot, of which nobody knows how long it took."""
        return self.ends - at.now_s if self.boot == at.boot else 0.0

    def may_run(self, at: At) -> bool:
        """Whether this place may have the command running now."""
        return self.holder and (not self.leased or self.left_s(at) > 0.0)

    def may_start(self, at: At) -> bool:
        """Whether this place may start it: what was unloaded because the watcher did not answer waits for word."""
        enough = not self.leased or self.left_s(at) > self.lease_s * START
        return self.may_run(at) and enough and not self.moving and self.ended is None

    def facts(self, boot: str) -> dict[str, Any]:
        """What supervisor and verbs are told of it."""
        ends = (self.ends if self.boot == boot else 0.0) if self.holder and self.leased else None
        terms = {name: getattr(self, name) for name in ("moving", "release", "reached", "lease_s", "margin_s")}
        return {**terms, "moved_to": "" if self.holder else self.peer, "lease_ends": ends}


class Places(NamedTuple):
    """The right to train, as this place knows it."""

    token: int
    """Grows by one at each hand-over and at each taking back; an older one is void."""
    holder: bool
    """This place may start the command (while its lease lasts, if `leased`)."""
    leased: bool
    """The right is a lease: of the holder here, or (where this place is not the holder) of the one at `peer`. Without
    one the holder has it for good."""
    ends: float = 0.0
    """When this lease ends, on the clock of boots of `boot`."""
    lease_s: float = LEASE_S
    """How long a lease is granted for, and its margin: the watcher's word, whatever is the holder's own setting."""
    margin_s: float = LEASE_S * MARGIN
    start_s: float = 0.0
    """How long a start of the command takes, as rehearsed before the hand-over."""
    boot: str = ""
    peer: str = ""
    """The machine of the hand-over, user@host as ssh takes it: where the job is, or where it came from."""
    call: tuple[str, ...] = ()
    """The command by which the holder at `peer` is reached."""
    agent: str = ""
    """SSH_AUTH_SOCK for it; '' without one."""
    places: tuple[Stay, ...] = ()
    """Oldest first; the last one is the holder's."""

    @property
    def moved_to(self) -> str:
        """Where the job is, if that is not here; '' where it is here."""
        return "" if self.holder else self.peer

    def permit(self, **more: Any) -> Permit:
        """What the keeper is told of it."""
        known = {name: value for name, value in self._asdict().items() if name in Permit._fields}
        return Permit(**known, **more)

    def leased_for(self, lease_s: float, at: At) -> Places:
        """With a lease that began at this instant."""
        return self._replace(ends=at.now_s + lease_s, boot=at.boot)


NEVER_MOVED = Places(0, holder=True, leased=False)
UNREADABLE = Places(-1, holder=False, leased=False)
"""Of a damaged file: nothing is started, for another place may have the job."""


def now() -> At:
    """A machine that slept has outlived its lease: those seconds count."""
    return At(time.clock_gettime(time.CLOCK_BOOTTIME), proc.boot_id())


def read(directory: str | Path) -> Places:
    """As the file says; NEVER_MOVED without one, UNREADABLE for a damaged one."""
    try:
        return records.decode(records.read_bytes(f"{directory}/{NAME}"), Places)
    except FileNotFoundError:
        return NEVER_MOVED
    except (OSError, ValueError):
        return UNREADABLE


def write(directory: str | Path, places: Places) -> None:
    """Replace the file, durably. Raises OSError."""
    record = {**places._asdict(), "places": [stay._asdict() for stay in places.places]}
    marker.write_atomic(f"{directory}/{NAME}", json.dumps(record).encode(), mode=0o600)
