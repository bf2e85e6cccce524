"""The worker: numpy lives here. Plans and forecasts on request, one JSON line each way, gone at EOF.

It is started on demand and left to leave when idle, so that a slow plan never starves a lease and a supervisor at
rest carries no numpy.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from carbontui import plan
from carbontui.plan.results import run_lengths
from carbontui.protocol import FRONTIER_POINTS_MAX


def solve_plan(ask: dict[str, Any]) -> dict[str, Any]:
    """A plan for `problem` around `fixed` slots, no pause longer than asked; `kept` stays unless the new one gains more
    than `uncertainty`. The frontier is that of `curve`, the same problem with a later deadline."""
    problem = plan.problem_from_dict(ask["problem"])
    fixed = _fixed(ask)
    chosen, changed = plan.replan(problem, ask.get("kept"), ask.get("uncertainty", 0.0), fixed, **ask.get("pauses", {}))
    answer: dict[str, Any] = {"plan": chosen.to_dict(), "changed": changed}
    answer["baselines"] = [baseline.to_dict() for baseline in chosen.baselines or plan.baselines(problem)]
    currency = ask.get("currency")
    answer["explanation"] = plan.explain(problem, chosen, start_s=ask.get("start_s"), currency=currency)
    if ask.get("frontier", True):
        points = curve(ask.get("curve", ask["problem"]), fixed, ask.get("pauses", {}))
        # a point later than the plan and no better than it is no offer
        better = [p for p in points if p["finish_s"] < chosen.finish_s or p["objective"] < chosen.objective]
        answer["frontier"] = better
    return answer


def curve(
    problem: dict[str, Any], fixed: dict[int, int] | None = None, pauses: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The frontier of a problem around the `fixed` slots, every point with no pause longer than asked.

    Empty where it is too large to draw one, which is no reason to be without a plan.
    """
    whole = plan.problem_from_dict(problem)
    try:
        found = plan.frontier(whole, fixed).points
    except plan.ProblemError:
        return []
    points = [_allowed(whole, point, pauses or {}, fixed) for point in thin(found)]
    kept: list[plan.FrontierPoint] = []
    for point in sorted(filter(None, points), key=lambda point: (point.finish_s, point.objective)):
        if not kept or point.objective < kept[-1].objective:
            kept.append(point)
    return [point.to_dict() for point in kept]


def _allowed(
    problem: plan.Problem, point: plan.FrontierPoint, pauses: dict[str, Any], fixed: dict[int, int] | None
) -> plan.FrontierPoint | None:
    """The point with pauses that are too long broken; None where that cannot be carried out."""
    levels = tuple(level for level, count in point.levels for _ in range(count))
    levels += (-1,) * (len(problem.dur_s) - len(levels))
    shorter = plan.broken(problem, levels, **pauses, fixed=fixed)
    if shorter == levels:
        return point
    did = plan.evaluate(problem, shorter)
    if did.late_s or (did.violations and not fixed):
        return None
    starts = accumulate(problem.dur_s, initial=0.0)
    runs = run_lengths([level for level, start in zip(shorter, starts, strict=False) if start < did.finish_s - 1e-9])
    return plan.FrontierPoint(did.finish_s, did.gco2, did.cost, did.kwh, did.objective, runs)


def preview_plan(ask: dict[str, Any]) -> dict[str, Any]:
    """The plan another budget or carbon price would give around `fixed` slots; nothing kept, no frontier."""
    problem = plan.problem_from_dict(ask["problem"])
    chosen, _ = plan.replan(problem, None, fixed=_fixed(ask), **ask.get("pauses", {}))
    return {"plan": chosen.to_dict(), "explanation": ""}


def _fixed(ask: dict[str, Any]) -> dict[int, int] | None:
    return {int(k): int(v) for k, v in ask.get("fixed", {}).items()} or None


def forecast(ask: dict[str, Any]) -> dict[str, Any]:
    """Mean and band of the coming slots from history and published issues."""
    from carbontui.grid import forecast as forecaster

    return forecaster.answer(ask["request"])


def thin(points: Sequence[plan.FrontierPoint]) -> list[plan.FrontierPoint]:
    """As many points of a frontier as a picture may hold beside that of the plan in force, ends included."""
    most = FRONTIER_POINTS_MAX - 1
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(i * last / (most - 1))] for i in range(most)]


WORK: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "plan": solve_plan,
    "preview": preview_plan,
    "forecast": forecast,
}


def serve(connection: socket.socket) -> None:
    """Answer requests one by one until the supervisor closes its end."""
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            ask = msgspec.json.decode(line)
            try:
                answer = {"id": ask["id"], "ok": True, "answer": WORK[ask["kind"]](ask)}
            except Exception as error:
                # a plan that fails must not take the worker along; the supervisor says so and keeps what it has
                answer = {"id": ask["id"], "ok": False, "error": f"{type(error).__name__}: {error}"}
            connection.sendall(msgspec.json.encode(answer) + b"\n")


def main() -> None:
    serve(socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1])))
