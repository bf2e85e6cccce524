"""Places jobs into slots within the watts and GPUs available, at the dual prices: large ones first, in rounds.

After each round the rest is repriced within the remaining capacity, so that the small jobs fill the gaps that the
large ones left.

Prices per watt and per GPU and slot, under which the jobs' individual choices fit together, come first: every pair of
prices gives a lower bound on the cost of any schedule; the best (`plan.ascent`) is the certificate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from carbontui.extensions.fleet.problem import NEVER, FleetJobs, FleetProblem, FleetSite, Floats, Ints, joined, summed
from carbontui.plan.dual import Response, climb

PASSES_MOST = 80


class Priced(NamedTuple):
    """Prices in grams per watt and slot, and per GPU and slot; no schedule costs less than `bound_g`."""

    watt: Floats
    gpu: Floats
    bound_g: float


def priced(problem: FleetProblem, *, passes: int = PASSES_MOST, start: Priced | None = None) -> Priced:
    """The prices with the highest bound found; `start` are those of an earlier plan of the same slots."""
    site, t = problem.site, problem.site.slots
    # prices are per whole slot budget, so that watts and GPUs have the same scale
    whole = np.maximum(np.concatenate([site.power_w, site.gpus]), 1e-9)

    def answer(worth: Floats) -> Response:
        choice = problem.best(worth[:t] / whole[:t], worth[t:] / whole[t:])
        return Response(float(choice.cost.sum()), np.concatenate(problem.loads(choice.start, choice.level)) / whole)

    worth = np.zeros(2 * t) if start is None else np.concatenate([start.watt, start.gpu]) * whole
    best = climb(answer, worth, passes)
    return Priced(best.worth[:t] / whole[:t], best.worth[t:] / whole[t:], best.bound)


ROUND_SHARE = 0.3
"""Share of the remaining work that one round places."""
ROUND_LEAST = 200
"""A round has at least this many jobs: fewer are too few for meaningful prices."""
ROUND_PASSES = 20
SEVERAL_MOST = 1000
"""Up to this many jobs are placed in several orders, and the best result is taken."""
AGAIN_ROUNDS, AGAIN_MOST = 600, 6
"""Number of re-placement rounds, and jobs per round at most: half a second for a hundred jobs."""
GAP_ENOUGH = 0.002
TOLERANCE = 1e-6


CONSTANTS_MOST = 6
"""How many constant caps are tried."""


class FleetPlan(NamedTuple):
    """Per job its first slot (NEVER: not within the slots) and its level; `prices` are those of the whole problem, with
    the bound that no plan can beat."""

    start: Ints
    level: Ints
    prices: Priced
    total_g: float
    """The objective: grams, plus the penalty for undone work."""
    watts: Floats
    gpus: Floats

    @property
    def gap(self) -> float:
        """Optimality gap: the largest share of the total that a better plan could save."""
        return max(0.0, 1.0 - self.prices.bound_g / self.total_g) if self.total_g > 0 else 0.0


def planned(problem: FleetProblem) -> FleetPlan:
    """A plan of all jobs. Deterministic; small sets of jobs are placed in several orders, then improved."""
    jobs, count = problem.jobs, len(problem.jobs)
    whole = priced(problem)
    size = jobs.gpus * jobs.length.min(axis=1, initial=np.inf)
    shortest = np.maximum(jobs.length.min(axis=1, initial=np.inf), 1e-9)
    slack = (jobs.end - jobs.first - shortest) / shortest
    large = np.lexsort((np.arange(count), -jobs.undone_g, -size, -jobs.gpus))
    orders = [large]
    if count <= SEVERAL_MOST:
        # among few jobs deadlines matter more than size
        orders += [np.lexsort((-size, slack)), np.lexsort((-size, jobs.end))]
    best = min((_in_order(problem, whole, order, size) for order in orders), key=lambda plan: plan.total_g)
    return _put_again(problem, best) if count <= SEVERAL_MOST and best.gap > GAP_ENOUGH else best


class ConstantCap(NamedTuple):
    """All jobs at their fastest level that draws at most this share of their watts at full speed, each as soon as
    there is room for it."""

    share: float
    plan: FleetPlan


def decided(problem: FleetProblem, order: Ints, more: FleetJobs | None = None) -> tuple[FleetPlan, ConstantCap | None]:
    """The plan to keep to, and the best constant cap beside it, for which jobs are taken in this order. Where the cap
    has the lower total, the plan is the cap's, improved where a few jobs put elsewhere improve it. Both are made, and
    compared, with `more` jobs still to come, and told without them."""
    if more is None or not len(more):
        plan = planned(problem)
        constant = best_constant(problem, plan.prices, order)
        if constant is None or plan.total_g <= constant.plan.total_g:
            return plan, constant
        better = _put_again(problem, constant.plan) if len(problem.jobs) <= SEVERAL_MOST else constant.plan
        return (better if better.total_g < constant.plan.total_g else constant.plan), constant
    whole, count = joined(problem, more), len(problem.jobs)
    order = np.concatenate([order, count + np.argsort(more.first, kind="stable")])
    joint, constant = decided(whole, order)
    # the price of the scarce hours is of all jobs; what no plan can beat, of those that are here
    prices = joint.prices._replace(bound_g=priced(problem).bound_g)
    plan = _first(problem, joint, prices)
    if constant is None:
        return plan, None
    wins = constant.plan is joint
    constant = ConstantCap(constant.share, plan if wins else _first(problem, constant.plan, prices))
    return plan, constant


def _first(problem: FleetProblem, plan: FleetPlan, prices: Priced) -> FleetPlan:
    """Of a plan of more jobs the part that is of this problem, whose jobs come first."""
    return _plan(problem, prices, plan.start[: len(problem.jobs)], plan.level[: len(problem.jobs)])


def _plan(problem: FleetProblem, prices: Priced, start: Ints, level: Ints) -> FleetPlan:
    return FleetPlan(start, level, prices, problem.total_g(start, level), *problem.loads(start, level))


def best_constant(problem: FleetProblem, prices: Priced, order: Ints) -> ConstantCap | None:
    """The one of these with the least total, jobs taken in this order. None without levels to choose from."""
    watts, open_ = problem.jobs.watts, problem.touched > 0
    relative = np.where(open_, watts / np.maximum(watts.max(axis=1, keepdims=True), 1e-9), 0.0)
    shares = np.unique(np.round(relative[open_], 2))
    if len(shares) < 2:
        return None
    shares = shares[np.unique(np.linspace(0, len(shares) - 1, CONSTANTS_MOST).astype(int))]
    made = (ConstantCap(float(one), _at_constant(problem, prices, order, relative, one)) for one in shares)
    return min(made, key=lambda one: one.plan.total_g)


def _at_constant(problem: FleetProblem, prices: Priced, order: Ints, relative: Floats, share: float) -> FleetPlan:
    jobs, site = problem.jobs, problem.site
    least = np.where(problem.touched > 0, relative, np.inf).argmin(axis=1)
    level = np.where(relative <= share + 0.005, relative, -1.0).argmax(axis=1)
    level = np.where(relative[np.arange(len(jobs)), level] <= share + 0.005, level, least)
    only = np.full_like(jobs.length, np.inf)
    rows = np.arange(len(jobs))
    only[rows, level] = jobs.length[rows, level]
    # a cost that rises with time alone: the earliest place
    soon = FleetSite(np.linspace(1.0, 2.0, site.slots), site.power_w, site.gpus)
    placed = _Placed(FleetProblem(soon, replace(jobs, length=only, undone_g=np.full(len(jobs), np.inf))))
    free = Priced(np.zeros(site.slots), np.zeros(site.slots), 0.0)
    for job in order:
        placed.place(int(job), free)
    return _plan(problem, prices, placed.start, placed.level)


def _put_again(problem: FleetProblem, plan: FleetPlan) -> FleetPlan:
    """Remove a few jobs at a time and place them again, keeping improvements (ruin and recreate, Schrimpf et al. 2000,
    10.1006/jcph.1999.6413). With few jobs whole gaps decide, which prices do not capture."""
    rng = np.random.default_rng(0)
    placed = _Placed(problem)
    for job in np.nonzero(plan.start != NEVER)[0]:
        placed.put(int(job), int(plan.start[job]), int(plan.level[job]))
    movable = np.arange(len(problem.jobs))
    total, level = plan.total_g, float(problem.site.weight.mean())
    free = np.zeros(problem.site.slots)
    for _ in range(AGAIN_ROUNDS if len(movable) else 0):
        before = placed.start.copy(), placed.level.copy(), placed.room_w.copy(), placed.room_gpus.copy()
        missing = movable[placed.start[movable] == NEVER]
        if len(missing) and rng.integers(0, 2):
            out = _forced(problem, placed, int(rng.choice(missing)), rng)
        else:
            out = rng.choice(movable, min(len(movable), int(rng.integers(1, AGAIN_MOST + 1))), replace=False)
            for job in out:
                placed.take(int(job))
        # random prices every second time: a job's second-best place may be better for all together
        watt = level * rng.exponential(0.3, len(free)) * rng.integers(0, 2)
        for job in out:
            placed.place(int(job), Priced(watt, free, 0.0))
        found = problem.total_g(placed.start, placed.level)
        if found <= total:
            total = found
        else:
            placed.start, placed.level, placed.room_w, placed.room_gpus = before
    return placed.plan(plan.prices)


def _forced(problem: FleetProblem, placed: _Placed, job: int, rng: np.random.Generator) -> Ints:
    """Put an unplaced job at random within its window; returned are those in its way, now without a place, the larger
    first. A job as large as the cluster has room only where several make room at once."""
    jobs, rows = problem.jobs, np.arange(len(problem.jobs))
    levels = np.nonzero(problem.last_start[job] >= jobs.first[job])[0]
    if not len(levels):
        return levels
    level = int(rng.choice(levels))
    start = int(rng.integers(jobs.first[job], problem.last_start[job, level] + 1))
    end = start + int(problem.touched[job, level])
    ends = placed.start + problem.touched[rows, placed.level]
    beside = (placed.start != NEVER) & (placed.start < end) & (ends > start)
    # the smaller, as a rule, leave first
    order = np.argsort(np.where(beside, jobs.undone_g * rng.exponential(1.0, len(jobs)), np.inf))
    out = []
    for other in order[: int(beside.sum())]:
        theirs = slice(max(start, int(placed.start[other])), min(end, int(ends[other])))
        if not placed.fits(job, level, theirs):
            placed.take(int(other))
            out.append(other)
    if placed.fits(job, level, slice(start, end)):
        placed.put(job, start, level)
    return np.array(sorted(out, key=lambda one: -jobs.undone_g[one]), dtype=np.int64)


def _in_order(problem: FleetProblem, whole: Priced, left: Ints, size: Floats) -> FleetPlan:
    """Place all jobs in a given order, round by round."""
    placed, price, count = _Placed(problem), whole, len(left)
    while len(left):
        if len(left) < count:
            price = priced(_rest(problem, placed, left), passes=ROUND_PASSES, start=price)
        done = np.cumsum(size[left])
        many = max(ROUND_LEAST, int(np.searchsorted(done, ROUND_SHARE * done[-1])) + 1)
        if len(left) - many < ROUND_LEAST:
            many = len(left)
        for job in left[:many]:
            placed.place(int(job), price)
        left = left[many:]
    return placed.plan(whole)


def _rest(problem: FleetProblem, placed: _Placed, left: Ints) -> FleetProblem:
    """The remaining problem within the remaining capacity."""
    room = FleetSite(problem.site.weight, np.maximum(placed.room_w, 0.0), np.maximum(placed.room_gpus, 0.0))
    return FleetProblem(room, problem.jobs.of(left))


class _Placed:
    """Placements so far, and the remaining capacity of every slot."""

    def __init__(self, problem: FleetProblem) -> None:
        self._problem = problem
        self.room_w = problem.site.power_w.copy()
        self.room_gpus = problem.site.gpus.copy()
        self.start = np.full(len(problem.jobs), NEVER)
        self.level = np.zeros(len(problem.jobs), dtype=np.int64)
        self._known: dict[int, tuple[Ints, Ints, Floats]] = {}

    def plan(self, prices: Priced) -> FleetPlan:
        return _plan(self._problem, prices, self.start, self.level)

    def put(self, job: int, start: int, level: int) -> None:
        self._occupy(job, start, level, 1.0)
        self.start[job], self.level[job] = start, level

    def take(self, job: int) -> None:
        if self.start[job] >= 0:
            self._occupy(job, int(self.start[job]), int(self.level[job]), -1.0)
            self.start[job] = NEVER

    def place(self, job: int, price: Priced) -> None:
        """Place the job at its cheapest choice that fits; if none fits, leave it where it is."""
        before = int(self.start[job]), int(self.level[job])
        if before[0] >= 0:
            self._occupy(job, *before, -1.0)
        chosen = self._cheapest_that_fits(job, price)
        start, level = before if chosen is None else chosen
        if start >= 0:
            self.put(job, start, level)

    def fits(self, job: int, level: int, span: slice) -> bool:
        jobs = self._problem.jobs
        powered = self.room_w[span].min() >= jobs.watts[job, level] - TOLERANCE
        return bool(powered and self.room_gpus[span].min() >= jobs.gpus[job] - TOLERANCE)

    def _cheapest_that_fits(self, job: int, price: Priced) -> tuple[int, int] | None:
        """The cheapest of all choices that fit."""
        jobs = self._problem.jobs
        starts, ends, grams = self._choices(job)
        if not grams.size:
            return None
        watts = jobs.watts[job][:, None]
        short = (self.room_w < watts - TOLERANCE) | (self.room_gpus < jobs.gpus[job] - TOLERANCE)
        full = summed(short)
        cost = grams
        for drawn, paid in ((watts, price.watt), (jobs.gpus[job], price.gpu)):
            if paid.any():
                held = summed(paid)
                cost = cost + drawn * (held[ends] - held[starts])
        cost = np.where(np.take_along_axis(full, ends, axis=1) == full[:, starts], cost, np.inf)
        level, at = divmod(int(cost.argmin()), len(starts))
        least = cost[level, at]
        return (int(starts[at]), level) if np.isfinite(least) and least <= jobs.undone_g[job] else None

    def _choices(self, job: int) -> tuple[Ints, Ints, Floats]:
        """Every start within its window, the ends of its levels from there, and the grams of each, levels x starts;
        infinite where there is no such choice."""
        if job not in self._known:
            problem = self._problem
            n, last = problem.touched[job][:, None], problem.last_start[job][:, None]
            starts = np.arange(problem.jobs.first[job], last.max() + 1)
            ends = np.minimum(starts + n, problem.site.slots)
            spent, weight = problem.spent, problem.site.weight
            rest = problem.jobs.length[job][:, None] - (n - 1)
            with np.errstate(invalid="ignore"):
                grams = problem.jobs.watts[job][:, None] * (spent[ends - 1] - spent[starts] + rest * weight[ends - 1])
            self._known[job] = starts, ends, np.where((n > 0) & (starts <= last), grams, np.inf)
        return self._known[job]

    def _occupy(self, job: int, start: int, level: int, sign: float) -> None:
        jobs = self._problem.jobs
        span = slice(start, start + int(self._problem.touched[job, level]))
        self.room_w[span] -= sign * jobs.watts[job, level]
        self.room_gpus[span] -= sign * jobs.gpus[job]
