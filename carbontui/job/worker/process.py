"""The worker, the only process with numpy: plans and forecasts on request, one JSON line each way, exits at EOF.

It is started on demand and ended when idle, so that a slow plan never starves a lease and an idle supervisor carries
no numpy.
"""

import contextlib
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from carbontui import hooks
from carbontui.headroom import SharedWatts
from carbontui.job.worker.messages import Answer, Ask, ForecastAsk, Limits, Pauses, PlanAnswer, PlanAsk, PreviewAsk
from carbontui.plan.evaluation import evaluate, spelled_out
from carbontui.plan.explanation import explain
from carbontui.plan.frontier_curve import frontier
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemError, Weight, shortened, weighed
from carbontui.plan.results import PlanFrontierPoint, Schedule, run_lengths, windows
from carbontui.plan.rivals import baselines
from carbontui.plan.rolling import broken, patient, replan
from carbontui.protocol import FRONTIER_POINTS_MAX, WeightPoint


def solve_plan(ask: PlanAsk) -> PlanAnswer:
    """A plan around the fixed slots, no pause longer than allowed, with the frontier of `ask.curve`.

    Raises ProblemError for an invalid problem.
    """
    whole, longer = ask.problem.problem(), replace((ask.curve or ask.problem).problem(), price_of_time=0.0)
    price: tuple[float, ...] = ()
    if ask.shared is not None and (priced := shadow_prices()) is not None:
        shadow, price = priced(longer, ask.shared, sum(whole.dur_s))
        whole = replace(whole, shadow_per_h=shadow[: len(whole.dur_s)])
        longer = replace(longer, shadow_per_h=shadow)
    problem, chosen, changed = _chosen(whole, ask, ask.fixed, ask.kept)
    points = curve(longer, {**ask.fixed, **(ask.curve_fixed or {})}, ask.pauses)
    own = chosen.objective - problem.price_of_time * chosen.finish_s
    free = _chosen(whole, ask, {})[1].gco2 if ask.fixed else None
    rivals = chosen.baselines or baselines(problem)
    now_g = next((one.gco2 for one in rivals if one.name == "run now"), chosen.gco2)
    return PlanAnswer(
        weights=by_weight(whole, ask.fixed, ask.currency or "") if ask.weighs else (),
        free_gco2=free,
        budget_g_per_kwh=price[: len(whole.dur_s)],
        windows=windows(problem, chosen.levels, now_g),
        plan=replace(chosen, baselines=()),
        baselines=rivals,
        changed=changed,
        explanation=explain(problem, chosen, currency=ask.currency),
        # a point later than the plan and no better is not worth showing
        frontier=tuple(p for p in points if p.finish_s < chosen.finish_s or p.objective < own),
    )


Priced = Callable[[Problem, SharedWatts, float | None], tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]]
"""The hook `prices`: the cost of each level by slot, and the price of a slot in g/kWh."""


def shadow_prices() -> Priced | None:
    """By the first extension that has them."""
    return next((priced for _, priced in hooks.offered("prices")), None)


WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of carbon on the frontier between CO2 and money."""


def by_weight(problem: Problem, fixed: Mapping[int, int], currency: str) -> tuple[WeightPoint, ...]:
    """The best plan by each of `WEIGHTS`."""
    found = []
    held = {slot: level for slot, level in fixed.items() if slot < len(problem.dur_s)}
    for share in WEIGHTS:
        made = solve(weighed(problem, Weight(share, 1.0 - share)), fixed=held or None, compare=False)
        found.append(WeightPoint(share, made.gco2, made.cost, currency))
    return tuple(found)


def _chosen(
    whole: Problem, ask: PreviewAsk, fixed: Mapping[int, int], kept: Sequence[int | None] | None = None
) -> tuple[Problem, Schedule, bool]:
    """The problem that was solved, its plan, and whether that differs from the `kept` one."""
    if ask.soonest is None:
        return _patient(whole, ask, fixed, kept)
    ask = msgspec.structs.replace(ask, spread=(), uncertainty=0.0, untouched=None)
    assert ask.soonest is not None
    if ask.soonest.gco2_g is None and ask.soonest.cost is None:
        return _least_energy(whole, ask, ask.soonest, fixed)
    problem = soonest(whole, ask.soonest, fixed, ask.pauses)
    # a least-time plan uses all that is left; if it were kept, it would use slightly more every time
    return problem, *_replan(problem, ask, fixed)


def _patient(
    whole: Problem, ask: PreviewAsk, fixed: Mapping[int, int], kept: Sequence[int | None] | None
) -> tuple[Problem, Schedule, bool]:
    """The plan by the price of time, within `ask.most` where there is one."""
    most = ask.most

    def planned(problem: Problem, untouched: bool) -> tuple[Schedule, bool]:
        return _replan(problem, ask if untouched else msgspec.structs.replace(ask, untouched=None), fixed, kept)

    return patient(whole, planned, None if most is None else lambda plan: _within(plan, most))


def _least_energy(
    whole: Problem, ask: PreviewAsk, most: Limits, fixed: Mapping[int, int]
) -> tuple[Problem, Schedule, bool]:
    """With an energy allowance: plan for least energy, because a least-carbon plan runs faster in clean hours and uses
    more. Certificate and gap refer to energy; all figures are those of the problem itself."""
    flat = replace(
        whole,
        alpha=1.0,
        beta=0.0,
        price_per_kwh=(1.0,) * len(whole.dur_s),
        shadow_per_h=_as_energy(whole),
        levels=tuple(msgspec.structs.replace(level, rent_per_h=0.0) for level in whole.levels),
    )
    cut = soonest(flat, most, fixed, ask.pauses)
    found, changed = _replan(cut, ask, fixed)
    problem = shortened(whole, sum(cut.dur_s))
    did = evaluate(problem, found.levels)
    own = replace(
        found, objective=did.objective, lower_bound=did.objective * (1 - found.gap), cost=did.cost, baselines=()
    )
    return problem, own, changed


def _as_energy(problem: Problem) -> tuple[tuple[float, ...], ...] | None:
    """Its shadow prices for an objective in kWh: scaled so that the mean kWh has weight one."""
    if problem.shadow_per_h is None:
        return None
    worth = sum(problem.worth_per_kwh) / len(problem.dur_s)
    return tuple(tuple(value / worth if worth > 0 else 0.0 for value in row) for row in problem.shadow_per_h)


def soonest(problem: Problem, most: Limits, fixed: Mapping[int, int], pauses: Pauses) -> Problem:
    """The problem cut after the first slot in which the work can be done within `most`; uncut if there is none."""
    try:
        points = frontier(problem, fixed or None).points
    except ProblemError:
        return problem
    for point in points:
        allowed = _allowed(problem, point, pauses, fixed)
        if allowed is not None and _within(allowed, most):
            return shortened(problem, allowed.finish_s)
    return problem


def _within(plan: PlanFrontierPoint | Schedule, most: Limits) -> bool:
    gco2_g = plan.gco2 if isinstance(plan, Schedule) else plan.gco2_g
    pairs = ((gco2_g, most.gco2_g), (plan.cost, most.cost), (plan.kwh, most.kwh))
    return all(limit is None or value <= limit for value, limit in pairs)


def curve(
    whole: Problem, fixed: Mapping[int, int] | None = None, pauses: Pauses | None = None
) -> list[PlanFrontierPoint]:
    """The frontier of a problem around the `fixed` slots, no point with a pause longer than allowed.

    Empty if the problem is too large for one; the plan itself is still made.
    """
    try:
        found = frontier(whole, fixed).points
    except ProblemError:
        return []
    points = [_allowed(whole, point, pauses or Pauses(), fixed) for point in thin(found)]
    kept: list[PlanFrontierPoint] = []
    for point in sorted(filter(None, points), key=lambda point: (point.finish_s, point.objective)):
        if not kept or point.objective < kept[-1].objective:
            kept.append(point)
    return kept


def _allowed(
    problem: Problem, point: PlanFrontierPoint, pauses: Pauses, fixed: Mapping[int, int] | None
) -> PlanFrontierPoint | None:
    """The point with overlong pauses broken up; None if that is infeasible."""
    levels = tuple(level for level, count in point.levels for _ in range(count))
    levels += (-1,) * (len(problem.dur_s) - len(levels))
    shorter = broken(problem, levels, pauses.max_pause_s, pauses.still_s, pauses.pausing, fixed)
    if shorter == levels:
        return point
    did = evaluate(problem, shorter)
    if did.late_s or (did.violations and not fixed):
        return None
    runs = run_lengths(spelled_out(problem, shorter, did.finish_s))
    return PlanFrontierPoint(did.finish_s, did.gco2, did.cost, did.kwh, did.objective, runs)


def preview_plan(ask: PreviewAsk) -> PlanAnswer:
    """The plan another budget or carbon price would give around the fixed slots; no frontier."""
    problem = ask.problem.problem()
    if ask.shared is not None and (priced := shadow_prices()) is not None:
        problem = replace(problem, shadow_per_h=priced(problem, ask.shared, None)[0])
    _, chosen, _ = _chosen(problem, ask, ask.fixed, ask.kept)
    return PlanAnswer(plan=replace(chosen, baselines=()))


def _replan(
    problem: Problem, ask: PreviewAsk, fixed: Mapping[int, int], kept: Sequence[int | None] | None = None
) -> tuple[Schedule, bool]:
    """A plan for `problem`, on what is known of the forecast's errors and of the job so far."""
    limits, slots = ask.pauses, len(problem.dur_s)
    return replan(
        problem,
        kept,
        ask.spread[:slots] or ask.uncertainty,
        {slot: level for slot, level in fixed.items() if slot < slots},
        max_pause_s=limits.max_pause_s,
        still_s=limits.still_s,
        pausing=limits.pausing,
        untouched=ask.untouched,
    )


