"""Slurm: `submit` submits a batch script to start in clean hours, Slurm holds and starts it; `fleet` moves the start
times of such jobs, to keep a site's power budget with the least CO2."""

import contextlib
import itertools
import json
import math
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from carbontui import paths, units
from carbontui.account.compare import STEP_S, StartWindow, best_start
from carbontui.account.expected_end import without_gaps
from carbontui.commands.support.command import Count, Failure, refused
from carbontui.commands.support.run_values import power
from carbontui.extensions.fleet import queue_problem, rounds
from carbontui.extensions.fleet.placing import FleetPlan
from carbontui.extensions.fleet.problem import NEVER, Arrivals
from carbontui.extensions.fleet.queue_problem import FleetTerms, QueueProblem
from carbontui.extensions.fleet.rounds import FleetRound, MoveLog
from carbontui.grid import compose, opening, recorded, zones
from carbontui.job.terms import budget as budgets
from carbontui.power.curves import files, public
from carbontui.power.curves.curve import Curve
from carbontui.slurm import commands, queue
from carbontui.text import figures


def plan_lines(made: QueueProblem, plan: FleetPlan, least_w: float | None = None) -> list[str]:
    """The plan as text, in lines; `least_w`: the least constant budget under which all its jobs are in time."""
    jobs = len(made.jobs)
    begun = int((plan.start != NEVER).sum())
    drawn = plan.watts + made.fixed_w
    budgeted = np.isfinite(made.cap_w).any()
    fullest = int(np.argmax(drawn / np.maximum(made.cap_w, 1e-9) if budgeted else drawn))
    room = "" if np.isinf(made.cap_w[fullest]) else f" of a budget of {figures.watts(float(made.cap_w[fullest]))}"
    many, begin = "1 job waits" if jobs == 1 else f"{jobs} jobs wait", "starts" if begun == 1 else "start"
    ahead = figures.duration(made.problem.site.slots * made.slot_s)
    lines = [f"{many} and may be moved; {begun} {begin} within {ahead}"]
    if begun:
        grams = float(made.problem.grams(plan.start, plan.level).sum())
        at_once_g = float(made.problem.grams(np.where(plan.start == NEVER, NEVER, 0), plan.level).sum())
        lines.append(
            f"planned {figures.grams(grams)}; started at once without the budget: {figures.grams(at_once_g)}; "
            f"in the fullest slot {figures.watts(float(drawn[fullest]))}{room}"
        )
    if begun and begun == jobs:
        lines.append(f"certificate: no plan of these is better by more than {figures.percent(plan.gap, 2)}")
    if begun < jobs:
        late = jobs - begun
        they = "has no room before its deadline: it is" if late == 1 else "have no room before their deadline: they are"
        lines.append(f"{late} {they} put behind the others")
        lines.append(f"not in time: {', '.join(queue_problem.undone(made, plan)[:8])}{' ...' * (late > 8)}")
        least = "" if least_w is None else f"; a constant budget of {figures.watts(least_w)} suffices for all"
        most_w = float((made.cap_w - made.fixed_w).max())
        least_w_of = zip(made.jobs, made.problem.jobs.watts, strict=True)
        if alone := [job.id for job, row in least_w_of if row[row > 0].min() > most_w]:
            lines.append(f"more than the budget leaves in any hour, each alone: {', '.join(alone[:8])}")
        lines.append(f"no plan can be proven best where jobs are left out{least}")
    if made.others:
        them = "1 other job waits that" if made.others == 1 else f"{made.others} other jobs wait that"
        lines.append(f"{them} did not ask: Slurm alone decides when, beyond this plan")
    if np.any(made.fixed_w > made.cap_w + 1e-6) or np.any(made.problem.site.power_w <= 0):
        lines.append("what runs already draws more than the budget: it cannot be kept until that ends")
    return [*lines, *made.faults]


def constant_line(share: float, planned_g: float, undone: Sequence[str], *, used: bool) -> str:
    """The best constant cap on the same jobs, beside the plan."""
    what = f"one cap for all ({figures.percent(share)} of full watts, each as soon as there is room)"
    return f"{what}: {figures.grams(planned_g)}, {len(undone)} not in time{'; it is better, and used' if used else ''}"


