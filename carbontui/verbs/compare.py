"""`compare`: the same work on other boards and in other countries. It moves no job."""

from __future__ import annotations

import click

from carbontui import __version__, units
from carbontui.account import compare as comparing
from carbontui.account.compare import BoardSpec, Elsewhere, PublishedPrecision, Rented, Work
from carbontui.reports import story
from carbontui.verbs import tables, talk
from carbontui.verbs.completion import any_jobs
from carbontui.verbs.failure import Failure

SHOWN = 15
MOVES_NOTHING = "carbontui moves no job: this is what the same work would take elsewhere"


def _offers(texts: tuple[str, ...], every: list[BoardSpec]) -> list[Rented]:
    """The dated example prices, and before them what a person gives: "crusoe:H100 SXM5 80GB=3.9"."""
    given = []
    for text in texts:
        where, _, price = text.rpartition("=")
        provider, _, name = where.partition(":")
        board = comparing.known(name, every)
        try:
            value = float(price)
        except ValueError:
            value = -1.0
        if not provider or not 0 < value < 1e6:
            raise Failure(f'--cloud-price {text!r} is not a price; write it like "crusoe:H100 SXM5 80GB=3.9"', 2)
        if board is None:
            raise Failure(f"--cloud-price: no board {name!r} in the table; --list shows them", 2)
        given.append(Rented(provider, "", board.short, value, "as given", None))
    return [*given, *tables.cloud_prices()]


