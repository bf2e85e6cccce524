"""`fleet`: moves the start times of Slurm jobs that opted in, to keep a site's power budget with the least CO2."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carbontui import tui, units
from carbontui.site import given
from carbontui.slurm import queue as slurm_queue
from carbontui.slurm.commands import SlurmError
from carbontui.text import figures
from carbontui.tui import terminal
from carbontui.verbs.support import grid_data
from carbontui.verbs.support.command import Failure, refused
from carbontui.verbs.support.run_values import power

if TYPE_CHECKING:
    from carbontui.slurm.fleet import Assumed, Cap, Move, QueueProblem
    from carbontui.slurm.placing import FleetPlan

RETRY_S = 60.0


@click.command(short_help="Start a cluster's jobs in clean hours, within a power budget.")
@click.option("--cap", "caps", multiple=True, help="The budget, like 120kW; again for certain hours: 80kW 17:00-20:00.")
@click.option("--zone", help="Grid zone of the cluster, like DE.")
@click.option("--grid", "grid_file", type=click.Path(exists=True, dir_okay=False), help="Recorded grid CSV instead.")
@click.option("--gpu-w", default="0", help="Watts of a GPU under load, for jobs that state none (submit --watts).")
@click.option("--node-w", default="0", help="Watts of a node under load without its GPUs, for jobs that state none.")
@click.option("--slot", default="30m", show_default=True, help="Jobs start at its multiples; 96 slots are planned.")
@click.option(
    "--prices", "prices_file", type=click.Path(dir_okay=False), help="Publish prices for running jobs in this file."
)
@click.option("--once", is_flag=True, help="Plan and move once, then exit.")
@click.option("--dry-run", is_flag=True, help="Print the plan once, and move nothing.")
@click.option("--look", is_flag=True, help="Open the queue page, and move nothing.")
@click.option("--json", "as_json", is_flag=True, help="Each plan as a line of JSON.")
def fleet(
    caps: tuple[str, ...],
    zone: str | None,
    grid_file: str | None,
    gpu_w: str,
    node_w: str,
    slot: str,
    prices_file: str | None,
    once: bool,
    dry_run: bool,
    look: bool,
    as_json: bool,
) -> None:
    """Keep a site's power budget with the least CO2: carbontui fleet --cap 120kW --zone DE --gpu-w 400W

    It only moves the start times of jobs submitted with `carbontui submit`: it holds no job and starts none. If it
    ends, they start at the times last set. Slurm lets you move your own jobs; an operator moves everyone's. Running
    jobs follow the prices in the --prices file if their settings name it as site_prices.
    """
    from carbontui.slurm import fleet as fleet_queue

    with refused():
        budget = [fleet_queue.parse(text) for text in caps]
        slot_s = units.parse_duration(slot)
        if not 10.0 <= slot_s <= 86400.0:
            raise ValueError(f"--slot {slot}: must be between 10 s and one day")
    if not budget and not look:
        raise Failure("fleet needs the site's budget: carbontui fleet --cap 120kW, or --look to see the queue only", 2)
    assumed = fleet_queue.Assumed(_watts(gpu_w, "--gpu-w"), _watts(node_w, "--node-w"))
    if look:
        sys.exit(_page(budget, zone or os.environ.get("CARBONTUI_ZONE"), grid_file, assumed))
    told: dict[str, float] = {}
    while True:
        start = fleet_queue.next_slot_s(time.time(), slot_s)
        try:
            told |= one_round(
                *(budget, zone, grid_file, assumed, start, slot_s, told),
                prices=Path(prices_file) if prices_file else None,
                dry_run=dry_run,
                as_json=as_json,
            )
        except Failure as failure:
            if once or dry_run:
                raise
            # nothing is lost: every job keeps its start time, and the next round tries again
            click.echo(f"carbontui: {failure.message}; retrying in {figures.duration(RETRY_S)}", err=True)
            time.sleep(RETRY_S)
            continue
        if once or dry_run:
            return
        time.sleep(max(1.0, fleet_queue.next_plan_s(start, slot_s) - time.time()))


def _watts(text: str, option: str) -> float:
    return 0.0 if text == "0" else power(text, option)


def _page(budget: list[Cap], zone: str | None, grid_file: str | None, assumed: Assumed) -> int:
    from carbontui.verbs.support.queue_watch import QueueWatch

    if why := terminal.why_plain():
        raise Failure(f"{why}: the queue page needs a terminal; --dry-run --json prints the plan", 2)
    with QueueWatch(budget, zone, grid_file, assumed) as watch:
        return tui.queue(watch.look)


def one_round(
    budget: list[Cap],
    zone: str | None,
    grid_file: str | None,
    assumed: Assumed,
    start_s: float,
    slot_s: float,
    values: dict[str, float],
    *,
    prices: Path | None,
    dry_run: bool,
    as_json: bool,
) -> dict[str, float]:
    """Read the queue, plan, move; each job's start time. `values`: the times set by earlier rounds. Raises Failure."""
    from carbontui.slurm import fleet as fleet_queue
    from carbontui.slurm.placing import planned

    slots, now = fleet_queue.SLOTS, time.time()
    due = frozenset(job for job, at in values.items() if at <= now)
    mean, source = grid_data.filled(zone, grid_file, start_s, slot_s, slots)
    with refused("", (SlurmError, given.PricesError), code=1):
        cap_w = fleet_queue.per_slot(budget, start_s, slot_s, slots)
        machine, jobs = slurm_queue.size(slurm_queue.nodes()), slurm_queue.queue()
        made = fleet_queue.problem(jobs, machine, mean, cap_w, assumed, start_s=start_s, slot_s=slot_s, due=due)
        plan = planned(made.problem)
        moves = fleet_queue.moves(made, plan)
        unmoved = [] if dry_run else slurm_queue.move((move.job.id, move.at_s) for move in moves)
        if prices is not None and not dry_run:
            given.write(prices, start_s, slot_s, made.price_g_per_kwh(plan), now_s=now)
    _tell(made, plan, moves, source, unmoved, dry_run=dry_run, as_json=as_json)
    return fleet_queue.starts_s(made, plan)