PUBLIC = "public"


def curve_of(place: str, gpu: str, gpus: int | None, watts: float | None, host_w: float) -> Curve:
    """The curve in a file that `calibrate --export` wrote, or that of the public trainings (`place` is PUBLIC) for
    boards that draw `watts` less `host_w`. Raises OSError, ValueError naming what is missing."""
    if place != PUBLIC:
        return files.read(Path(place))
    if watts is None or gpus is None:
        raise ValueError("public curves need --watts and --gpus: they are relative to the watts at full speed")
    if watts <= host_w:
        raise ValueError(f"--host-w {host_w:g} leaves nothing of --watts {watts:g} to the GPUs")
    found = public.curve(
        gpu, gpus, watts - host_w, limit_min_w=0.0, limit_found_w=float("inf"), measured_s=time.time(), mark=""
    )
    assert found is not None  # some of its caps are below any watts
    return found


def start_levels(curve: Curve, gpus: int, watts: float | None, host_w: float) -> dict[str, object]:
    """For the comment: its watts at full speed, and of each cap watts, speed, watts per GPU and the error of the speed.
    Raises ValueError where the curve's boards draw more than `watts`."""
    scale = gpus / curve.gpus
    boards_w = next(point.power_w for point in curve.points if point.kind == "full") * scale
    rest_w = host_w if watts is None else watts - boards_w
    if rest_w < -0.01 * boards_w:
        raise ValueError(f"its {gpus} GPUs draw {boards_w:.0f} W at full speed, --watts {watts:g} is less")
    rest_w = max(0.0, rest_w)
    levels = []
    for point in curve.levels:
        if point.kind == "cap" and point.cap_w is not None:  # what a limit bounds is never above it
            drawn_w = rest_w + min((point.power_w + point.power_se) * scale, point.cap_w * gpus)
            levels.append([round(drawn_w, 1), round(point.speed, 4), point.cap_w, round(point.speed_se, 4)])
    return {"watts": round(rest_w + boards_w, 1), "levels": levels}


Grid = tuple[str | None, str | None]
"""A zone, or a file instead."""
RETRY_S = 60.0
CLOCK_S = 30.0
"""Clocks that differ by less than this are taken for the same."""


@click.command()
@click.option("--cap", "caps", multiple=True, help="The budget, like 120kW; again for certain hours: 80kW 17:00-20:00.")
@click.option("--zone", help="Grid zone of the cluster, like DE.")
@click.option("--grid", "grid_file", type=click.Path(exists=True, dir_okay=False), help="Recorded grid CSV instead.")
@click.option("--gpu-w", default="0", help="Watts of a GPU under load, for jobs that state none (submit --watts).")
@click.option("--node-w", default="0", help="Watts of a node under load without its GPUs, for jobs that state none.")
@click.option("--slot", default="30m", show_default=True, help="Jobs start at its multiples; 96 slots are planned.")
@click.option("--once", is_flag=True, help="Plan and move once, then exit.")
@click.option("--dry-run", is_flag=True, help="Print the plan once, and move nothing.")
@click.option("--max-moves", type=Count(1), help="Move at most so many starts a round.")
@click.option("--max-moves-per-user", type=Count(1), help="Of these, of one user.")
@click.option("--log", "show_log", is_flag=True, help="Print all moves so far: a line of JSON each, and exit.")
@click.option("--undo", is_flag=True, help="Give waiting jobs the starts from before all moves, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Each plan as a line of JSON.")
def fleet(
    caps: tuple[str, ...], slot: str, once: bool, dry_run: bool, show_log: bool, undo: bool, as_json: bool, **given: Any
) -> None:
    """Keep a site's power budget with the least CO2: carbontui fleet --cap 120kW --zone DE --gpu-w 400W

    It only moves the start times of jobs submitted with `carbontui submit`: it holds no job and starts none. If it
    ends, they start at the times last set. Slurm lets you move your own jobs; an operator moves everyone's. Each move
    is logged before it is made. While one fleet runs a second is refused (exit code 4).
    """
    if show_log or undo:
        (_undo if undo else _print_log)()
        return
    with refused():
        budget = [queue_problem.parse(text) for text in caps]
        slot_s = units.parse_duration(slot)
        if not 10.0 <= slot_s <= 86400.0:
            raise ValueError(f"--slot {slot}: must be between 10 s and one day")
    if not budget:
        raise Failure("fleet needs the site's budget: carbontui fleet --cap 120kW", 2)
    assumed = queue_problem.Assumed(_watts(given["gpu_w"], "--gpu-w"), _watts(given["node_w"], "--node-w"))
    past, log = Arrivals(), None if dry_run else _log()
    grid = given["zone"], given["grid_file"]
    terms = FleetTerms(budget, assumed, slot_s, given["max_moves"] or math.inf, given["max_moves_per_user"] or math.inf)
    while True:
        ahead_s = _ahead_s()
        start = queue_problem.next_slot_s(time.time() + ahead_s, slot_s)
        try:
            one_round(terms, grid, start, ahead_s, past, log, as_json=as_json)
        except Failure as failure:
            if once or dry_run:
                raise
            # nothing is lost: every job keeps its start time, and the next round tries again
            click.echo(f"carbontui: {failure.message}; retrying in {figures.duration(RETRY_S)}", err=True)
            time.sleep(RETRY_S)
            continue
        if once or dry_run:
            return
        time.sleep(max(1.0, queue_problem.next_plan_s(start, slot_s) - time.time() - ahead_s))


