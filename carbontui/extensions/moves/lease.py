"""The rules by which the right to train passes between two machines, pure, for helper and verbs alike; and what those
say to each other over ssh: JSON, one object per line, each checked by `records.decode` before anything is done."""

import contextlib
import math
import os
from typing import Any, Literal, NamedTuple

from carbontui.job.files.places import LEASE_S, MARGIN, UNLOAD, At, Places, Stay
from carbontui.job.terms import records

LEAST_LEASE_S = 120.0
RENEWED = 0.05
"""Of a lease: how often it is renewed."""
GRANT_S = 60.0
"""A machine that has not been sent a grant within this has not got the job."""
PATIENCE_LEASES, PATIENCE_STARTS = 3, 3
"""The rule of life beside that of safety: a holder whose command has not lived for so many leases and so many starts
gives the job back, however well its lease is renewed."""


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


def whole_s(known: Places) -> float:
    """How long the watcher waits: the lease and its margin."""
    return known.lease_s + known.margin_s


def patience_s(known: Places) -> float:
    """The holder without a living command for this long gives the job back."""
    return max(PATIENCE_LEASES * known.lease_s, PATIENCE_STARTS * known.start_s)


def least_lease_s(unload_s: float) -> float:
    """The shortest lease for a training whose unload takes so long."""
    return max(LEAST_LEASE_S, math.ceil(unload_s / UNLOAD))


def watching(known: Places, at: At) -> tuple[Places, WatchState]:
    """As a keeper finds it that has just begun: when its predecessor renewed the lease last is not known."""
    if not known.holder and known.leased:
        known = known.leased_for(whole_s(known), at)
    return known, WatchState(lives_s=at.now_s, before_s=known.ends)


def handed_over(known: Places, at: At, *, peer: str, segments: tuple[Stay, ...], **terms: Any) -> Places:
    """Another machine's. Nothing is granted yet: where it cannot be, the job is soon here again."""
    moved = known._replace(token=known.token + 1, holder=False, leased=True, peer=peer, places=segments, **terms)
    return moved.leased_for(GRANT_S, at)


def grant(known: Places, watch: WatchState, at: At, *, leave: bool) -> tuple[Places, WatchState, Grant]:
    """What the other place is sent. A lease counts here from before it leaves."""
    if known.holder:
        return known, watch, Grant(known.token, back=True)
    if leave and known.leased:
        known = known._replace(leased=False)
    if not known.leased:
        return known, watch, Grant(known.token, margin_s=known.margin_s, step=watch.step)
    if watch.recall or at.now_s - watch.lives_s > patience_s(known):
        # to a version that knows no recall it is a ping, and the lease runs out
        why = watch.recall or f"no command has lived there for {at.now_s - watch.lives_s:.0f} s"
        return known, watch._replace(recall=why), Grant(known.token, recall=why, ping=True)
    watch, given = watch._replace(before_s=known.ends), known.leased_for(whole_s(known), at)
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


def asked_lease_s() -> float:
    """The lease under which a job that leaves here is to be held elsewhere. Raises ValueError."""
    text = os.environ.get("CARBONTUI_LEASE_S") or str(LEASE_S)
    with contextlib.suppress(ValueError):
        if text.isascii() and LEAST_LEASE_S <= (lease_s := float(text)) < records.MOST:
            return lease_s
    raise ValueError(f"CARBONTUI_LEASE_S={text!r}: seconds, {LEAST_LEASE_S:.0f} or more")
