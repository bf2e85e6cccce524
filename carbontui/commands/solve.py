"""`solve`: a plan for a problem file, or for a job that does not exist yet."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import structs

from carbontui import units
from carbontui.commands.support.command import (
    Failure,
    Finite,
    WithUnit,
    assumptions,
    patience_option,
    price_option,
    refused,
    weight_option,
    zone_keys,
)
from carbontui.commands.support.run_values import settings_for
from carbontui.grid import recorded, tariff, zones
from carbontui.job.terms import budget as budgets
from carbontui.system import streams
from carbontui.text import figures

if TYPE_CHECKING:
    from rich.table import Table

    from carbontui.plan.problem import Problem
    from carbontui.plan.results import Evaluation, PlanFrontier, Schedule

LONGEST_S = 60 * 86400.0
"""Typical days say little about a job that takes longer."""
BAR = 12
"""Characters of the most CO2 in a table."""


@click.command()
@click.argument("problem_file", required=False, metavar="[F.json]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--frontier", "with_frontier", is_flag=True, help="The best plan for every deadline as well.")
@click.option("--zone", shell_complete=zone_keys, help="Grid zone, like DE: typical days of it.")
@click.option("--grid", "grid_file", help="Recorded or expected intensity instead: CSV time_utc,carbon_g_per_kwh.")
@click.option("--work", help="Work at full speed, like 8h.")
@click.option("--budget", default="2x", show_default=True, help='How long it may take: 1.8x, 18h or "fri 09:00".')
@click.option("--start", help="When it starts: 2020-04-12 06:00, tomorrow 9 (default: now, or the file's first slot).")
@click.option("--watts", type=WithUnit(units.parse_watts), help="At full speed, with caps (default: the GPUs here).")
@click.option("--levels", "levels_file", help="Levels and switches as JSON (problem format without slots and work).")
@assumptions
@click.option("--idle-limit", help="Longest time that allocated GPUs may idle, like 30m.")
@patience_option
@price_option
@weight_option
@click.option("--tol", type=Finite(1e-6, 0.5), default=1e-3, show_default=True, help="Certificate wanted.")
def solve(**asked: Any) -> None:
    """Plan a problem file, or --work on a --zone; shows the frontier when no file is given."""
    from carbontui.plan import frontier_curve
    from carbontui.plan.problem import Infeasible
    from carbontui.plan.results import earliest_within

    with refused(f"{asked['problem_file']}: ", OSError), refused(), refused("infeasible: ", Infeasible):
        made = _of_file(asked, asked["problem_file"]) if asked["problem_file"] else _of_work(asked)
        with_frontier = asked["with_frontier"] or not asked["problem_file"]
        curve = frontier_curve.frontier(made.problem) if with_frontier else None
        text = _explanation(made.problem, made.plan, made.start_s)
    about = made.about
    if making := max(level.embodied_g_per_h for level in made.problem.levels):
        about += f"; {figures.grams(making)} per hour held are weighed for making the hardware, in no figure here"
    if asked["as_json"]:
        answer = asdict(made.plan) | {"explanation": text, "patience_pct": made.patience_pct}
        answer["price_of_time_g_per_h"] = 3600 * made.problem.price_of_time
        if curve is not None:
            answer["frontier"] = asdict(curve)["points"]
            answer["earliest_within"] = earliest_within([(point.finish_s, point.gco2_g) for point in curve])
        click.echo(json.dumps(answer, allow_nan=False))
        return
    _show(made.problem, made.plan, curve, text, about)


class Solved(NamedTuple):
    """A plan, the problem it solves, when that begins, and what its figures are from."""

    problem: Problem
    plan: Schedule
    start_s: float
    about: str
    patience_pct: float | None


def _of_file(asked: dict[str, Any], path: str) -> Solved:
    """The plan of a problem file. Raises OSError, ValueError or Failure."""
    from carbontui.plan import planner
    from carbontui.plan.problem import load_problem, price_of_time, weighed

    if asked["zone"] or asked["work"] or asked["grid_file"] or asked["price_file"]:
        raise Failure("give a problem file or --work with --zone, not both", 2)
    if asked["boundary"] or asked["host_w"] or asked["idle_w"] or asked["idle_limit"]:
        raise Failure("a problem file holds all that counts: --boundary and all beside it belong to --work", 2)
    problem, patience_pct = weighed(load_problem(path), asked["weight"]), None
    if asked["patience"]:  # else as the file says
        patience_pct = settings_for(patience=asked["patience"]).settings.patience
        problem = replace(problem, price_of_time=price_of_time(problem, patience_pct))
    return Solved(problem, planner.solve(problem, tol=asked["tol"]), 0.0, path, patience_pct)


def _of_work(asked: dict[str, Any]) -> Solved:
    """The plan of work that does not exist yet. Raises OSError, ValueError or Failure."""
    from carbontui.assumed.job import Grid, TypicalDays, planned, stated
    from carbontui.commands.support.offers import of_this_machine

    if not asked["work"] or not (asked["zone"] or asked["grid_file"]):
        raise Failure("nothing to plan: give a problem file, or --work 8h with --zone DE or --grid FILE", 2)
    counts = {name: asked[name] for name in ("host_w", "idle_w")}
    settings = settings_for(patience=asked["patience"]).settings
    if asked["levels_file"] or asked["watts"]:
        job = stated(asked["levels_file"], asked["watts"] or 0.0, asked["boundary"], caps=True, **counts)
        stated_w = f"{asked['watts'] or 0:.0f} W at full speed, caps at speeds of public measurements"
        basis = f"levels of {asked['levels_file']}" if asked["levels_file"] else stated_w
    else:
        job, basis = of_this_machine(settings, boundary=asked["boundary"], **counts)
    begin_s = units.parse_moment(asked["start"], time.time()) if asked["start"] else None
    zone, file = asked["zone"], asked["grid_file"]
    grid = Grid(recorded.load(file, zone=zone or "recorded")) if file else TypicalDays(zones.key_of(zone))
    start_s = begin_s if begin_s is not None else grid.start_s if isinstance(grid, Grid) else time.time()
    work_s, deadline_s = _budgeted(asked["work"], asked["budget"], start_s)
    job = replace(job, patience_pct=settings.patience)
    if asked["price_file"]:
        until_s = max(deadline_s, start_s + 2 * work_s)  # work that does not fit goes on after the deadline
        prices, _ = tariff.prices(asked["price_file"], start_s, until_s)
        job = replace(job, prices=Grid(prices), weight=asked["weight"])
    elif asked["weight"]:
        raise Failure("--weight needs prices: add --price FILE", 2)
    if asked["idle_limit"]:
        job = replace(job, still_s=units.parse_duration(asked["idle_limit"]))
    problem, plan = planned(job, grid, work_s, start_s, deadline_s, tol=asked["tol"])
    return Solved(problem, plan, start_s, f"{grid.source}; {basis}", settings.patience)


def _budgeted(work: str, budget: str, start_s: float) -> tuple[float, float]:
    """Seconds of work, and when they are to be done. Raises ValueError or Failure."""
    work_s = units.parse_duration(work)
    deadline_s = budgets.parse(budget, start_s).deadline_s(start_s, work_s)
    assert deadline_s is not None
    if deadline_s <= start_s:
        raise Failure(f"budget {budget!r} ends before the start", 2)
    if deadline_s - start_s > LONGEST_S:
        raise Failure(f"budget {budget!r} is longer than {LONGEST_S / 86400:.0f} days", 2)
    return work_s, deadline_s


def _explanation(problem: Problem, schedule: Schedule, begin_s: float) -> str:
    """The plan in words, with clock times."""
    from carbontui.plan import explanation
    from carbontui.text.plan import explained

    stretches = [(name, still, begin_s + end_s) for name, still, end_s in explanation.stretches(problem, schedule)]
    return explained(now_s=begin_s, stretches=stretches, **structs.asdict(explanation.explain(problem, schedule)))


def _show(problem: Problem, plan: Schedule, curve: PlanFrontier | None, text: str, about: str) -> None:
    console = streams.console()
    console.print(text, soft_wrap=True, markup=False)
    proof = "no plan at all can be more than" if plan.certified else "not certified; none can be more than"
    proof = f"Certificate: {proof} {figures.percent(plan.gap, 3)} better (stage {plan.stage})"
    if per_s := problem.price_of_time:
        gap = figures.percent(plan.gap_at_finish(per_s), 3)
        proof += f", the price of time included; of those that finish no later, {gap}"
    console.print(f"{proof}.", style="dim")
    console.print(f"From: {about}", style="dim", markup=False, soft_wrap=True)
    rows: list[tuple[str, Evaluation]] = [("plan", plan), *((b.name, b) for b in plan.baselines)]
    with_cost = any(of.cost for _, of in rows)
    shown = []
    for name, of in rows:
        late, cost = figures.duration(of.late_s) if of.late_s else "", [f"{of.cost:.2f}"] if with_cost else []
        cells = (figures.grams(of.gco2), figures.kwh(of.kwh), figures.duration(of.finish_s), late, *cost)
        shown.append((name + (" (breaks a rule)" if of.violations else ""), *cells))
    head = ("", "CO2", "energy", "finish", "late", *(["cost"] if with_cost else []))
    console.print(streams.table("This plan and its alternatives", head, shown))
    if curve is not None and len(curve):
        console.print(_frontier_table(problem, curve, with_cost))


def _frontier_table(problem: Problem, curve: PlanFrontier, with_cost: bool) -> Table:
    head = ("finish", "CO2", "", "energy", *(("cost",) if with_cost else ()), "how")
    points = list(curve)
    most_g = max(point.gco2_g for point in points)
    step = max(1, (len(points) + 11) // 12)
    shown = points[::-1][::step][::-1]
    rows = []
    for point in shown if points[0] in shown else [points[0], *shown]:
        cost = [f"{point.cost:.2f}"] if with_cost else []
        how = _course(problem, point.levels[:5], point.finish_s) + (" · …" if len(point.levels) > 5 else "")
        bar = "•" * round(BAR * point.gco2_g / most_g) if most_g > 0 else ""
        amounts = (figures.duration(point.finish_s), figures.grams(point.gco2_g), bar, figures.kwh(point.kwh))
        rows.append((*amounts, *cost, how))
    return streams.table("Frontier: a later finish emits less", head, rows, left=(2, len(head) - 1))


def _course(problem: Problem, runs: Sequence[tuple[int, int]], finish_s: float) -> str:
    """'wait 45 min · cap 161 W 10 h 30': each level and how long it is held, in order."""
    said, slot, at = [], 0, 0.0
    for level, slots in runs:
        begun, at = at, at + sum(problem.dur_s[slot : slot + slots])
        slot += slots
        name = problem.levels[level].name
        said.append(f"{'wait' if name == 'off' else name} {figures.duration(min(at, finish_s) - begun)}")
    return " · ".join(said)
