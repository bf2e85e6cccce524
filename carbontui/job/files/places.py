"""The right to train: on which machines a job has trained, which one may start its command, and until when.

places.json in the job's directory at each of its places; absent for a job that never moved. Exactly one place is the
*holder*. Its right to train is a lease of the place before it, the *watcher*, which takes the job back once that has
surely ended. The rules by which it passes are here, pure, and used by keeper, supervisor and verbs. So is what the two
places say to each other over ssh: JSON, one object per line, each checked by `records.decode` before anything is done.
Standard library only, for the keeper.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from carbontui.job.terms import records
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
START = 2 / 3
"""Of a lease: with less of it left the holder starts nothing."""
GRANT_S = 60.0
"""A machine that has not been sent a grant within this has not got the job."""
PATIENCE_LEASES, PATIENCE_STARTS = 3, 3
"""The rule of life beside that of safety: a holder whose command has not lived for so many leases and so many starts
gives the job back, however well its lease is renewed."""


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


class Greeting(NamedTuple):
    """there -> keeper: begins each conversation; a lease counts from before. `leave`: it moves the job on, and asks to
    be let go."""

    ready: bool
    leave: bool = False


class Grant(NamedTuple):
    """keeper -> there: the right to train, its length and margin; `lease_s` None: for good."""

    token: int = 0
    lease_s: float | None = None
    margin_s: float | None = None
    step: int = 0
    """At the hand-over."""
    back: bool = False
    """The job is here again: what is there is to end."""
    recall: str = ""
    """Why nothing is granted any more: it is to end there, and then goes on here."""
    ping: bool = False


class HoldAnswer(NamedTuple):
    """there -> keeper: what follows from a grant; `error`: nothing has been done, `refused`: nor will it be."""

    ok: bool = False
    error: str = ""
    refused: bool = False
    lives: bool = True
    """Its command runs there, or waits for an hour that is known."""
    back: bool = False
    """It has failed before its first step there."""
    left: bool = False
    """It has been recalled, and nothing of it runs there any more."""
    own: bool = False
    """It is not this keeper's to grant any more."""
    over: dict[str, Any] | None = None
    """How it has ended there, as exit.json has it."""


class At(NamedTuple):
    """An instant of one machine: the clock of boots, which counts sleep, and which boot that is."""

    now_s: float
    boot: str


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

    @property
    def whole_s(self) -> float:
        """How long the watcher waits: the lease and its margin."""
        return self.lease_s + self.margin_s

    @property
    def patience_s(self) -> float:
        """The holder without a living command for this long gives the job back."""
        return max(PATIENCE_LEASES * self.lease_s, PATIENCE_STARTS * self.start_s)

    def left_s(self, at: At) -> float:
        """Seconds until the lease ends; none after a reboot, of which nobody knows how long it took."""
        return self.ends - at.now_s if self.boot == at.boot else 0.0

    def may_run(self, at: At) -> bool:
        """Whether this place may have the command running now."""
        return self.holder and (not self.leased or self.left_s(at) > 0.0)

    def may_start(self, at: At) -> bool:
        """Whether this place may start it: what was unloaded because the watcher did not answer waits for word."""
        return self.may_run(at) and (not self.leased or self.left_s(at) > self.lease_s * START)

    def leased_for(self, lease_s: float, at: At) -> Places:
        """With a lease that began at this instant."""
        return self._replace(ends=at.now_s + lease_s, boot=at.boot)


class WatchState(NamedTuple):
    """What a watcher knows besides, of the hand-over of `Places.token`; a successor of its keeper begins with none."""

    lives_s: float = 0.0
    """When the holder last had a living command."""
    before_s: float = 0.0
    """When the lease would end without the last grant, which may be refused."""
    step: int = 0
    for_good: bool = False
    """The job is to be the holder's without a lease, once it has confirmed that it has it."""
    settled: bool = False
    """The holder has confirmed what it was last sent."""
    recall: str = ""
    """Why nothing is granted any more, once that is so; '' before."""


class AfterAnswer(NamedTuple):
    """What follows from an answer of the holder."""

    known: Places
    watch: WatchState
    take_back: str = ""
    """Why the job is here again; '' if it is not."""
    ended: dict[str, Any] | None = None
    """How it has ended elsewhere; {} if only its being here has."""


NEVER_MOVED = Places(0, holder=True, leased=False)
UNREADABLE = Places(-1, holder=False, leased=False)
"""Of a damaged file: nothing is started, for another place may have the job."""


def now() -> At:
    """A machine that slept has outlived its lease: those seconds count."""
    return At(time.clock_gettime(time.CLOCK_BOOTTIME), proc.boot_id())


# --- the rules: no file, no clock, no process ---


def least_lease_s(unload_s: float) -> float:
    """The shortest lease for a training whose unload takes so long."""
    return max(LEAST_LEASE_S, math.ceil(unload_s / UNLOAD))


