"""places.json: on which machines a job has trained, which one may start its command, and until when.

In the job's directory at each of its places; absent for a job that never moved. Exactly one place is the *holder*. Its
right to train is a lease of the place before it, the *watcher*, which takes the job back once that has surely ended.
Standard library only, for the keeper.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from carbontui.job.files import records
from carbontui.system import proc

NAME = "places.json"


LEASE_S, LEAST_LEASE_S = 600.0, 120.0
"""How long a machine that is not heard keeps the job: a reboot or a lost line shorter than this costs nothing."""
MARGIN = 0.1
"""Of a lease. The watcher takes the job back this much after the holder has ended it: clocks that run apart, a process
slow to die. The holder unloads this much before that, and the time that a checkpoint takes."""
RENEWED = 0.05
"""Of a lease: how often it is renewed."""
UNLOAD = 0.8
"""Of a lease: an unload takes no more of it, or the holder would unload between two renewals."""


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


class PlaceLease(NamedTuple):
    """A right to train until `ends` (the clock of boots; None: for good), and the terms on which it was given."""

    ends: float | None
    lease_s: float | None
    margin_s: float | None


class Places(NamedTuple):
    """The right to train, as this place knows it."""

    token: int = 0
    """Grows by one at each hand-over and at each taking back; an older one is void."""
    holder: bool = True
    """This place may start the command (while its lease lasts, if `leased`)."""
    leased: bool = False
    """The right is a lease: of the holder here, or (where this place is not the holder) of the one at `peer`. Without
    one the holder has it for good."""
    ends: float = 0.0
    """When this lease ends, on the clock of boots (`now`) of `boot`."""
    lease_s: float = LEASE_S
    """How long a lease is granted for, and its margin: the watcher's word, whatever is the holder's own setting."""
    margin_s: float = LEASE_S * MARGIN
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
    def may_start(self) -> bool:
        """Whether this place may have the command running now."""
        return self.holder and (not self.leased or self.left_s > 0.0)

    @property
    def left_s(self) -> float:
        """Seconds until the lease ends; none after a reboot, of which nobody knows how long it took."""
        return self.ends - now() if self.boot == proc.boot_id() else 0.0

    @property
    def moved_to(self) -> str:
        """Where the job is, if that is not here; '' where it is here."""
        return "" if self.holder else self.peer

    def leased_for(self, lease_s: float, since: float | None = None) -> Places:
        """With a lease that began at `since` (`now`)."""
        return self._replace(ends=(now() if since is None else since) + lease_s, boot=proc.boot_id())

    def granted(self, ends: float | None, lease_s: float | None, margin_s: float | None) -> Places:
        """Held by such a lease. Untold, it is as long as it lasts from now, and its margin a tenth."""
        if ends is None:
            return self._replace(holder=True, leased=False)
        lease_s = ends - now() if lease_s is None else lease_s
        margin_s = lease_s * MARGIN if margin_s is None else margin_s
        held = self._replace(holder=True, leased=True, lease_s=lease_s, margin_s=margin_s)
        return held._replace(ends=ends, boot=proc.boot_id())


NEVER_MOVED = Places()
UNREADABLE = Places(token=-1, holder=False)
"""Of a damaged file: nothing is started, for another place may have the job."""


def now() -> float:
    """Seconds since this boot, those asleep included: a machine that slept has outlived its lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def least_lease_s(unload_s: float) -> float:
    """The shortest lease for a training whose unload takes so long."""
    return max(LEAST_LEASE_S, math.ceil(unload_s / UNLOAD))


def asked_lease_s() -> float:
    """The lease under which a job that leaves here is to be held elsewhere. Raises ValueError."""
    text = os.environ.get("CARBONTUI_LEASE_S") or str(LEASE_S)
    with contextlib.suppress(ValueError):
        if text.isascii() and LEAST_LEASE_S <= (lease_s := float(text)) < records.MOST:
            return lease_s
    raise ValueError(f"CARBONTUI_LEASE_S={text!r}: seconds, {LEAST_LEASE_S:.0f} or more")


def read(directory: str | Path) -> Places:
    """As the file says; NEVER_MOVED without one, UNREADABLE for a damaged one."""
    try:
        with open(f"{directory}/{NAME}") as file:  # noqa: PTH123
            record = json.load(file)
    except FileNotFoundError:
        return NEVER_MOVED
    except (OSError, ValueError, RecursionError):
        return UNREADABLE
    try:
        return parsed(record)
    except (AttributeError, TypeError, ValueError, KeyError):
        return UNREADABLE


def parsed(record: dict[str, Any]) -> Places:
    """Of its JSON; fields of newer versions are ignored. Raises AttributeError, TypeError, ValueError or KeyError for
    another value."""
    if not {"token", "holder", "leased"} <= record.keys():
        raise KeyError("not a place")
    known = records.known(Places._field_defaults, record)
    stays = tuple(Stay(**records.known(Stay._field_defaults, one)) for one in known.get("places", ()))
    return Places(**{**known, "places": stays, "call": tuple(map(str, known.get("call", ())))})


def write(directory: str | Path, places: Places) -> None:
    """Replace the file, durably. Raises OSError."""
    temporary = f"{directory}/{NAME}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            json.dump({**places._asdict(), "places": [stay._asdict() for stay in places.places]}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, f"{directory}/{NAME}")  # noqa: PTH105
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