def _ahead_s() -> float:
    """How far the controller's clock, by which jobs start, is ahead of this machine's; 0 within what asking takes.
    Without an answer the round itself says why there is none."""
    try:
        ahead_s = queue.clock_s() - time.time()
    except commands.SlurmError:
        return 0.0
    if abs(ahead_s) < CLOCK_S:
        return 0.0
    by = f"{figures.duration(abs(ahead_s))} {'behind' if ahead_s > 0 else 'ahead of'}"
    click.echo(f"carbontui: this machine's clock is {by} the controller's, which is used", err=True)
    return ahead_s


def _watts(text: str, option: str) -> float:
    return 0.0 if text == "0" else power(text, option)


def one_round(
    terms: FleetTerms, grid: Grid, start_s: float, ahead_s: float, past: Arrivals, log: MoveLog | None, *, as_json: bool
) -> None:
    """Plan by this grid, move where there is a log, and print. The controller's clock is `ahead_s` ahead of ours;
    `past` is what has come until now. Raises Failure."""
    now = time.time() + ahead_s
    mean, source = intensity(*grid, start_s, terms.slot_s, queue_problem.SLOTS)
    with refused("", (commands.SlurmError, OSError), code=1):
        done = rounds.run_round(terms, mean, start_s, past, log)
    if as_json:
        click.echo(json.dumps(done.to_dict(now)))
    else:
        _tell(done, source, now, dry_run=log is None)


def _tell(done: FleetRound, source: str, now: float, *, dry_run: bool) -> None:
    made, plan, moves, unmoved, later, least_w, _ = done
    moved = "would move" if dry_run else "moved" if not unmoved else "asked Slurm, which refused some, to move"
    click.echo(f"{figures.named_clock(now, now)}  {moved} {len(moves)} starts ({source})")
    for move in moves if dry_run else ():
        capped = "" if move.cap_w is None else f" at {move.cap_w:g} W per GPU"
        click.echo(f"  {move.job.id}  {move.job.name:<24} begins {figures.clock(move.at_s, now)}{capped}")
    lines = plan_lines(made, plan, least_w)
    if cap := done.constant_cap():
        lines.append(constant_line(**cap))
    for line in lines:
        click.echo(f"  {line}")
    if later:
        click.echo(f"  {len(later)} more are left to later rounds (--max-moves)")
    _refused(unmoved)


def _refused(unmoved: Iterable[str]) -> None:
    for line in sorted({units.printable(line) for line in unmoved})[:5]:
        click.echo(f"  Slurm: {line}")


def _log_file() -> Path:
    return paths.private_dir(paths.state_dir()) / "fleet.jsonl"


def _log() -> MoveLog:
    """Raises Failure where another fleet holds it."""
    with refused("fleet: ", OSError, code=1), refused("fleet: ", BlockingIOError, code=4):
        return MoveLog(_log_file())


