"""How much work a training is: what the sources state, and one pure function that folds it.

A source makes a claim: a framework by the stages it has begun, the loops and passes of the code, a schedule, a bar.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional, Sequence, Tuple

COUNT_MAX = 2**53
NEAR = 0.02
"""Totals that differ by less are the same."""
SLACK = 0.01
"""A total that the code states may be off by this much, and by one: loops end a step early or late."""


class TotalClaim(NamedTuple):
    """What one source says. `low` and `high` bound the total, high None for no limit."""

    kind: str
    """framework, code, schedule or bar: claims of two kinds are independent."""
    steps: float
    source: str
    low: float = 0.0
    high: Optional[float] = None
    at_most: bool = False
    sure: bool = False
    """Borne out by a whole pass, or a good part of the loop."""
    more: bool = False
    """There may be more than this, whatever agrees with it."""


class Stage(NamedTuple):
    """A training that a framework makes in one call, as it states it: fit(), train()."""

    at: Tuple[Any, ...]
    """The place of the code that calls it."""
    began: int
    """Steps done when it began."""
    expected: Optional[int]
    """Steps from there to its end."""
    until: str = ""
    """What may end it earlier; '' for nothing."""
    number: int = 1
    """How many were begun at its place, itself among them."""
    ended: Optional[int] = None
    """Steps done at its end; None while it is under way."""
    chain: Any = ()
    """The frames that call it."""
    times: Optional[int] = 0
    """Of a sweep's trial: how many its library makes in one call, None for no number; 0 for another stage."""


class FoldedWork(NamedTuple):
    """What `fold` makes of all claims."""

    done: int
    low: int
    likely: int
    high: Optional[int]
    at_most: bool
    source: str
    sure: bool
    """Good enough to plan with."""
    known: bool = False
    """Nothing can end it otherwise."""


def fold(done: int, claims: Sequence[TotalClaim]) -> Optional[FoldedWork]:
    """The work by all claims, the first of them the best, after `done` steps. None if none can hold."""
    holding = [one for one in claims if holds(one, done)]
    if not holding:
        return None
    best = holding[0]
    others = (one for one in holding[1:] if one.kind != best.kind)
    agreeing = [one for one in others if abs(one.steps - best.steps) <= NEAR * best.steps]
    source = " and ".join(dict.fromkeys(one.source for one in [best, *agreeing[:1]]))
    low, high = best.low, best.high
    if agreeing and high is None and not best.more:
        low, high = about(best.steps)
    most = max(done, round(best.steps))
    if best.at_most and high is None:
        high = most
    low_steps = min(max(done, math.floor(low)), most)
    sure = high is not None and (best.sure or bool(agreeing))
    whole = None if high is None else max(most, math.ceil(high))
    return FoldedWork(done, low_steps, most, whole, best.at_most, source, sure, low == high)


def holds(claim: TotalClaim, done: int) -> bool:
    most = claim.steps if claim.high is None else claim.high
    return 1 < claim.steps < COUNT_MAX and done <= max(most, about(claim.steps)[1])


def about(steps: float) -> Tuple[float, float]:
    return steps * (1 - SLACK) - 1, steps * (1 + SLACK) + 1


def opened(claim: TotalClaim, low: float) -> TotalClaim:
    """The claim where more may come than it says."""
    return claim._replace(low=low, high=None, at_most=False, sure=False, more=True)


def followed(claim: TotalClaim, later: float, text: str) -> TotalClaim:
    """The claim with the steps of later stages."""
    if not later:
        return claim
    low, high = about(later)
    most = None if claim.high is None else claim.high + high
    source = f"{claim.source} + {text}"
    return claim._replace(steps=claim.steps + later, source=source, low=claim.low + low, high=most)


def staged(stages: Sequence[Stage], done: int, times: Optional[float], text: str) -> Optional[TotalClaim]:
    """What the last of these stages and those still to come at its place are, of which the code makes `times` (None:
    not known) by the loops in `text`. More of them than that: then there may be others yet."""
    now = stages[-1]
    if now.expected is None:
        return None
    end = now.began + now.expected if now.ended is None else now.ended
    until = now.until if now.ended is None else ""
    each = f"{now.times} trials" if now.times else ""
    source = " x ".join(one for one in (text, each, "a fit") if one) + (f" until {now.until}" if now.until else "")
    low, left = float(done if until or (now.times != 0 and now.ended is None) else end), -1.0
    if times is not None and now.times is not None:
        left = times * (now.times or 1) - now.number
    if left < 0:
        return TotalClaim("framework", end, source, low, more=True)
    sizes = [one.ended - one.began for one in stages if one.at == now.at and one.ended is not None]
    few, apart = len(sizes) < 2, not now.until and min(sizes, default=0) < (1 - NEAR) * max(sizes, default=0)
    sizes = [now.expected] if now.until else [*sizes, now.expected]
    total = end + left * sum(sizes) / len(sizes)
    if now.times != 0 and (few or apart or done > about(end)[1]):
        return TotalClaim("framework", total, source, float(done), more=True)
    if now.until and (left or until):
        return TotalClaim("framework", total, source, low, total, at_most=True, sure=True)
    if now.times and now.ended is None:  # nobody has stated its length
        end, left = now.began, left + 1
    if not left:
        return TotalClaim("framework", end, source, end, end, sure=True)
    low, high = end + left * min(sizes) * (1 - SLACK) - 1, end + left * max(sizes) * (1 + SLACK) + 1
    return TotalClaim("framework", total, source, low, high, sure=True)
