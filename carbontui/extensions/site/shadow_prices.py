"""Shadow price of a shared power budget per slot, and the resulting cost of a plan's levels.

Two parts. The *price* is the dual of "all jobs together within the budget" in the relaxation that spreads their work
over slots and levels: it makes a job that can wait leave a scarce hour to one that cannot. The *excess* is what a job
would draw beyond the room that the plans of the others leave: if the price alone leaves two jobs undecided, the one
that plans later looks for another hour. Every job computes both from the same ledger; there is no coordinator.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbontui.headroom import Ahead, LevelAhead, SharedWatts
from carbontui.plan.dual import Response, climb
from carbontui.plan.graph import Floats
from carbontui.plan.problem import Problem
from carbontui.units import J_PER_KWH

PASSES = 60
SHARE = 0.9
"""Headroom of the price applied in a plan: at the full price a job would be indifferent to the hour meant for it."""
EXCESS = 10.0
"""Watts beyond the room cost this multiple of the dirtiest slot and the highest price: if a deadline leaves no other
choice they are still planned, and the others make room."""
UNDONE = 20.0
"""Work that does not fit costs this multiple of its grams at full speed in the dirtiest slot: prices stay finite."""
HALVINGS = 24


class _Spread(NamedTuple):
    """n jobs over t slots and l levels, padded: seconds in each slot before the deadline (n x t), watts claimed, watts
    at the wall and speed (n x l), work and the penalty per second of undone work (n)."""

    seconds: Floats
    claimed_w: Floats
    drawn_w: Floats
    speed: Floats
    work_s: Floats
    most: Floats


def prices(jobs: Sequence[Ahead], start_s: float, dur_s: Floats, ci: Floats, room_w: Floats) -> Floats:
    """g/kWh of claimed energy per slot. `room_w`: watts for these jobs, infinite without a budget. Work due after the
    last slot may be done there, at the slots' mean intensity."""
    if not jobs or not np.isfinite(room_w).any():
        return np.zeros(len(dur_s))
    # one extra slot: the time after the others, without a budget
    weight = np.append(ci, ci @ dur_s / dur_s.sum()) / J_PER_KWH
    spread = spread_out(jobs, start_s, dur_s, float(weight.max()))
    limited = np.isfinite(room_w)
    whole = np.maximum(np.where(limited, room_w, 1.0) * dur_s, 1e-6)

    def answer(worth: Floats) -> Response:
        cost, watt_s = cheapest(spread, weight, np.append(worth / whole, 0.0))
        return Response(cost, np.where(limited, watt_s[:-1] / whole, 0.0))

    return climb(answer, np.zeros(len(dur_s)), PASSES).worth / whole * J_PER_KWH


def spread_out(jobs: Sequence[Ahead], start_s: float, dur_s: Floats, dirtiest: float) -> _Spread:
    most = max(len(job.levels) for job in jobs)
    edges = start_s + np.concatenate([[0.0], np.cumsum(dur_s)])
    ends = np.array([job.deadline_s for job in jobs])
    seconds = np.clip(ends[:, None] - edges[None, :-1], 0.0, dur_s[None, :])
    beyond = np.maximum(0.0, ends - edges[-1])
    # padded by repeating the last level, which changes nothing
    rows = [[*job.levels, *[job.levels[-1]] * (most - len(job.levels))] for job in jobs]
    claimed, drawn, speed = (
        np.array([[getattr(level, name) for level in row] for row in rows])
        for name in ("claimed_w", "drawn_w", "speed")
    )
    per_work = (drawn / np.maximum(speed, 1e-9) * (speed >= speed.max(axis=1, keepdims=True))).max(axis=1)
    worth = UNDONE * np.maximum(per_work, 1.0) * max(dirtiest, 1e-12)
    work = np.array([job.work_s for job in jobs])
    return _Spread(np.column_stack([seconds, beyond]), claimed, drawn, speed, work, worth)