def thin(points: Sequence[PlanFrontierPoint]) -> list[PlanFrontierPoint]:
    """The frontier thinned to what a chart shows besides the plan in force, ends included."""
    most = FRONTIER_POINTS_MAX - 1
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(i * last / (most - 1))] for i in range(most)]


class _Id(msgspec.Struct):
    """The only part of a request that must be readable in order to refuse it."""

    id: int = 0


def answer(line: bytes) -> Answer:
    """The answer to one line; a request that cannot be read or answered is refused with the reason.

    A failed plan must not end the worker: the supervisor reports it and keeps its plan.
    """
    number = 0
    try:
        number = msgspec.json.decode(line, type=_Id).id
        ask = msgspec.json.decode(line, type=Ask)
        return Answer(id=number, ok=True, answer=msgspec.Raw(msgspec.json.encode(_work(ask))))
    except Exception as error:
        return Answer(id=number, ok=False, error=f"{type(error).__name__}: {error}")


def _work(ask: Ask) -> object:
    if isinstance(ask, PlanAsk):
        return solve_plan(ask)
    if isinstance(ask, PreviewAsk):
        return preview_plan(ask)
    if isinstance(ask, ForecastAsk):
        from carbontui.grid import forecast

        return forecast.answer(ask.request)
    from carbontui.job.worker import reading

    return reading.read(ask.place)


def serve(connection: socket.socket) -> None:
    """Answer requests one by one until the supervisor closes its end."""
    # a supervisor that is killed takes no answer any more
    with contextlib.suppress(ConnectionError), connection, connection.makefile("rb") as lines:
        for line in lines:
            connection.sendall(msgspec.json.encode(answer(line)) + b"\n")


def main() -> None:
    serve(socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1])))
