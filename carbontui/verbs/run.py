"""`run`: start a job."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carbontui import link
from carbontui.verbs.completion import zone_keys
from carbontui.verbs.failure import Failure, Finite
from carbontui.verbs.overrides import overrides
from carbontui.verbs.run_values import (
    allowances,
    check_log,
    checked_name,
    current_directory,
    declared_boards,
    duration,
    free_name,
    hour_limit,
    job_name,
    metrics_place,
    place,
    settings_for,
    split_resume_args,
)

if TYPE_CHECKING:
    from carbontui.job import spec as options
    from carbontui.job import store

WAITING_BUDGET = "3x"
"""Default budget of a job that may have to wait (--objective time, --not-above)."""


def warn_of_keys() -> None:
    """Warn now, not only on the screen, that the job runs without the keys of this file."""
    from carbontui.grid.settings import KeyFileError, keys_file, read_keys

    try:
        read_keys(keys_file())
    except KeyFileError as error:
        click.echo(f"carbontui: {error} (until then only sources without a key are asked)", err=True)


def claim(name: str, command: tuple[str, ...]) -> tuple[str, Path, str]:
    """A job's id, directory and name; without a name the script's, renumbered as long as others take it meanwhile."""
    from carbontui.job import launch

    while True:
        title = name or free_name(job_name(command))
        try:
            return *launch.prepare_dir(title), title
        except launch.NameTaken:
            if name:
                raise


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Start a training command under a plan.",
)
@click.option("--name", help="Name of the job (default: the script's, numbered where it runs).")
@click.option("--zone", shell_complete=zone_keys, help="Grid zone, like DE or US-CAL-CISO; see `carbontui zones`.")
@click.option(
    "--grid", "grid_file", type=click.Path(exists=True, dir_okay=False), help="Recorded grid CSV to plan with."
)
@click.option(
    "--signal", type=click.Choice(["average", "marginal"]), help="Which carbon intensity to plan and account with."
)
@click.option("--budget", help='How long it may take: 1.8x, 18h or "fri 09:00" (default 1.0x: no waiting).')
@click.option("--work", help="Work of the whole run at full speed, like 8h.")
@click.option("--steps", type=click.IntRange(1), help="Optimizer steps of the whole run.")
@click.option("--guess", is_flag=True, help="Plan with a guessed total, if none is given or reported.")
@click.option("--objective", type=click.Choice(["carbon", "cost", "time"]), help="What a plan minimises.")
@click.option("--carbon-budget", help="The most CO2 the whole job may emit, like 2kg.")
@click.option("--cost-budget", help="The most it may cost, in --currency, like 12.")
@click.option("--energy-budget", help="The most energy it may use at the wall, like 5kWh.")
@click.option(
    "--on-budget", help="What to do when such a budget will not suffice, in order: warn, cap, ask, pause, stop."
)
@click.option("--carbon-price", type=Finite(0), help="Currency per tonne of CO2 (with --objective cost).")
@click.option("--gpu-price", type=Finite(0), help="Currency per GPU hour.")
@click.option("--currency", help="ISO code of every price, like EUR.")
@click.option("--not-above", help="Wait while the grid is above this intensity, like 300g (per kWh).")
@click.option("--max-wait", help="With --not-above: the longest single wait (default 6h).")
@overrides
@click.option("--max-pause", help="The longest single pause, like 4h.")
@click.option("--log", "log_path", type=click.Path(dir_okay=False), help="Where the command's output goes.")
@click.option("--metrics", help="Metrics for Prometheus: node-exporter's textfile folder, or a path ending in .sock.")
@click.option("--no-cap", is_flag=True, help="Never set a power limit.")
@click.option("--allow-raise", is_flag=True, help="Permit limits above the one found at the start.")
@click.option("--sigstop", is_flag=True, help="Allow pausing a program without training steps by SIGSTOP.")
@click.option("--requeue", is_flag=True, help="Exit 85 on unload, for a scheduler that requeues the job.")
@click.option("--resubmit", is_flag=True, help="On unload, submit this Slurm script again to start in its clean hours.")
@click.option("--hosts", help="Other machines the command runs on, like a,b, over your own ssh.")
@click.option("--resume-args", help='Added to the command when it resumes, like "--init_from=resume".')
@click.option("--try", "try_first", is_flag=True, help="Run 20 steps or more now (two minutes at most), then wait.")
@click.option("--no-spool", is_flag=True, help="Keep no environment on disk: a reboot then loses the job.")
@click.option("--detach", is_flag=True, help="Return at once and print the job's id.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    name: str | None,
    zone: str | None,
    grid_file: str | None,
    signal: str | None,
    budget: str | None,
    work: str | None,
    steps: int | None,
    guess: bool,
    objective: str | None,
    carbon_budget: str | None,
    cost_budget: str | None,
    energy_budget: str | None,
    on_budget: str | None,
    carbon_price: float | None,
    gpu_price: float | None,
    currency: str | None,
    not_above: str | None,
    max_wait: str | None,
    max_pause: str | None,
    log_path: str | None,
    metrics: str | None,
    no_cap: bool,
    allow_raise: bool,
    sigstop: bool,
    requeue: bool,
    resubmit: bool,
    hosts: str | None,
    resume_args: str | None,
    try_first: bool,
    no_spool: bool,
    detach: bool,
    command: tuple[str, ...],
    **overridden: Any,
) -> None:
    """Start a training command under a plan: carbontui run --budget 2x --work 8h -- python train.py

    On a terminal the job starts detached and the screen attaches; without one it stays in front, copies the
    command's output to stdout and exits with its code.
    """
    from carbontui.cluster import successor
    from carbontui.job import budget as budgets
    from carbontui.job import launch
    from carbontui.job import requeue as requeuing
    from carbontui.job import spec as job_spec

    if not command:
        raise Failure("run needs a command: carbontui run [options] -- python train.py ...", 2)
    given: dict[str, Any] = {
        "zone": zone,
        "signal": signal,
        "budget": budget,
        "objective": objective,
        "on_budget": on_budget,
        "carbon_price": carbon_price,
        "gpu_price": gpu_price,
        "currency": currency,
        "max_pause": max_pause,
        "metrics": metrics,
        **overridden,
    }
    loaded = settings_for(**given)
    settings = loaded.settings
    wanted = allowances({"carbon": carbon_budget, "cost": cost_budget, "energy": energy_budget}, settings)
    wall_budget = settings.budget
    limit = hour_limit(not_above, max_wait)
    if (settings.objective == "time" or limit) and loaded.origin["budget"] == "default":
        wall_budget = WAITING_BUDGET
    try:
        budgets.parse(wall_budget, time.time())
    except ValueError as error:
        raise Failure(f"--budget: {error}", 2) from None
    prices = (settings.carbon_price, settings.gpu_price, settings.price_per_kwh)
    if any(price is not None for price in prices) and not settings.currency:
        raise Failure("a price needs its currency: add --currency EUR (or set currency in the settings)", 2)
    if settings.objective == "cost" and not settings.currency:
        raise Failure("--objective cost needs --currency, like EUR", 2)
    key, zone_why = place(loaded, grid_file)
    declared = declared_boards(settings)
    # all checks come before anything of the job exists
    work_s = duration(work, "--work") if work else None
    if work_s == 0:
        raise Failure("--work: must be longer than zero; leave it out when it is not known", 2)
    from carbontui.verbs import other_machines, within_slurm

    if resubmit:
        within_slurm.check_resubmit()
    title = checked_name(name) if name else ""
    max_pause_s = duration(settings.max_pause, "--max-pause")
    cwd = current_directory()
    if log_path:
        check_log(log_path)
    added = split_resume_args(resume_args, command)
    scheduled = requeuing.scheduled(os.environ)
    before = requeuing.earlier(scheduled, command, cwd) if scheduled else None
    try:
        launch.executable(command)
        nodes = other_machines.nodes(hosts) if hosts else within_slurm.nodes()
        job, directory, title = (before.id, before.dir, before.name) if before else claim(title, command)
        from carbontui import paths

        job_options = job_spec.Options(
            job=job,
            name=title,
            dir=str(directory),
            argv=command,
            cwd=cwd,
            log=str(Path(log_path).absolute() if log_path else directory / "run.log"),
            socket=str(paths.socket_path(job, paths.socket_dir(every_node=nodes is not None))),
            nodes=nodes,
            created_s=time.time(),
            by=link.whoami(),
            zone=key,
            zone_why=zone_why,
            signal=settings.signal,
            price_zone=settings.price_zone,
            grid=str(Path(grid_file).absolute()) if grid_file else None,
            budget=wall_budget,
            work_s=work_s,
            steps=steps,
            guess=guess,
            objective=settings.objective,
            **wanted,
            **limit,
            carbon_price=settings.carbon_price,
            gpu_price=settings.gpu_price,
            currency=settings.currency,
            price_per_kwh=settings.price_per_kwh,
            intensity_g_per_kwh=settings.intensity,
            declared=declared,
            host_w=settings.host_w,
            pue=settings.pue,
            max_pause_s=max_pause_s,
            count_idle=settings.count_idle,
            cap=settings.cap and not no_cap,
            allow_raise=allow_raise,
            requeue=requeue or resubmit,
            ends_s=successor.end_s(os.environ) if resubmit else None,
            spool=not no_spool,
            sigstop=sigstop,
            cautious=settings.forecast == "cautious",
            metrics=metrics_place(settings.metrics),
            slurm_job=job_spec.slurm_job(dict(os.environ)),
            scheduler=scheduled.key if scheduled else "",
            attempt=scheduled.attempt if scheduled else 0,
            resume_args=added,
        )
        warn_of_keys()
        if before is not None:
            log = str(Path(log_path).absolute()) if log_path else None
            job_options = requeuing.taken_up(before, job_options, log=log)
        start_and_follow(job_options, detach=detach, before=before, try_first=try_first, resubmit=resubmit)
    except launch.LaunchError as error:
        raise Failure(str(error), 2) from None


def warn_unspooled(job: options.Options) -> None:
    """Say what a reboot loses when no environment is kept to start the job again."""
    from carbontui.job import spool

    if job.spool and (spool.kept(Path(job.dir)) or (Path(job.dir) / "exit.json").exists()):
        return
    why = "--no-spool" if not job.spool else f"{job.dir} is not on a local disk, or the disk is full"
    lost = "a reboot, or the loss of its processes while it waits, ends this job"
    click.echo(f"carbontui: no environment is kept ({why}): {lost}; start it again from its last checkpoint", err=True)


def start_and_follow(
    job: options.Options,
    *,
    detach: bool,
    hold: bool | None = None,
    before: store.Job | None = None,
    try_first: bool = False,
    resubmit: bool = False,
) -> None:
    """Start the job, or continue what an earlier start of the scheduler's job left; then print its id, attach the
    screen, or stay in front. Raises LaunchError."""
    from carbontui.job import launch, requeue, store
    from carbontui.verbs import trying, within_slurm
    from carbontui.verbs.foreground import Foreground, say

    on_screen = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    tries = before is None and trying.wanted(try_first, job, offer=hold is None and on_screen and not detach)

    def start() -> None:
        if before is None:
            with launch.undone(Path(job.dir)):
                launch.start(job, hold=hold, try_first=tries)
            warn_unspooled(job)
        elif not before.live:  # one that the scheduler's restart has not ended continues by itself
            launch.start(job, hold=hold, again=requeue.state_left(before))

    if detach:
        start()
        if tries:
            trying.follow(Path(job.dir))
        click.echo(job.job)
        return
    if on_screen:
        from carbontui.verbs import attach

        try:
            start()
            if tries:
                trying.follow(Path(job.dir))
            sys.exit(attach.open_screen(job.job))
        except KeyboardInterrupt:
            # ctrl-c before the screen is up does not end the job: say so
            found = store.load(Path(job.dir))
            if found is not None and found.live:
                look, end = f"carbontui attach {job.job}", f"carbontui stop {job.job}"
                click.echo(f"\ncarbontui: {job.name} goes on; look: {look}, end it: {end}", err=True)
            raise
    told = Path(job.log).stat().st_size if before is not None and Path(job.log).exists() else 0
    front = Foreground(Path(job.dir), sys.stdout.buffer, log_from=told)
    front.listen()
    start()
    goes_on = "" if before is None else f" goes on (start {job.attempt + 1} of the scheduler's job)"
    say(f"job {job.job} ({job.name}){goes_on}; look with: carbontui attach {job.job}")
    code = front.follow()
    sys.exit(within_slurm.resubmit(Path(job.dir), code) if resubmit else code)