def _tell(
    made: QueueProblem,
    plan: FleetPlan,
    moves: list[Move],
    source: str,
    unmoved: list[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from carbontui.slurm import fleet as fleet_queue

    now = time.time()
    if as_json:
        begins = fleet_queue.starts_s(made, plan)
        starts = {job.id: units.iso(begins[job.id]) if job.id in begins else None for job in made.jobs}
        told = {
            "at": units.iso(now),
            "starts": starts,
            "moved": [move.job.id for move in moves],
            "running_w": fleet_queue.running_w(made, plan),
            "planned_g": float(made.problem.grams(plan.start, plan.level).sum()),
            "gap": plan.gap,
            "slot_s": made.slot_s,
            "first_slot": units.iso(made.start_s),
            "watts": [round(value, 1) for value in (plan.watts + made.fixed_w).tolist()],
            "price_g_per_kwh": [round(value, 2) for value in made.price_g_per_kwh(plan)],
            "faults": list(made.faults),
        }
        click.echo(json.dumps(told))
        return
    done = "would move" if dry_run else "moved" if not unmoved else "asked Slurm, which refused some, to move"
    click.echo(f"{figures.named_clock(now, now)}  {done} {len(moves)} starts ({source})")
    for move in moves if dry_run else ():
        click.echo(f"  {move.job.id}  {move.job.name:<24} begins {figures.clock(move.at_s, now)}")
    for line in fleet_queue.told(made, plan):
        click.echo(f"  {line}")
    for line in sorted({units.printable(line) for line in unmoved})[:5]:
        click.echo(f"  Slurm: {line}")