def _speedups(texts: tuple[str, ...], every: list[BoardSpec]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, factor = text.rpartition("=")
        try:
            value = float(factor)
        except ValueError:
            value = 0.0
        if not name or not 0 < value < 1000:
            raise Failure(f'--speedup {text!r} is not a board and a factor; write it like "H100 PCIe 80GB=2.5"', 2)
        if comparing.known(name, every) is None:
            raise Failure(f"--speedup: no board {name!r} in the table; --list shows them", 2)
        found[name] = value
    return found


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--gpu", metavar="NAME", help="The board the job ran on, where it is not found by its name.")
@click.option("--precision", type=click.Choice(["fp16", "fp32"]), default="fp16", show_default=True)
@click.option("--speedup", multiple=True, metavar="GPU=FACTOR", help="A speed you know, instead of the rough rule.")
@click.option(
    "--task", metavar="NAME", help="A published training like yours: resnet50, bert_base_squad, mlperf-bert ..."
)
@click.option("--clouds", is_flag=True, help="Rented boards at dated example prices, cheapest first.")
@click.option("--cloud-price", multiple=True, metavar="WHO:GPU=PRICE", help="A price per board and hour that you know.")
@click.option("--zones", is_flag=True, help="Countries instead of boards.")
@click.option("--all", "every_row", is_flag=True, help="Every row.")
@click.option("--list", "show", is_flag=True, help="List the boards that are known.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, every row.")
def compare(
    job: str | None,
    gpu: str | None,
    precision: PublishedPrecision,
    speedup: tuple[str, ...],
    task: str | None,
    clouds: bool,
    cloud_price: tuple[str, ...],
    zones: bool,
    every_row: bool,
    show: bool,
    as_json: bool,
) -> None:
    """Show what a job's work would take elsewhere."""
    every = tables.boards()
    if show:
        for board in every:
            click.echo(board.short)
        return
    told, rates = _speedups(speedup, every), tables.throughputs()
    offers = _offers(cloud_price, every) if clouds or cloud_price else []
    if task is not None and task not in {rate.task for rate in rates}:
        names = ", ".join(sorted({rate.task for rate in rates}))
        raise Failure(f"--task: nothing published of {task!r} here; there are {names}", 2)
    if zones and offers:
        raise Failure("--zones and --clouds are two questions; ask one", 2)
    try:
        run = story.build(found := talk.find(job), status=talk.live_status(found), version=__version__)
    except story.NoStory as error:
        raise Failure(str(error), 3) from None
    work, own = _work(run), None
    if zones:
        rows, here = comparing.on_grids(work, tables.countries()), None
    else:
        here = _here(run, gpu, every)
        known = {} if task is None else comparing.published(rates, task, precision, here)
        if task is not None and not known:
            click.echo(
                f"carbontui: nothing published of {task} in {precision} on {here.short}: the rough rule", err=True
            )
        rows = comparing.on_boards(work, here, every, precision=precision, told=told, measured=known)
        if offers:
            own = next((row for row in rows if row.name == here.short), None)
            rows = comparing.rented(work, rows, offers)
    if as_json:
        click.echo(talk.as_json([row._asdict() for row in rows]))
        return
    if offers:
        _print_offers(rows, own, every_row=every_row)
        return
    _print(rows, here, run, every_row=every_row)


def _work(run: story.RunStory) -> Work:
    """The whole work where it can be told, else what was done. Raises Failure."""
    if run.full_wall_w is None:
        raise Failure(f"job {run.status.job}: watts flat out were not measured, so nothing can be compared", 3)
    wall, boards_kwh = run.energy_wall_kwh, run.energy_gpu_kwh * run.options.pue
    share = boards_kwh / wall if wall > 0 else 1.0
    estimate = run.status.estimate
    seconds = estimate.work_s if estimate is not None else run.done_s
    if seconds <= 0:
        raise Failure(f"job {run.status.job} has done no work yet: nothing can be compared", 3)
    used = [gpu.memory_used_b for gpu in run.status.gpus if gpu.memory_used_b]
    count = max(1, len(run.status.gpus))
    watts = run.full_wall_w
    return Work(seconds, watts * share, watts * (1 - share), count, run.intensity_mean, sum(used) if used else None)


def _here(run: story.RunStory, gpu: str | None, every: list[BoardSpec]) -> BoardSpec:
    names = sorted({board.name for board in run.status.gpus})
    if gpu is None and len(names) != 1:
        raise Failure(f"job {run.status.job} ran on {' and '.join(names) or 'no GPU'}; name one board with --gpu", 2)
    here = comparing.known(gpu or names[0], every)
    if here is None:
        raise Failure(f"no published figures of {gpu or names[0]!r} here; name one like it with --gpu (--list)", 2)
    return here


def _print_offers(rows: list[Elsewhere], own: Elsewhere | None, *, every_row: bool) -> None:
    if not rows:
        raise Failure("no offer is of a board that holds this work", 3)
    shown = rows if every_row else rows[:SHOWN]
    width = max(len(row.name) for row in shown)
    click.echo(f"{'':<{width}}  {'price':>10}  {'time':>9}  {'energy':>9}  {'CO2':>8}")
    for row in shown:
        cells = f"{row.cost or 0.0:>10,.2f}  {units.fmt_duration(row.time_s):>9}  {units.fmt_kwh(row.kwh):>9}"
        click.echo(f"{row.name:<{width}}  {cells}  {units.fmt_grams(row.gco2_g):>8}  {row.how}")
    if len(shown) < len(rows):
        click.echo(f"... {len(rows) - len(shown)} more with --all")
    if own is not None and own.gco2_g is not None:
        less = [row for row in rows if row.gco2_g is not None and row.gco2_g < own.gco2_g]
        here = f"here: {units.fmt_kwh(own.kwh)}, {units.fmt_grams(own.gco2_g)}"
        click.echo(f"{here}; {len(less)} of these emit less" if less else f"{here}; staying is best: none emits less")
    click.echo("example prices age in weeks: ask the provider; regions by the yearly mean of their grid")
    click.echo(MOVES_NOTHING)


def _print(rows: list[Elsewhere], here: BoardSpec | None, run: story.RunStory, *, every_row: bool) -> None:
    shown = rows if every_row else rows[:SHOWN]
    own = next((row for row in rows if here is not None and row.name == here.short), None)
    if own is not None and own not in shown:
        shown = [*shown, own]
    width = max(len(row.name) for row in shown)
    click.echo(f"{'':<{width}}  {'speed':>6}  {'time':>9}  {'energy':>9}  {'CO2':>8}")
    for row in shown:
        grams = units.fmt_grams(row.gco2_g)
        cells = f"{row.speed:>5.2f}x  {units.fmt_duration(row.time_s):>9}  {units.fmt_kwh(row.kwh):>9}  {grams:>8}"
        click.echo(f"{row.name:<{width}}  {cells}  {row.how}{'  <- here' if row is own else ''}")
    if len(shown) < len(rows):
        click.echo(f"... {len(rows) - len(shown)} more with --all")
    if own is not None and rows[0] == own:
        click.echo("staying is best: no board in the table takes less energy for this work")
    if here is None:
        signal = "" if run.status.intensity is None else run.status.intensity.signal
        if signal != "average_lifecycle":
            click.echo("yearly lifecycle means: compare them with each other, not with this job's own account")
    click.echo(MOVES_NOTHING)
