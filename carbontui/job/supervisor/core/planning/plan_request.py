"""Requests to the worker: the current planning problem with the budget's deadline, another budget, or a later one."""

import bisect
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from carbontui.headroom import SharedWatts
from carbontui.job.supervisor.core.planning import answers, finish, machine, problem, site_plan
from carbontui.job.supervisor.core.state import unloading
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import STILL
from carbontui.job.terms.budget import Budget
from carbontui.job.worker.messages import Limits, Pauses, PlanAsk, PreviewAsk
from carbontui.plan.problem import STANDS_STILL, parse_weight, price_of_time, run_now_mean

PLAN_NOISE = 0.05
"""Relative standard error of the difference between two slots' forecasts, by which a new plan must win, until this
machine has measured its own: within the range of four recorded zones (0.04 to 0.13)."""
NOISE_LEAST, NOISE_MOST = 0.02, 0.3
CURVE_REACH = 1.5
"""How far beyond the budget the frontier extends: the savings of a looser budget are shown before it is chosen."""
CURVE_LEAST = 2.0
"""The frontier extends at least to this multiple of the time at full speed: the default budget leaves no slack."""
CURVE_MOST_S = 3 * 86400.0
"""The frontier extends at most this far beyond the deadline: a week of typical days is not worth its cost."""
AHEAD_LEAST_S, AHEAD_MOST_S = 86400.0, 60 * 86400.0
"""Bounds of the outlook: it is built slot by slot in the supervisor's loop, and no forecast reaches two months."""


class PlanRequest(NamedTuple):
    """A request to the worker, and what is needed to read its answer."""

    ask: PlanAsk
    setup: problem.PlanningProblem
    deadline_s: float
    left_s: float
    mean_per_kwh: float


class PreviewRequest(NamedTuple):
    ask: PreviewAsk
    setup: problem.PlanningProblem
    deadline_s: float | None


def ahead_s(state: JobState, now_s: float) -> float:
    """How far the outlook must reach: to the end of the frontier, at least a day. Plans hold its last value beyond."""
    deadline = state.deadline_s
    wanted = (now_s if deadline is None else _curve_end_s(state, deadline)) - now_s + 3600.0
    return min(AHEAD_MOST_S, max(AHEAD_LEAST_S, wanted))


def _curve_end_s(state: JobState, deadline_s: float) -> float:
    total = state.progress.total_s or 0.0
    end = state.start_s + max(CURVE_REACH * (deadline_s - state.start_s), CURVE_LEAST * total)
    return max(deadline_s, min(end, deadline_s + CURVE_MOST_S))


def plan_request(state: JobState, inputs: Inputs) -> PlanRequest | None:
    """The request for a new plan; None if there is nothing to plan."""
    deadline, left, now = state.deadline_s, state.progress.longest_left_s, inputs.now_s
    if deadline is None or left is None:
        return None
    # if the deadline cannot be met, plan to the soonest finish: the slots up to it need prices, too
    end = max(deadline, finish.soonest_s(state, now, left))
    longest = finish.late_left_s(state, now, left, deadline)
    setup = _setup(state, inputs, end, longest)
    if setup is None:
        return None  # the work is done
    setup = _priced(state, setup)
    reach = now + problem.SLOTS_MAX * setup.slot_s  # in slots of the plan's size, or a preview would be askew
    curve = _setup(state, inputs, max(end, min(_curve_end_s(state, deadline), reach)), longest)
    assert curve is not None
    asked = _asked(state, inputs, setup, site_plan.shared(state, inputs, curve))
    ask = PlanAsk(
        **structs.asdict(asked),
        curve=curve.problem,
        curve_fixed=_fixed(state, curve) if state.forbidden else None,
        currency=state.spec.currency,
        weighs=state.spec.weight is not None,
    )
    return PlanRequest(ask, setup, deadline, left, _mean_per_kwh(state, setup))