def cheapest(jobs: _Spread, weight: Floats, price: Floats) -> tuple[float, Floats]:
    """Total cost of each job's own cheapest schedule, and watt-seconds claimed per slot. The work constraint of a job
    has its own dual, found by bisection; the schedules on either side of it are mixed to meet the constraint."""
    cost = weight[None, :, None] * jobs.drawn_w[:, None, :] + price[None, :, None] * jobs.claimed_w[:, None, :]
    speed = np.broadcast_to(jobs.speed[:, None, :], cost.shape)

    rows = np.arange(len(jobs.work_s))[:, None]

    def level_at(reward: Floats) -> NDArray[np.int64]:
        at: NDArray[np.int64] = (cost - reward[:, None, None] * speed).argmin(axis=2)
        return at

    def done_at(level: NDArray[np.int64]) -> Floats:
        done: Floats = (jobs.speed[rows, level] * jobs.seconds).sum(axis=1)
        return done

    def chosen(reward: Floats) -> tuple[Floats, Floats, Floats]:
        level = level_at(reward)
        paid = np.take_along_axis(cost, level[:, :, None], axis=2)[:, :, 0] * jobs.seconds
        return paid.sum(axis=1), done_at(level), jobs.claimed_w[rows, level] * jobs.seconds

    low, high = np.zeros(len(jobs.work_s)), jobs.most.copy()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = done_at(level_at(middle)) >= jobs.work_s
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    less, more = chosen(low), chosen(high)
    gap = more[1] - less[1]
    part = np.clip(np.divide(jobs.work_s - less[1], gap, out=np.ones_like(gap), where=gap > 1e-9), 0.0, 1.0)
    paid, done = (less[i] + part * (more[i] - less[i]) for i in (0, 1))
    undone = jobs.most * np.maximum(0.0, jobs.work_s - done)
    watt_s = less[2] + part[:, None] * (more[2] - less[2])
    return float((paid + undone).sum()), watt_s.sum(axis=0)


class PricedSlots(NamedTuple):
    """`shadow_per_h`: for `Problem`; `price`: g/kWh per slot, `others`' plans aside."""

    shadow_per_h: tuple[tuple[float, ...], ...]
    price: tuple[float, ...]


def shadow(problem: Problem, shared: SharedWatts, deadline_s: float | None = None) -> PricedSlots:
    """The cost of a problem's levels in each slot. `deadline_s`: seconds from slot 0, if the problem extends beyond the
    job's own deadline."""
    count = len(problem.dur_s)
    dur, ci = np.array(problem.dur_s), np.array(problem.ci_g_per_kwh)
    room = np.array([np.inf if watts is None else max(0.0, watts) for watts in shared.room_w[:count]])
    mine = Ahead(
        levels=tuple(
            LevelAhead(claimed_w=claimed, drawn_w=(level.power_w + problem.host_w) * problem.pue, speed=level.speed)
            for claimed, level in zip(shared.claimed_w, problem.levels, strict=True)
        ),
        work_s=problem.work_s,
        deadline_s=shared.start_s + (float(dur.sum()) if deadline_s is None else deadline_s),
    )
    price = prices((mine, *shared.others), shared.start_s, dur, ci, room)
    claimed, planned = np.array(shared.claimed_w), np.array(shared.planned_w[:count])
    over = np.maximum(planned[:, None] + claimed - room[:, None], 0.0) - np.maximum(planned - room, 0.0)[:, None]
    excess = EXCESS * (float(ci.max()) + float(price.max(initial=0.0)))
    per_h = (SHARE * price[:, None] * claimed + excess * over) / 1000.0 * _per_gram(problem)
    return PricedSlots(tuple(tuple(row) for row in per_h.tolist()), tuple(price.tolist()))


def _per_gram(problem: Problem) -> float:
    """The weight of a gram of the mean kWh in the problem's own objective, which may be money."""
    ci = sum(g * s for g, s in zip(problem.ci_g_per_kwh, problem.dur_s, strict=True))
    money = sum(p * s for p, s in zip(problem.price_per_kwh or (), problem.dur_s, strict=False))
    return max(0.0, problem.beta + problem.alpha * money / ci) if ci > 0 else problem.beta
