"""`compare`: the same work on other GPUs, in other zones, at other hours, under other budgets. It moves no
job."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from carbontui import config, hooks, units
from carbontui.account import compare as comparing
from carbontui.account.compare import BoardSpec, Elsewhere, Work, better
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, Finite, any_jobs, refused, there_option, zone_keys
from carbontui.commands.support.run_values import settings_for, settings_of
from carbontui.grid import opening, zones
from carbontui.grid.types import GridForecast
from carbontui.power.messages import Reading
from carbontui.reports import elsewhere, story
from carbontui.text import account as words
from carbontui.text import figures
from carbontui.text.first_run import gain

if TYPE_CHECKING:
    from carbontui.assumed.job import AssumedJob

MOVES_NOTHING = "compare moves no job: this is what the same work would take elsewhere"
BUDGETS = (1.0, 1.5, 2.0, 3.0)
AHEAD_LEAST_S = 30 * 3600.0
WORTH = 0.001
"""A saving below this share is not worth waiting for."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, the job's own row, whether speeds differ, and the notes below the table."""

    rows: list[Elsewhere]
    own: Elsewhere | None = None
    speeds: bool = False
    said: tuple[str, ...] = ()
    numbers: Mapping[Elsewhere, dict[str, Any]] = field(default_factory=dict)
    """Of rows whose JSON has more than they."""
    last: str = MOVES_NOTHING


SHOWN, BAR = 15, 12


def one_line_each(rows: list[Elsewhere], own: Elsewhere | None) -> tuple[list[Elsewhere], Elsewhere | None]:
    """Rows that differ in their names alone as one row, and `own` as the one it is in."""
    found = []
    for _, alike in groupby(rows, key=lambda row: row._replace(name="")):
        same = list(alike)
        found.append(same[0]._replace(name=", ".join(row.name for row in same)))
        own = found[-1] if own in same else own
    return found, own


def print_rows(rows: Sequence[Elsewhere], own: Elsewhere | None, *, every_row: bool, speeds: bool = False) -> None:
    """Print them, `own` always among them; bars are CO2, or energy where no grid is known."""
    shown = list(rows if every_row else rows[:SHOWN])
    if own is not None and own not in shown:
        shown.append(own)
    amounts = [row.kwh if row.gco2_g is None else row.gco2_g for row in shown]
    most = max(amounts, default=0.0) or 1.0
    width = max(len(row.name) for row in shown)
    head = [f"{'':<{width}}", *([f"{'speed':>6}"] if speeds else []), f"{'time':>9}", f"{'energy':>9}"]
    click.echo("  ".join([*head, f"{'CO2':>8}"]))
    one_how = len({row.how for row in shown}) == 1
    for row, amount in zip(shown, amounts, strict=True):
        cells = [f"{row.name:<{width}}", *([f"{row.speed:>5.2f}x"] if speeds else [])]
        cells += [f"{figures.duration(row.time_s):>9}", f"{figures.kwh(row.kwh):>9}"]
        bar = "█" * round(BAR * amount / most)
        how = f"{'' if one_how else row.how}{'  <- here' if row is own else ''}"
        click.echo("  ".join([*cells, f"{figures.grams(row.gco2_g):>8}", f"{bar:<{BAR}}", how]).rstrip())
    if one_how and shown:
        click.echo(f"all rows: {shown[0].how}")
    if len(shown) < len(rows):
        click.echo(f"... {len(rows) - len(shown)} more with --all")


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--gpu", metavar="NAME", help="The GPU the job ran on, if its name is not recognised.")
@click.option(
    "--zones", is_flag=True, help="Other zones by their grid's intensity now; offline, countries by their yearly mean."
)
@click.option("--budgets", is_flag=True, help="The best plans within 1x, 1.5x, 2x and 3x of its time.")
@click.option("--hosts", metavar="A,B", help="The rest of it on your other machines, over ssh, with the move's cost.")
@there_option
@click.option("--zone", shell_complete=zone_keys, help="The zone of --budgets (default: the job's).")
@click.option("--intensity", help="Your own carbon intensity at all hours, gCO2/kWh.")
@click.option("--board-w", help="TDP of one GPU, where its power was not measured.")
@click.option("--utilisation", type=Finite(0), help="Share of the TDP that it draws under load, like 0.8.")
@click.option("--all", "every_row", is_flag=True, help="Every row.")
@click.option("--list", "show", is_flag=True, help="List the known GPUs.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, every row.")
def compare(job: str | None, show: bool, **asked: Any) -> None:
    """Show what the same work would take elsewhere, or later."""
    every = comparing.boards()
    if show:
        click.echo("\n".join(board.short for board in every))
        return
    made = _compared(job, asked, every)
    if asked["as_json"]:
        click.echo(talk.as_json([made.numbers.get(row) or row._asdict() for row in made.rows]))
        return
    if not made.rows:
        raise Failure("no GPU has a known speed and enough memory for this work", 3)
    rows, own = one_line_each(made.rows, made.own) if asked["budgets"] else (made.rows, made.own)
    print_rows(rows, own, every_row=asked["every_row"], speeds=made.speeds)
    for line in (*made.said, made.last):
        click.echo(line)