def _kept(state: JobState, setup: problem.PlanningProblem) -> tuple[int, ...] | None:
    """The levels in force, unless they were planned around an override that is over: a slot that a person has paused is
    not worth keeping so."""
    if state.plan is None:
        return None
    around = state.plan.free_gco2_g is not None and not state.forbidden
    return None if around and state.override.current is None else answers.kept_levels(state.plan, setup)


def _untouched(state: JobState, inputs: Inputs) -> float | None:
    """What a job has taken in units of its objective; None of one that has waited or slowed down."""
    if state.worth.acted:
        return None
    objective, totals = objective_of(state, inputs), state.totals
    return objective.beta * (totals.gco2_g or 0.0) + objective.alpha * (totals.cost.value if totals.cost else 0.0)


def _mean_per_kwh(state: JobState, setup: problem.PlanningProblem) -> float:
    """Of the first plan, until a person sets another budget."""
    known = state.worth.mean_per_kwh
    return run_now_mean(setup.problem.problem()) if known is None else known


def _priced(state: JobState, setup: problem.PlanningProblem) -> problem.PlanningProblem:
    """With the price of time: by the watts as known now, on the grid of the first plan. Least time needs none."""
    if not state.spec.patience or state.spec.objective == "time":
        return setup
    per_s = price_of_time(setup.problem.problem(), state.spec.patience, _mean_per_kwh(state, setup))
    return replace(setup, problem=structs.replace(setup.problem, price_of_time=per_s))


def _most(state: JobState) -> Limits | None:
    """What the rest may use; of grams, a share for the forecast error (the band's upper end at the finish) is held
    back. None without an allowance."""
    if not state.allowances.given:
        return None
    left = {entry.kind: max(0.0, entry.most - state.totals.of(entry.kind)) for entry in state.allowances.given}
    grams = left.get("carbon")
    kept_back = state.allowances.forecast_share
    return Limits(None if grams is None else grams / (1.0 + kept_back), left.get("cost"), left.get("energy"))


def noise(state: JobState) -> float:
    """The margin by which a new plan must win: the measured error of this zone's forecasts, within bounds."""
    measured = state.outlook.difference_error if state.outlook else None
    return PLAN_NOISE if measured is None else min(NOISE_MOST, max(NOISE_LEAST, measured))


def _fixed(state: JobState, setup: problem.PlanningProblem) -> dict[int, int]:
    """Level index by slot where the user has decided: an override ranks above forbidden hours, as in control."""
    held = state.override
    return problem.slots(state.forbidden, setup) | answers.fixed_slots(held.current, held.until_s, setup)


def preview_request(
    state: JobState,
    inputs: Inputs,
    budget: Budget,
    carbon_price: float | None,
    slot_s: float | None = None,
    *,
    keep: bool = True,
) -> PreviewRequest | None:
    """A what-if request: another budget, another carbon price (currency per tonne), or another level in the slot at
    `slot_s`; None: no work is left. `keep`: the plan in force stays where it would stay if that were set."""
    left, now = state.progress.longest_left_s, inputs.now_s
    if left is None:
        return None
    deadline = budget.deadline_s(state.start_s, state.progress.total_s)
    # if even at full speed misses the deadline, plan at full speed and report it as late
    end = max(deadline or now, finish.soonest_s(state, now, left))
    setup = _setup(state, inputs, end, left)
    if setup is None:
        return None
    setup = _priced(state, answers.with_price(setup, carbon_price))
    ask = _asked(state, inputs, setup, site_plan.shared(state, inputs, setup))
    if slot_s is not None:
        ask = structs.replace(ask, fixed=ask.fixed | _otherwise(state, setup, slot_s))
    return PreviewRequest(ask if keep else structs.replace(ask, kept=None), setup, deadline)