def _print_log() -> None:
    """All moves; first, where no fleet runs and Slurm answers, those are corrected that it does not have."""
    with contextlib.suppress(Failure, commands.SlurmError):
        _log().correct(queue.queue(()))
    click.echo(_log_file().read_text(errors="replace"), nl=False)


def _undo() -> None:
    with refused("", (commands.SlurmError, OSError, ValueError), code=1):
        moves, unmoved = _log().undo(queue.queue(()))
    click.echo(f"moved {len(moves)} starts back")
    _refused(unmoved)


AHEAD_MOST_S = 14 * 86400.0
AT_ONCE_S = 60.0
"""A start closer than this is submitted without --begin: Slurm itself may take a minute to start a job."""


def _script_is_there(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """A script alone is a file: a mistyped one is named before anything is asked for."""
    if len(given) == 1 and not given[0].startswith("-") and not Path(given[0]).is_file():
        raise Failure(f"{given[0]}: no such file", 2)
    return given


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--work", required=True, help="How long it runs, like 8h.")
@click.option("--budget", default="2x", show_default=True, help='When it must be done: 1.8x, 18h or "fri 09:00".')
@click.option("--zone", help="Grid zone of the cluster, like DE.")
@click.option("--grid", "grid_file", type=click.Path(exists=True, dir_okay=False), help="Recorded grid CSV instead.")
@click.option("--watts", help="Watts it draws while it runs, on all its nodes, like 2.8kW, for `carbontui fleet`.")
@click.option("--host-w", default="0", help="Of these watts, what its nodes draw besides their GPUs.")
@click.option(
    "--curve",
    help="Caps it may start at: a file of `calibrate --export`, or `public`. Its script uses `carbontui run`.",
)
@click.option("--gpus", type=Count(1), help="With --curve: its GPUs on all its nodes (default: the curve's).")
@click.option("--gpu", default="", help="With --curve public: the model of its GPUs, like A40 (default: any).")
@click.option("--strict", is_flag=True, help="Have Slurm remove or end it at the deadline (sbatch --deadline).")
@click.option("--dry-run", is_flag=True, help="Print what would be submitted, and submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, callback=_script_is_there)
def submit(
    arguments: tuple[str, ...], work: str, budget: str, strict: bool, dry_run: bool, as_json: bool, **given: Any
) -> None:
    """Submit a batch script: carbontui submit --budget 2x --work 8h -- --array=1-10 job.sh

    Everything after -- goes to sbatch. The job starts in the cleanest hours that the budget leaves, or later if the
    queue is busy. A script that uses `carbontui run` gets the deadline as its budget.
    """
    if not arguments:
        raise Failure("submit needs a script: carbontui submit --work 8h -- job.sh", 2)
    now = time.time()
    with refused():
        work_s = units.parse_duration(work)
        if work_s <= 0:
            raise ValueError(f"--work {work!r}: must be longer than zero")
        deadline = budgets.parse(budget, now).deadline_s(now, work_s)
    assert deadline is not None
    window, source = _window(given.pop("zone"), given.pop("grid_file"), now, work_s, deadline)
    wait_s = window.begin_s - now
    options = ["sbatch", "--parsable"]
    if wait_s >= AT_ONCE_S:
        options.append(f"--begin=now+{math.ceil(wait_s)}seconds")  # relative: no time zone to get wrong
    if strict:
        options.append(f"--deadline=now+{math.ceil(deadline - now)}seconds")
    noted: dict[str, object] = {
        "begin": units.iso(window.begin_s),
        "deadline": units.iso(deadline),
        "mean_g_per_kwh": round(window.mean_g, 1),
        "now_g_per_kwh": round(window.now_g, 1),
        "work_s": round(work_s),
    }
    noted |= _drawn(**given)
    options.append(f"--comment=carbontui:{json.dumps(noted)}")
    command = [*options, *arguments]
    job = ""
    if not dry_run:
        os.environ.setdefault("CARBONTUI_BUDGET", units.iso(deadline))
        given_to_sbatch = " ".join(itertools.takewhile(lambda one: not Path(one).is_file(), arguments))
        if found := re.search(r"(?:^| )--signal[= ](\S+)", given_to_sbatch):
            os.environ["SBATCH_SIGNAL"] = found[1]  # of its successors, too: Slurm shows it nowhere
        with refused("", commands.SlurmError, code=1):
            job = commands.submitted(command)
    if as_json:
        click.echo(json.dumps({"job": job or None, **noted, "saved": round(window.saved, 4), "source": source}))
        return
    click.echo(f"submitted batch job {job}" if job else shlex.join(command))
    for line in _words(window, now, work_s, deadline, source, strict=strict):
        click.echo(line)


def _drawn(watts: str | None, host_w: str, curve: str | None, gpus: int | None, gpu: str) -> dict[str, object]:
    """What it is to draw, and under which caps, as the fleet reads it. Raises Failure."""
    drawn_w = power(watts, "--watts") if watts else None
    noted: dict[str, object] = {} if drawn_w is None else {"watts": drawn_w}
    if curve:
        with refused("--curve: ", (OSError, ValueError)):
            of = curve_of(curve, gpu, gpus, drawn_w, _watts(host_w, "--host-w"))
            noted |= start_levels(of, gpus or of.gpus, drawn_w, _watts(host_w, "--host-w"))
    return noted


def _window(
    zone: str | None, grid_file: str | None, now: float, work_s: float, deadline_s: float
) -> tuple[StartWindow, str]:
    """The chosen start, and where the intensities come from. Raises Failure."""
    ahead_s, start = min(AHEAD_MOST_S, max(deadline_s - now, work_s) + STEP_S), now // STEP_S * STEP_S
    mean, source = intensity(zone, grid_file, start, STEP_S, math.ceil((now + ahead_s - start) / STEP_S))
    found = best_start(mean, start, STEP_S, now_s=now, work_s=work_s, deadline_s=deadline_s)
    if found is None:
        raise Failure(f"no grid data until then ({source}); submit it with sbatch", 3)
    return found, source


def intensity(
    zone: str | None, grid_file: str | None, start_s: float, step_s: float, slots: int
) -> tuple[Sequence[float], str]:
    """Mean g/kWh of each slot from `start_s` (a multiple of `step_s`) on, by the file, else by the zone's forecast, and
    the source; a slot without a value repeats the last known one. Raises Failure."""
    if grid_file:
        with refused("--grid: "):
            mean: Sequence[float | None] = compose.slot_means(recorded.load(grid_file).rows, start_s, step_s, slots)
        source = grid_file
    else:
        with refused():  # a KeyFileError is one as well
            key = zones.sure(zone or os.environ.get("CARBONTUI_ZONE")).key
            seen, _ = opening.polled(key, opening.settings(), slots * step_s, step_s, start_s=start_s)
        if seen is None:
            raise Failure(f"no grid data for {key}; submit it with sbatch", 3)
        mean, source = seen.mean, f"{seen.source} ({seen.how})"
    if all(value is None for value in mean):
        raise Failure(f"no grid data from now on ({source})", 3)
    return without_gaps(mean), source


def _words(
    window: StartWindow, now: float, work_s: float, deadline_s: float, source: str, *, strict: bool
) -> Iterator[str]:
    """Why it begins then, and what that saves."""
    span = f"{figures.clock(window.begin_s, now)} to {figures.clock(window.begin_s + work_s, now)}"
    if window.begin_s - now < AT_ONCE_S:
        why = "no slack is left" if window.latest_s - now < AT_ONCE_S else "no later start is cleaner"
        yield f"begins as soon as it can: {why} ({window.now_g:.0f} g/kWh, {source})"
    else:
        why = f"{span} has {window.mean_g:.0f} g/kWh on average, a start now {window.now_g:.0f}"
        less = f"{figures.percent(window.saved)} less CO2 ({source})"
        yield f"begins {figures.named_clock(window.begin_s, now)}: {why}: {less}"
    end = figures.named_clock(deadline_s, now)
    if deadline_s - now < work_s - 1.0:
        yield f"the budget ends {end}, before the work can: it will be late whenever it starts"
    elif strict:
        yield f"Slurm removes it if it cannot end by {end}, and ends it then"
    else:
        yield f"to be done by {end}; where the queue is busy it starts later, and is not removed (--strict: it is)"