def watching(known: Places, at: At) -> tuple[Places, WatchState]:
    """As a keeper finds it that has just begun: when its predecessor renewed the lease last is not known."""
    if not known.holder and known.leased:
        known = known.leased_for(known.whole_s, at)
    return known, WatchState(lives_s=at.now_s, before_s=known.ends)


def handed_over(known: Places, at: At, *, peer: str, places: tuple[Stay, ...], **terms: Any) -> Places:
    """Another machine's. Nothing is granted yet: where it cannot be, the job is soon here again."""
    moved = known._replace(token=known.token + 1, holder=False, leased=True, peer=peer, places=places, **terms)
    return moved.leased_for(GRANT_S, at)


def grant(known: Places, watch: WatchState, at: At, *, leave: bool) -> tuple[Places, WatchState, Grant]:
    """What the other place is sent. A lease counts here from before it leaves."""
    if known.holder:
        return known, watch, Grant(known.token, back=True)
    if leave and known.leased:
        known = known._replace(leased=False)
    if not known.leased:
        return known, watch, Grant(known.token, margin_s=known.margin_s, step=watch.step)
    if watch.recall or at.now_s - watch.lives_s > known.patience_s:
        # to a version that knows no recall it is a ping, and the lease runs out
        why = watch.recall or f"no command has lived there for {at.now_s - watch.lives_s:.0f} s"
        return known, watch._replace(recall=why), Grant(known.token, recall=why, ping=True)
    watch, given = watch._replace(before_s=known.ends), known.leased_for(known.whole_s, at)
    return given, watch, Grant(known.token, known.lease_s, known.margin_s, watch.step)


def answered(known: Places, watch: WatchState, sent: Grant, answer: HoldAnswer, at: At) -> AfterAnswer:
    """What follows from the answer to what was sent; nothing if that is no longer of the present token."""
    if sent.token != known.token or (sent.ping and not sent.recall):
        return AfterAnswer(known, watch)
    if not answer.ok:
        if answer.refused and not known.holder and known.leased:  # not taken, nor will it be
            known = known._replace(ends=min(known.ends, watch.before_s))
        return AfterAnswer(known, watch)
    watch = watch._replace(settled=True, lives_s=at.now_s if answer.lives else watch.lives_s)
    if known.holder:
        return AfterAnswer(known._replace(peer="", call=()), watch)
    if answer.back:
        return AfterAnswer(known, watch, "it did not start there")
    if answer.left:
        return AfterAnswer(known, watch, watch.recall or "it is not held there any more")
    if answer.over is not None:
        return AfterAnswer(known, watch, ended=answer.over)
    if answer.own or not known.leased:
        return AfterAnswer(known, watch, ended={})
    if watch.for_good:
        return AfterAnswer(known._replace(leased=False), watch._replace(settled=False))
    return AfterAnswer(known, watch)


def taken_back(known: Places, stay: Stay) -> Places:
    """The job is here again; its command is started from its last checkpoint here."""
    zone = known.places[-1].zone if known.places else ""
    return known._replace(
        token=known.token + 1, holder=True, leased=False, places=(*known.places, stay._replace(zone=zone))
    )


def granted(known: Places, terms: Grant, at: At) -> Places:
    """Held by a grant that was asked for at this instant, and not for less than before: grants may overtake each other.
    Its margin is a tenth where none was named."""
    if terms.lease_s is None or (known.holder and not known.leased):
        return known._replace(holder=True, leased=False)
    margin_s = terms.lease_s * MARGIN if terms.margin_s is None else terms.margin_s
    held = known._replace(holder=True, leased=True, lease_s=terms.lease_s, margin_s=margin_s)
    later = max(at.now_s + terms.lease_s, known.ends if known.holder and known.boot == at.boot else 0.0)
    return held._replace(ends=later, boot=at.boot)


Verdict = Literal["end", "leave", "install", "refuse", "own", "over", "renew"]


def received(known: Places | None, arrived: int, terms: Grant, *, over: bool) -> Verdict:
    """What a place does with a grant. `known`: of its job, None without one; `arrived`: the token of what has been
    copied here and not begun, 0 without; `over`: the job has ended here."""
    token = -1 if known is None else known.token
    if terms.back:
        return "end" if token < terms.token else "own"
    begun = known is not None and known.holder and not over
    if terms.recall and token <= terms.token:
        return "over" if over and known is not None and known.holder and token == terms.token else "leave"
    if arrived == terms.token and not begun:
        return "install"
    if known is None or token < terms.token:
        return "refuse"
    if token > terms.token:
        return "own"
    return "leave" if not known.holder else "over" if over else "renew"


# --- the setting, and the file ---


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
        return records.decode(records.read_bytes(f"{directory}/{NAME}"), Places)
    except FileNotFoundError:
        return NEVER_MOVED
    except (OSError, ValueError):
        return UNREADABLE


def write(directory: str | Path, places: Places) -> None:
    """Replace the file, durably. Raises OSError."""
    record = {**places._asdict(), "places": [stay._asdict() for stay in places.places]}
    records.write(f"{directory}/{NAME}", json.dumps(record).encode())