def _compared(job: str | None, asked: dict[str, Any], every: list[BoardSpec]) -> Comparison:
    if sum((asked["zones"], asked["budgets"], asked["hosts"] is not None)) > 1:
        raise Failure("--zones, --budgets and --hosts exclude each other: give one", 2)
    if asked["zone"] is not None and not asked["budgets"]:
        raise Failure("--zone belongs to --budgets", 2)
    given = {"intensity": asked["intensity"], "board_w": asked["board_w"], "utilisation": asked["utilisation"]}
    settings = settings_for(**given).settings
    with refused("", story.NoStory, code=3):
        run = story.build(found := talk.find(job), status=talk.live_status(found))
        work = elsewhere.work_of(run, settings, given=asked["board_w"] is not None)
    if asked["hosts"] is not None:
        return _hosts(run, work, asked["hosts"], asked["there"])
    if asked["zones"]:
        return _zones(run, work)
    if asked["budgets"]:
        return _budgets(run, work, asked["zone"], settings)
    if not run.status.gpus and work.boards_w <= 0:
        raise Failure(
            f"job {run.status.job} used no GPU, so what one would do for it is not known; --zones and"
            " --budgets compare it, and if it ran on one: --gpu NAME --board-w WATTS",
            2,
        )
    with refused():
        here = elsewhere.board_of(run, asked["gpu"], every)
    return _boards(comparing.on_boards(work, here, every))


def _boards(rows: list[Elsewhere]) -> Comparison:
    own = next((row for row in rows if row.here), None)
    best = "staying is best: no GPU in the table takes less energy for this work"
    return Comparison(rows, own, speeds=True, said=(best,) if own is not None and rows[0] == own else ())


def _hosts(run: story.RunStory, work: Work, names: str, there: str) -> Comparison:
    """The user's machines; staying comes first."""
    wanted = units.listed(names)
    if not wanted:
        raise Failure("--hosts: name machines as ssh does, like n2,user@n3", 2)
    with refused(), refused("", elsewhere.NothingToCompare, code=3):
        found, said = elsewhere.compared(elsewhere.rest_of(run, work), wanted, there)
    here, *others = found
    if not others:
        raise Failure("; ".join(said), 3)
    for one in others:
        took = "" if one.move is None else f": the move takes {words.moves(one.move)}"
        said.append(f"{one.row.name} in {one.zone}, from {figures.clock(one.from_s, here.from_s)}{took}")
    best = better(found, WORTH)
    last = "staying is best: none of them emits less" if best is None else MOVES_NOTHING
    if best is not None and any(hooks.offered("elsewhere", own_only=True)):
        last = f"to move it: carbontui move {run.status.job} {best.row.name}"
    rows = {one.row: one.numbers for one in found}
    return Comparison([*rows], here.row, speeds=True, said=tuple(said), numbers=rows, last=last)


