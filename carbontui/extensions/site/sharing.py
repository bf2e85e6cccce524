"""How much each of a machine's jobs may draw: one pure function of all their claims, so that all supervisors agree.

Watts are those of a job's boards, which power limits govern; the machine's other draw is not in the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from carbontui.extensions.site.events import GridEvent
from carbontui.headroom import TOLERANCE_W, Claim, EventSpan, Headroom

SLACK_STEP_S = 900.0
"""Among jobs whose slack differs by less, running ones continue: turns change by the slot, not by the second."""
RAMP_W_PER_S = 100.0
BURST_S = 5.0
"""Unused increases accumulate to at most this many seconds' worth; a larger single step waits for it."""


class SiteBudget(Struct, frozen=True, kw_only=True):
    """The budget of a machine; `until_s` (epoch seconds) ends it."""

    cap_w: float
    ramp_w_per_s: float = RAMP_W_PER_S
    until_s: float | None = None
    by: str = ""


def sheddable(claims: Iterable[Claim]) -> float:
    """Watts by which all jobs can fall below what they would draw during an event, each keeping its deadline."""
    return sum(max(0.0, claim.without_event_w - claim.least_in_event_w) for claim in claims)


def under_event(claims: Sequence[Claim], cap_w: float) -> tuple[list[Claim], float]:
    """The claims with a floor that keeps each job's deadline, and the event's watts, raised to the sum of these."""
    kept = [
        structs.replace(
            claim, floor_w=claim.least_in_event_w, least_w=min(claim.full_w, max(claim.least_w, claim.least_in_event_w))
        )
        for claim in claims
    ]
    least = sum(claim.full_w if claim.gone else min(claim.floor_w, claim.wants_w) for claim in kept)
    return kept, max(cap_w, least)


def allot(claims: Iterable[Claim], cap_w: float) -> dict[str, float]:
    """Watts per job: boosts first, then the lowest running level to those with the least slack, then one level of
    watts per board for all that run, as high as the budget allows. Deterministic."""
    steered = sorted((claim for claim in claims if not claim.gone), key=lambda claim: claim.job)
    gets = {claim.job: min(claim.floor_w, claim.wants_w) for claim in steered}
    room = cap_w - sum(claim.full_w for claim in claims if claim.gone) - sum(gets.values())
    for claim in sorted((c for c in steered if c.boost_s is not None), key=lambda c: (c.boost_s or 0.0, c.job)):
        room -= _raise(gets, claim, claim.wants_w, room, least_w=claim.least_w)
    waiting = [c for c in steered if c.boost_s is None and c.wants_w > gets[c.job] + TOLERANCE_W]
    for claim in sorted(waiting, key=_urgency):
        room -= _raise(gets, claim, min(claim.least_w, claim.wants_w), room, least_w=claim.least_w)
    running = [c for c in steered if c.boost_s is None and gets[c.job] >= min(c.least_w, c.wants_w) - TOLERANCE_W]
    _fill(gets, running, room)
    return gets


def _urgency(claim: Claim) -> tuple[float, bool, str]:
    slack = float("inf") if claim.slack_s is None else claim.slack_s // SLACK_STEP_S
    return (slack, claim.held_w < claim.least_w - TOLERANCE_W, claim.job)


def _raise(gets: dict[str, float], claim: Claim, to_w: float, room_w: float, *, least_w: float) -> float:
    """Give a job up to `to_w`, at least its lowest running level, or nothing; returns the watts given."""
    has = gets[claim.job]
    given = min(to_w - has, room_w)
    if given <= 0 or has + given < min(least_w, to_w) - 1e-6:
        return 0.0
    gets[claim.job] = has + given
    return given


def _fill(gets: dict[str, float], running: Sequence[Claim], room_w: float) -> None:
    """Give all running jobs the same watts per board, but none more than it wants."""
    if room_w <= 0 or not running:
        return
    low, high = 0.0, max(claim.wants_w / claim.boards for claim in running)

    def at(level_w: float) -> dict[str, float]:
        return {c.job: max(gets[c.job], min(c.wants_w, level_w * c.boards)) for c in running}

    before = sum(gets[claim.job] for claim in running)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(at(middle).values()) - before <= room_w else (low, middle)
    gets.update(at(high) if sum(at(high).values()) - before <= room_w + 1e-6 else at(low))


def settle(
    mine: Claim,
    others: Sequence[Claim],
    budget: SiteBudget,
    rise_w: float,
    event: GridEvent | None = None,
    now_s: float = 0.0,
) -> tuple[Claim, Headroom]:
    """The claim from now on, and the resulting share. `mine.held_w` is what the job could be drawing.

    Released watts are not available at once: `held_w` stays until the job can no longer draw them. Increases come
    from what others do not hold, at most `rise_w` at a time.
    """
    sharing = everyone = [mine, *others]
    cap_w, asked_w = budget.cap_w, None if event is None else event.cap_w(now_s)
    promised_w: float | None = None
    if asked_w is not None and asked_w < cap_w:
        promised, needed_w = under_event(everyone, asked_w)
        if needed_w <= cap_w:  # a promise yields to a budget that is hard, not to one that asks
            sharing, cap_w, promised_w = promised, needed_w, asked_w
    target = allot(sharing, cap_w)[mine.job]
    free = cap_w - sum(claim.counts_w for claim in others)
    if target <= mine.held_w:
        allowed, held = target, mine.held_w
    else:
        allowed = held = max(mine.held_w, min(target, free, mine.held_w + rise_w))
        if mine.held_w < mine.least_w - TOLERANCE_W and allowed < min(mine.least_w, target) - TOLERANCE_W:
            allowed = held = mine.held_w  # no power level exists between parked and the lowest limit
    least = sum(claim.full_w if claim.gone else min(claim.floor_w, claim.wants_w) for claim in everyone)
    others_least = sum(claim.full_w if claim.gone else min(claim.floor_w, claim.wants_w) for claim in others)
    kept = least <= budget.cap_w + TOLERANCE_W
    claim = structs.replace(mine, held_w=held)
    span = None if event is None else EventSpan(event.id, event.start_s, event.end_s, event.over_s)
    share = Headroom(
        allowed, budget.cap_w, kept, least, budget.cap_w - others_least, tuple(others), budget.until_s, span, promised_w
    )
    return claim, share


class Ramp(Struct, frozen=True):
    """How much the machine's draw may still rise at `at_s`; shared by all its jobs."""

    at_s: float
    left_w: float

    def at(self, now_s: float, budget: SiteBudget, burst_w: float) -> Ramp:
        """The ramp at a later time. `burst_w`: the largest single step that a job waits for."""
        most = max(budget.ramp_w_per_s * BURST_S, burst_w)
        return Ramp(now_s, min(most, self.left_w + budget.ramp_w_per_s * max(0.0, now_s - self.at_s)))
