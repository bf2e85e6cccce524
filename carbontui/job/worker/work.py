"""How much work a training is: what the sources state, and one pure function that folds it.

A source makes a claim: a framework by the stages it has begun, the loops and passes of the code, a schedule, a bar.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

COUNT_MAX = 2**53
ENDLESS = 10**7
"""As many iterations or more are no end: scripts write it where something else ends the loop."""
NEAR = 0.02
"""Totals that differ by less are the same."""
SOURCE_MAX = 120
SLACK = 0.01
"""A total that the code states may be off by this much, and by one: loops end a step early or late."""


class TotalClaim(NamedTuple):
    """What one source says. `low` and `high` bound the total, high None for no limit."""

    kind: str
    """framework, code, schedule or bar: claims of two kinds are independent."""
    steps: float
    source: str
    low: float = 0.0
    high: float | None = None
    at_most: bool = False
    sure: bool = False
    """Borne out by a whole pass, or a good part of the loop."""
    more: bool = False
    """There may be more than this, whatever agrees with it."""


class LoopAround(NamedTuple):
    """One loop around a place. times: None if not known; at_most: something may end it earlier."""

    line: int
    times: int | None
    at_most: bool = False
    text: str = ""


class LoopBound(NamedTuple):
    """Depth `to` is reached `times` times at most in one run of depth `of`."""

    of: int
    to: int
    times: int
    exact: bool = True
    """False if it is not known from which number it is counted."""
    text: str = ""


class StepCounter(NamedTuple):
    """A number of a module that counts the steps: what it is at the last one, and by how much it goes up."""

    module: str
    name: str
    end: int
    by: float
    text: str = ""


class Nest(NamedTuple):
    """The loops around a place of the code, the outermost first, and what else its source says."""

    loops: tuple[LoopAround, ...] = ()
    bounds: tuple[LoopBound, ...] = ()
    counters: tuple[StepCounter, ...] = ()
    more: bool = False
    """There may be more steps than the loops say."""
    key: str = ""
    """The stage of the command: changes where the training goes on in another place."""
    share: float = 1
    """Batches that a step is made of, where the code says so."""
    sometimes: bool = False
    """A step is made on a condition that cannot be followed."""
    ahead: Any = ()
    """In the worker: the statements behind these loops that train too."""
    later: Sequence[Any] | None = (0.0, "")
    """Steps of these, and what says so; None where the code does not tell."""
    timed: bool = False
    """A clock ends one of the loops."""
    over: bool = False
    """A for statement begins here: a pass that is only asked for with iter() may end anywhere."""
    replaced: bool = False
    """What it runs over is replaced on some condition."""
    varies: int | None = None
    """How many loops are around the one on whose variable it depends how long a pass is."""


def certain(nest_: Nest) -> bool:
    """Whether nothing may end these loops earlier."""
    sometimes = nest_.sometimes or any(one.at_most for one in nest_.loops)
    return not sometimes and all(one.exact for one in nest_.bounds)


def reached(nest_: Nest, depth: int) -> float | None:
    """How often this depth is reached in all; None if that is not known."""
    times: list[float] = [1.0]
    for d in range(1, depth + 1):
        own_ = nest_.loops[d - 1].times
        most = times[d - 1] * own_ if own_ is not None else math.inf
        for bound in nest_.bounds:
            if bound.to == d and bound.of < d:
                most = min(most, times[bound.of] * bound.times)
        times.append(most)
    return times[depth] if math.isfinite(times[depth]) and times[depth] < ENDLESS * 100 else None


class FoldedWork(NamedTuple):
    """What `fold` makes of all claims."""

    done: int
    low: int
    likely: int
    high: int | None
    at_most: bool
    source: str
    sure: bool
    """Good enough to plan with."""
    known: bool = False
    """Nothing can end it otherwise."""


def text_of(nest: Nest) -> str:
    return " x ".join(one.text for one in nest.loops if one.text)


def fold(done: int, claims: Sequence[TotalClaim]) -> FoldedWork | None:
    """The work by all claims, the first of them the best, after `done` steps. None if none can hold."""
    holding = [one for one in claims if holds(one, done)]
    if not holding:
        return None
    best = holding[0]
    others = (one for one in holding[1:] if one.kind != best.kind)
    agreeing = [one for one in others if abs(one.steps - best.steps) <= NEAR * best.steps]
    source = " and ".join(dict.fromkeys(one.source for one in [best, *agreeing[:1]]))[:SOURCE_MAX]
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


def still(total: FoldedWork | None, steps: int) -> FoldedWork | None:
    """What was said before, as long as that can hold."""
    if total is None or steps > (total.high or total.likely):
        return None
    return total._replace(done=steps, low=max(total.low, min(steps, total.likely)))


def about(steps: float) -> tuple[float, float]:
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