def _zones(run: story.RunStory, work: Work) -> Comparison:
    """Zones by what their grids emit now, in one signal: that of the job's own account, if any answers in it; where no
    source answers, countries by their yearly mean."""
    live, zone, known = opening.now_on(settings_of(settings_for().settings)), run.options.zone, run.status.intensity
    if not live:
        yearly = comparing.on_grids(work, comparing.countries())
        own = next((row for row in yearly if row.name.split()[0] == (zone or "").partition("-")[0]), None)
        unknown = "no grid's current value is known here (offline, or no source answers)"
        means = "yearly lifecycle means: compare them with each other, not with this job's own account"
        return Comparison(yearly, own, said=(unknown, means))
    signal = max(live, key=lambda each: (known is not None and each == known.signal, len(live[each])))
    rows = [row._replace(here=row.name.split()[0] == zone) for row in comparing.on_grids(work, live[signal])]
    own = next((row for row in rows if row.here), None)
    said = ["staying is best: no grid with a current value is cleaner"] if own is not None and own == rows[0] else []
    if others := sum(map(len, live.values())) - len(rows):
        said.append(f"{others} zones with another signal do not compare with these")
    return Comparison(rows, own, said=tuple(said))


def _budgets(run: story.RunStory, work: Work, zone: str | None, settings: config.Settings) -> Comparison:
    from carbontui.assumed.job import within_budgets
    from carbontui.plan.problem import ProblemError

    now_s, job = time.time(), _machine(run)
    outlook = _outlook(run, work, zone, settings.intensity, now_s)
    with refused("", ProblemError, code=3):
        rows = within_budgets(job, work, outlook, BUDGETS, now_s)
    full = rows[0]
    gains = [gain(1 - (row.gco2_g or 0.0) / (full.gco2_g or 1.0), row.time_s - full.time_s) for row in rows]
    rows = [full, *(row._replace(how=f"{said}; {row.how}") for said, row in zip(gains[1:], rows[1:], strict=True))]
    theirs = run.options.budget.replace(".0x", "x")
    own, said = next((row for row in rows if row.name == theirs), rows[0]), []
    if all((row.gco2_g or 0.0) >= (rows[0].gco2_g or 0.0) * (1 - WORTH) for row in rows):
        said.append("more time saves nothing: the plan within 1x is the best")
    if any("cap" in level.name for level in job.shape.levels):
        said.append("levels are from public measurements, not from your GPU: to measure it, carbontui learn speed")
    return Comparison(rows, own, said=tuple(said))


def _machine(run: story.RunStory) -> AssumedJob:
    """What its GPUs can do without it: as they say where they are here, else as its status has them."""
    from carbontui.commands.support import offers

    own, found = {gpu.uuid for gpu in run.status.gpus}, offers.readings()
    boards = [structs.replace(one, foreign_pids=(), share=None) for one in found.devices if one.uuid in own]
    if len(boards) != len(own):
        boards = [Reading(uuid=gpu.uuid, name=gpu.name, limit_found_w=gpu.limit_w) for gpu in run.status.gpus]
    return offers.of_machine(run.options, structs.replace(found, devices=tuple(boards)))[0]


def _outlook(run: story.RunStory, work: Work, zone: str | None, intensity: float | None, now_s: float) -> GridForecast:
    """The grid's forecast from now on. Raises Failure where the zone is unknown or nothing is known of its grid."""
    options = run.options
    value = intensity if intensity is not None else options.intensity_g_per_kwh if zone is None else None
    key = None
    if value is None and zone is None and options.grid is not None:
        raise Failure(f"job {options.job} used a recorded grid; name the current zone with --zone", 2)
    if value is None:
        with refused():
            key = zones.sure(zone or options.zone).key
    settings = settings_of(settings_for(signal=options.signal, currency=options.currency).settings)
    ahead_s = max(AHEAD_LEAST_S + work.work_s, BUDGETS[-1] * work.work_s + 3600.0)
    found, feed = opening.polled(key, replace(settings, intensity_g_per_kwh=value), ahead_s, start_s=now_s)
    if found is None or all(mean is None for mean in found.mean):
        raise Failure(feed.note or f"no grid data for {key}", 3)
    return found