def _asked(state: JobState, inputs: Inputs, setup: problem.PlanningProblem, shared: SharedWatts | None) -> PreviewAsk:
    """What every request has."""
    return PreviewAsk(
        problem=setup.problem,
        kept=_kept(state, setup),
        fixed=_fixed(state, setup),
        pauses=pauses(state, setup, inputs.now_s),
        soonest=_most(state) if state.spec.objective == "time" else None,
        most=None if state.spec.objective == "time" else _most(state),
        shared=shared,
        uncertainty=noise(state),
        spread=setup.spread,
        untouched=_untouched(state, inputs),
    )


def _otherwise(state: JobState, setup: problem.PlanningProblem, slot_s: float) -> dict[int, int]:
    """The slot that contains `slot_s`, fixed to another level than the plan's. Raises ValueError outside the plan."""
    edges = setup.edges_s
    if setup.start_s - setup.slot_s <= slot_s < setup.start_s:
        slot_s = setup.start_s  # the viewer's now is a little older than ours, by minutes in a replay
    slot = bisect.bisect_right(edges, slot_s) - 1
    if not 0 <= slot < len(setup.durations):
        raise ValueError("that time is not within the plan")
    level = state.plan.at((edges[slot] + edges[slot + 1]) / 2).level if state.plan else None
    names = [one.name for one in setup.levels]
    return {slot: names.index("full") if level is None or level.still else STANDS_STILL}


def objective_of(state: JobState, inputs: Inputs) -> problem.Objective:
    """The objective: grams, money, money with a price on grams, or both by weight; for least time, the quantity with
    an allowance."""
    spec = state.spec
    made = machine.embodied(state, inputs)
    held = (spec.gpu_price or 0.0) * max(1, len(inputs.devices)), made.g_per_hour if made else 0.0
    if spec.weight is not None and state.outlook is not None:
        grams, money = ([v for v in values if v is not None] for values in (state.outlook.mean, state.outlook.price))
        flat = [] if spec.price_per_kwh is None else [spec.price_per_kwh]
        return problem.Objective(*parse_weight(spec.weight).scaled(grams, money or flat), *held)
    kinds = {entry.kind for entry in state.allowances.given}
    if spec.objective == "cost" or (spec.objective == "time" and kinds == {"cost"}):
        return problem.Objective(1.0, (spec.carbon_price or 0.0) / 1e6, *held)
    return problem.Objective(0.0, 1.0, *held)


def _setup(state: JobState, inputs: Inputs, deadline_s: float, left_s: float) -> problem.PlanningProblem | None:
    now = inputs.now_s
    if state.outlook is None or deadline_s <= now + 1.0 or left_s <= 0:
        return None
    return problem.build(
        now_s=now,
        deadline_s=deadline_s,
        outlook=state.outlook,
        machine=machine.machine(state, inputs),
        objective=objective_of(state, inputs),
        work_left_s=left_s,
        started=not unloading.before_start(inputs.child, state.unloading),
        level_now=level_now(state, inputs),
        age_s=now - state.still_changed_s,
        flat_price=state.spec.price_per_kwh,
    )


def level_now(state: JobState, inputs: Inputs) -> str:
    """The level the job is actually at, whatever the plan says."""
    observed = state.decision.state
    if unloading.before_start(inputs.child, state.unloading):
        return "off"
    if observed == "unloaded":
        return "unload"
    return "pause" if observed in ("paused", "pausing") else state.decision.level.name


def pauses(state: JobState, setup: problem.PlanningProblem, now_s: float) -> Pauses:
    """The longest pause allowed, and how much of the current one is over. A delayed start is no pause, unless boards
    are held meanwhile; where an unload gives them back, only what keeps them is limited."""
    spec, since = state.spec, state.asked.still_since_s
    kinds, longest_s = STILL - {"off"}, spec.max_pause_s
    if spec.idle_limit_s is not None:
        kinds = STILL - ({"off", "unload"} if spec.gives_back else frozenset())
        longest_s = min(longest_s, spec.idle_limit_s)
    return Pauses(
        max_pause_s=longest_s,
        still_s=0.0 if since is None else now_s - since,
        pausing=tuple(i for i, level in enumerate(setup.levels) if level.kind in kinds),
    )
