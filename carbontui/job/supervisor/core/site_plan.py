"""The machine's power budget in planning: what this job publishes to the others, and what it must account for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from carbontui import units
from carbontui.job.supervisor.core import machine, site_boards
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.problem import Setup
from carbontui.job.supervisor.core.site_boards import SiteBoards
from carbontui.job.supervisor.core.site_room import watts_at
from carbontui.job.supervisor.core.state import JobState
from carbontui.site.sharing import TOLERANCE_W, Ahead, GivenPrices, LevelAhead, Share, SharedWatts

TURN_S = 4.0
"""Jobs plan in sequence, this far apart: each has seen the decision of the one before it."""


def ahead(state: JobState, seen: Inputs, boards: SiteBoards) -> Ahead | None:
    """This job's planned watts and its alternatives; None if there is no plan."""
    plan, left, deadline = state.plan, state.progress.left_s, state.deadline_s
    if plan is None or left is None or deadline is None:
        return None
    known = machine.machine(state, seen)
    watts = {name: watts_at(level, boards.number, boards.full_w, boards.parked_w) for name, level in plan.table.items()}
    slots = zip(plan.names, plan.edges_s[1:], strict=True)
    runs = itertools.groupby((slot for slot in slots if slot[0] and slot[1] > seen.now_s), key=lambda slot: slot[0])
    return Ahead(
        levels=tuple(
            LevelAhead(
                claimed_w=watts[level.name],
                drawn_w=(level.power_w + (0.0 if level.kind == "off" else known.rest_w)) * known.pue,
                speed=level.speed,
            )
            for level in plan.table.values()
        ),
        work_s=left,
        deadline_s=deadline,
        planned=tuple((max(end for _, end in run), watts[name]) for name, run in runs),
    )


def shared(state: JobState, seen: Inputs, setup: Setup, given: GivenPrices | None = None) -> SharedWatts | None:
    """The budget over the slots of a problem, and the `given` shadow prices; None if there is neither, or no part of
    this job is in it."""
    share = state.site
    boards = site_boards.boards(state, seen)
    if boards is None or (share is None and given is None):
        return None
    edges = list(itertools.accumulate(setup.durations, initial=setup.start_s))
    spans = list(itertools.pairwise(edges))
    planned, fixed = ((), 0.0) if share is None else _told(share)
    ends = float("inf") if share is None or share.until_s is None else share.until_s
    room = None if share is None else max(0.0, share.cap_w - fixed)
    return SharedWatts(
        start_s=setup.start_s,
        room_w=tuple(room if begin < ends else None for begin, _ in spans),
        planned_w=tuple(sum(_mean_w(one, *span) for one in planned) for span in spans),
        claimed_w=tuple(watts_at(level, boards.number, boards.full_w, boards.parked_w) for level in setup.levels),
        others=planned,
        given_g_per_kwh=() if given is None else tuple(given.over(*span) for span in spans),
    )


def told_fleet(setup: Setup, left_s: float, now_s: float) -> dict[str, object]:
    """For the job's comment: watts (boards, CPU and host) and speed of its levels, and the work left."""
    entries = [(float(entry["power_w"]), float(entry["speed"])) for entry in setup.problem["levels"]]
    return {
        "levels": [[round(watts, 1), round(speed, 4)] for watts, speed in entries if watts > 0 and speed > 0],
        "left": {"s": round(max(1.0, left_s)), "at": units.iso(now_s)},
    }


class Others(NamedTuple):
    """What the other jobs leave, as far as it can call for another plan."""

    room: tuple[float, float | None, float]
    """Watts of the budget, when it ends, and the watts drawn regardless of any plan."""
    clash: tuple[tuple[tuple[float, float], ...], ...]
    """Their plans if these exceed the budget together with this job's, else ()."""


def heard(state: JobState) -> tuple[object, ...]:
    """The inputs of `others`, for a cheap comparison: scanning all slots of the others is expensive."""
    share = state.site
    if share is None:
        return ()
    told = (
        (claim.job, claim.gone, claim.boost_s is None, claim.ahead and claim.ahead.planned) for claim in share.others
    )
    return (share.cap_w, share.until_s, state.plan and state.plan.view.made_at, *told)


def others(state: JobState, seen: Inputs) -> Others | None:
    """None without a budget."""
    share, boards = state.site, site_boards.boards(state, seen)
    if share is None or boards is None:
        return None
    planned, fixed = _told(share)
    room, mine = (share.cap_w, share.until_s, fixed), ahead(state, seen, boards)
    if mine is None:
        return Others(room, ())
    left = share.cap_w - fixed + TOLERANCE_W
    at_s = sorted({seen.now_s, *(end for one in (mine, *planned) for end, _ in one.planned)})
    spans = [span for span in itertools.pairwise(at_s) if share.until_s is None or span[0] < share.until_s]
    over = any(
        _mean_w(mine, *span) > 0 and sum(_mean_w(one, *span) for one in (mine, *planned)) > left for span in spans
    )
    return Others(room, tuple(one.planned for one in planned) if over else ())


def matters(before: Others | None, now: Others | None) -> bool:
    """Whether another plan is called for: not if the only change is that a clash is gone."""
    if before is None or now is None:
        return before is not now
    return before.room != now.room or bool(now.clash and now.clash != before.clash)


def turn_s(state: JobState) -> float:
    """How long after the start of a slot this job plans, in its turn."""
    others = () if state.site is None else state.site.others
    return TURN_S * sum(claim.job < state.spec.job for claim in others)


def _told(share: Share) -> tuple[tuple[Ahead, ...], float]:
    """The plans of the others, and the watts of those that follow no plan: not steered, boosted by a user, or without
    a plan."""
    planned: list[Ahead] = []
    fixed = 0.0
    for claim in share.others:
        if claim.gone or claim.boost_s is not None or claim.ahead is None:
            fixed += claim.full_w
        else:
            planned.append(claim.ahead)
    return tuple(planned), fixed


def _mean_w(one: Ahead, begin_s: float, end_s: float) -> float:
    """Mean watts planned over a span."""
    return sum(watts * seconds for watts, seconds in _parts(one, begin_s, end_s)) / (end_s - begin_s)


def _parts(one: Ahead, begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    at = begin_s
    for until, watts in one.planned:
        if until > at:
            yield watts, min(until, end_s) - at
            at = min(until, end_s)
        if at >= end_s:
            return
