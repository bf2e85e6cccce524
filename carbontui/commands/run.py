"""`run`: start a job."""

import contextlib
import itertools
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from carbontui import config, early, hooks, units
from carbontui.commands.support.command import Brief, Count, Failure, overrides, patience_option, refused, zone_keys
from carbontui.commands.support.run_values import common, settings_for
from carbontui.grid.settings import KeyFileError, keys_file, read_keys
from carbontui.job.files import launch_file, store
from carbontui.job.life import descriptors, foreground, launch, machines, requeue
from carbontui.job.life import restart as restarting
from carbontui.job.terms import allowance, spec
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.allowance import AllowanceKind
from carbontui.job.terms.spec import slurm_job
from carbontui.text import account, first_run

WAITING_BUDGET = "3x"
"""Default budget of a job that may have to wait (--objective time)."""
LEFT_RUNNING_EXIT = 86
READS_ONCE = (
    "the command was handed a pipe, which can be read once: it is paused, never unloaded, and a reboot ends it (where"
    " it reads none: < /dev/null)"
)


def note_of_keys() -> str:
    """Said now, not only on the screen: that the job runs without the keys of this file; '' if it does not."""
    try:
        read_keys(keys_file())
    except KeyFileError as error:
        return f"{error} (until then only sources without a key are asked)"
    return ""


USUAL: tuple[str, ...] = ("name", "zone", "budget", "work", "steps", "carbon_budget")
USUAL += ("max_pause", "no_cap", "try_first", "detach", "help")


@click.command(
    cls=Brief, usual=USUAL, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
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
@click.option("--steps", type=Count(1, 10**15), help="Optimizer steps of the whole run.")
@click.option("--guess", is_flag=True, help="Plan with a guessed total, if none is given or reported.")
@click.option("--objective", type=click.Choice(["carbon", "cost", "time"]), help="What a plan minimises.")
@patience_option
@click.option("--carbon-budget", help="The most CO2 the whole job may emit, like 2kg.")
@click.option("--cost-budget", help="The most it may cost, in --currency, like 12.")
@click.option("--energy-budget", help="The most energy it may use at the wall, like 5kWh.")
@click.option(
    "--on-budget", help="What to do when such a budget will not suffice, in order: warn, cap, ask, pause, stop, stop!."
)
@click.option("--carbon-price", help="Currency per tonne of CO2 (with --objective cost).")
@click.option("--weight", help="Weigh CO2 and money, like carbon=0.7,cost=0.3 (each as a share of its mean).")
@click.option("--gpu-price", help="Currency per GPU hour.")
@click.option("--embodied", help="Weigh what making the hardware emitted: published, or like 12g per GPU hour.")
@click.option("--currency", help="ISO code of every price, like EUR.")
@overrides
@click.option("--max-pause", help="The longest single pause, like 4h.")
@click.option("--idle-limit", help="How long allocated GPUs may idle, like 30m or none (30m under a scheduler).")
@click.option("--log", "log_path", type=click.Path(dir_okay=False), help="Where the command's output goes.")
@click.option("--metrics", help="Metrics for Prometheus: the folder of node-exporter's textfile collector.")
@click.option("--no-cap", is_flag=True, help="Never set a power limit.")
@click.option("--no-probe", is_flag=True, help="Do not test whether power limits can be set.")
@click.option("--allow-raise", is_flag=True, help="Permit limits above the one found at the start.")
@click.option("--sigstop", is_flag=True, help="Allow pausing a program without training steps by SIGSTOP.")
@click.option("--requeue", is_flag=True, help="Exit 85 on unload, for a scheduler that requeues the job.")
@click.option("--resubmit", is_flag=True, help="On unload, submit this Slurm script again to start in its clean hours.")
@click.option("--hosts", help="Other machines the command runs on, like a,b, over your own ssh.")
@click.option("--resume-args", help='Added to the command when it resumes, like "--init_from=resume".')
@click.option("--try", "try_first", is_flag=True, help="Run 20 steps or more now (two minutes at most), then wait.")
@click.option("--no-spool", is_flag=True, help="Do not save the environment: no resume after a reboot.")
@click.option("--stdin", "take_input", is_flag=True, help="Connect the terminal's input (no screen).")
@click.option("--wait", is_flag=True, help="On a terminal: leave the screen when the job ends, with its exit code.")
@hooks.decorated("start_options")
@click.option("-q", "--quiet", is_flag=True, help="No lines of carbontui's own on stderr.")
@click.option("--detach", is_flag=True, help="Return at once and print the job's id.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(command: tuple[str, ...], name: str | None = None, detach: bool = False, **given: Any) -> None:
    """Start a training command under a plan: carbontui run --budget 2x --work 8h -- python train.py

    On a terminal the job starts detached and the screen attaches; leaving it exits with the job's code once it is
    over, with 86 while it goes on. Without a terminal it stays in front: the command's stdout and stderr are copied to
    their own places, and it exits with the command's code. A pipe or file on stdin is handed on to the command.
    """
    if not command:
        raise Failure("run needs a command: carbontui run [options] -- python train.py ...", 2)
    if settings_of(given).settings.currency is None:
        given["currency"] = allowance.currency_of(given.get("cost_budget") or "")
    if detach and given.get("wait"):
        raise Failure("--detach and --wait exclude each other: give one", 2)
    unattended = any(given.get(name) for name in ("take_input", "quiet", "wait"))
    if not detach and not unattended and has_a_screen():
        from carbontui.commands.support import asking

        given = asking.answers(given, settings_of(given))
    try:
        # all checks come before anything of the job exists
        chosen, log_path = options_of(command, given), given.get("log_path")
        title = launch.checked_name(name) if name else ""
        for _, start in hooks.offered("start", own_only=True):
            if place := start(command, title, given, chosen):
                click.echo(place)
                return
        if log_path:
            with refused(f"--log: {log_path}: ", OSError), Path(log_path).open("ab"):
                pass
        resubmit, scheduled = bool(given.get("resubmit")), requeue.scheduled(os.environ)
        before = requeue.earlier(scheduled, command, chosen["cwd"], resubmit=resubmit) if scheduled else None
        says = foreground.Narration(quiet=bool(given.get("quiet")))
        if before and resubmit:
            requeue.leave_if_done(before, says.line)
        before = before or (restarting.orphan(title, command, chosen["cwd"]) if title else None)
        if scheduled:
            chosen |= {"scheduler": scheduled.key, "attempt": scheduled.attempt}
        handed = descriptors.handed(command, terminal=bool(given.get("take_input")))
        # what starts a requeued job again also fills its pipe again
        once = bool(handed.pipes) and not chosen["requeue"]
        if once and given.get("try_first"):
            raise Failure("--try: the command reads a pipe, which its start could not read again; hand it a file", 2)
        launch.executable(command)
        nodes = machines.named(given["hosts"]) if given.get("hosts") else machines.of_slurm()
        every_node, numbered = nodes is not None, scheduled is not None and not has_a_screen()
        if before:
            home = launch.at_home(before.id, before.dir, before.name, every_node=every_node)
        else:
            home = launch.claim(title, command, every_node=every_node, numbered=numbered)
        taken = f"the name {title} is taken: this is {home['name']}" if title not in ("", home["name"]) else ""
        if log_path:
            home["log"] = str(Path(log_path).absolute())
        home["err"] = f"{home['dir']}/run.err" if not detach and descriptors.apart() else ""
        chosen |= {"reads_once": once, "spool": chosen["spool"] and not once}
        chosen |= {"commit": launch.commit(command, chosen["cwd"])}
        begun_s = early.begun.at_s if early.begun else time.time()
        started = spec.Options(**home, nodes=nodes, created_s=begun_s, **chosen)
        fault, of_input = nodes.fault if nodes else "", READS_ONCE if once and not detach else ""
        says.joined("" if before else taken, note_of_keys(), fault, of_input)
        if before is not None:
            started = requeue.taken_up(before, started, log=started.log if log_path else None)
        start_and_follow(
            started,
            detach=detach,
            before=before,
            try_first=bool(given.get("try_first")),
            resubmit=resubmit,
            handed=handed,
            screen=not given.get("take_input"),
            wait=bool(given.get("wait")),
            assumes=assumed(given, chosen) if before is None else (),
            says=says,
        )
    except launch.LaunchError as error:
        raise Failure(str(error), error.code) from None


def assumed(given: dict[str, Any], chosen: dict[str, Any]) -> tuple[str, str]:
    """What nobody has said of zone and budget, and of the boundary, in words; '' where it was."""
    origin, zone = settings_of(given).origin, ""
    own_zone = "default" not in origin["zone"] or not chosen["zone"]
    known = given.get("grid_file") or chosen["intensity_g_per_kwh"] is not None
    if not known and "default" in origin["budget"]:
        zone = first_run.assumed(chosen["zone"], own_zone, chosen["budget"])
    return zone, first_run.counts(chosen["boundary"], chosen["boundary_why"])


def settings_of(given: dict[str, Any]) -> config.Loaded:
    return settings_for(**{name: value for name, value in given.items() if name in config.Settings.__struct_fields__})


def options_of(command: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a job's options that the command line and the settings decide. Raises Failure."""
    loaded = settings_of(given)
    settings, resubmit, work = loaded.settings, bool(given.get("resubmit")), given.get("work")
    wanted = allowances(given, settings)
    may_wait = settings.objective == "time" and loaded.origin["budget"] == "default"
    budget = WAITING_BUDGET if may_wait else settings.budget
    with refused("--budget: "):
        budgets.parse(budget, time.time())
    common_fields = common(loaded, command, given.get("grid_file"), resubmit=resubmit)
    work_s = duration(work, "--work") if work else None
    if work_s == 0:
        raise Failure("--work: must be longer than zero; leave it out when it is not known", 2)
    if resubmit:
        requeue.check_resubmit()
    return {
        **common_fields,
        **wanted,
        "budget": budget,
        "work_s": work_s,
        "steps": given.get("steps"),
        "guess": bool(given.get("guess")),
        "max_pause_s": duration(settings.max_pause, "--max-pause"),
        "cap": settings.cap and not given.get("no_cap"),
        "probe": not given.get("no_probe"),
        "allow_raise": bool(given.get("allow_raise")),
        "requeue": bool(given.get("requeue")) or resubmit,
        **machines.allocated(),
        "resubmit": resubmit,
        "spool": not given.get("no_spool"),
        "sigstop": bool(given.get("sigstop")),
        "metrics": metrics_place(settings.metrics),
        "slurm_job": slurm_job(dict(os.environ)),
        "resume_args": split_resume_args(given.get("resume_args"), command),
    }


def note_unspooled(job: spec.Options) -> str:
    """What a reboot loses when no environment is kept to start the job again; '' if one is, or a pipe is the reason."""
    if job.reads_once or (job.spool and (launch_file.kept(Path(job.dir)) or (Path(job.dir) / "exit.json").exists())):
        return ""
    why = "--no-spool" if not job.spool else f"{job.dir} is not on a local disk, or the disk is full"
    lost = "a reboot, or the loss of its processes while it waits, ends this job"
    return f"no environment is kept ({why}): {lost}; start it again from its last checkpoint"


def summary(directory: Path) -> str:
    """The account of the job that has ended, in one line; '' if it is gone."""
    with contextlib.suppress(Exception):  # carbontui has been upgraded or removed meanwhile: the exit code counts
        from carbontui.reports import story
        from carbontui.reports.figures import means

        if job := store.load(directory):
            now = job.status()
            return account.ending(now, means(story.at_observation(job, now)))
    return ""


def has_a_screen() -> bool:
    """Whether this process has a terminal for itself; one in the background (`&`, timeout) would be stopped there."""
    if not all(one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr)) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # not its controlling terminal, which stops nobody
        return True


def start_and_follow(
    job: spec.Options,
    *,
    detach: bool,
    hold: bool | None = None,
    before: store.Job | None = None,
    try_first: bool = False,
    resubmit: bool = False,
    handed: descriptors.Handed = descriptors.NOTHING,
    screen: bool = True,
    wait: bool = False,
    assumes: Sequence[str] = (),
    says: foreground.Narration | None = None,
    left_code: int = LEFT_RUNNING_EXIT,
) -> None:
    """Start the job, or continue what an earlier start of the scheduler's job left; then print its id, or attach the
    screen or stay in front, and exit: `left_code` where it goes on. Raises LaunchError."""
    says, directory = says or foreground.Narration(), Path(job.dir)
    on_screen = screen and has_a_screen()
    offer = hold is None and on_screen and not detach and not job.reads_once
    if tries := before is None and (try_first or (offer and launch.waits(job))):
        from carbontui.commands.support import trying

        tries = try_first or trying.try_wanted(job)

    def start() -> tuple[str, str]:
        answers, lost = True, ""
        if before is None:
            with launch.undone(directory):
                answers = launch.start(job, hold=hold, try_first=tries, handed=handed)
            lost = note_unspooled(job)
        elif before.orphaned:
            answers = restarting.restart(before)
        elif not before.live:  # one that the scheduler's restart has not ended continues by itself
            answers = launch.start(job, hold=hold, again=requeue.state_left(before), handed=handed)
        return "" if answers else launch.NOT_YET, lost

    if detach or on_screen:
        try:
            says.joined(*start())
            if tries:
                trying.follow_try(directory)
            if detach:
                click.echo(job.job)
                return
            from carbontui.commands import attach

            attach.open_screen(job.job, until_over=wait)
        except KeyboardInterrupt:
            # ctrl-c before the screen is up does not end the job: say so
            found = store.load(directory)
            if found is not None and found.live:
                watch, end = f"carbontui attach {job.job}", f"carbontui stop {job.job}"
                click.echo(f"\ncarbontui: {job.name} goes on; look: {watch}, end it: {end}", err=True)
            raise
        found = store.load(directory)
        if found is None or found.exit is not None or not found.live:
            foreground.leave(foreground.exit_code(found) if found else 1, directory)
        if not wait:
            sys.exit(left_code)
    batch, begun = requeue.batch_job() if resubmit else None, requeue.reached(before.dir) if before else (0, 0)
    follows = before is not None or on_screen
    front = foreground.Foreground(directory, (job.log, job.err), says, from_end=follows)
    notes = () if on_screen else start()
    start_of = f" (start {job.attempt + 1} of the scheduler's job)" if job.scheduler else ""
    goes_on = "" if before is None else f" goes on{start_of}"
    said = f"job {job.job} ({job.name}){goes_on}", f"look with: carbontui attach {job.job}", *notes
    says.start("; ".join(filter(None, said)), *assumes)
    code = front.follow()

    def say(more: str = "") -> None:
        says.last(summary(directory), more)

    if batch is None:
        say()
    else:
        code = requeue.resubmit(directory, code, batch, say, progress=requeue.got_on(begun, directory))
    foreground.leave(code, directory)


def duration(text: str, option: str) -> float:
    with refused(f"{option}: "):
        return units.parse_duration(text)


def allowances(given: dict[str, Any], settings: config.Settings) -> dict[str, Any]:
    """The fields of a job's options for its carbon, cost and energy budgets. Raises Failure."""
    fields: dict[AllowanceKind, str] = {
        "carbon": "carbon_budget_g",
        "cost": "cost_budget",
        "energy": "energy_budget_kwh",
    }
    found: dict[str, Any] = {}
    for kind, field in fields.items():
        if (text := given.get(f"{kind}_budget")) is None:
            continue
        with refused(f"--{kind}-budget: "):
            found[field] = allowance.parse(text, kind, settings.currency).most
        if kind == "cost" and not settings.currency:
            raise Failure("--cost-budget needs --currency, like EUR", 2)
    with refused("--on-budget: "):
        order = allowance.parse_order(settings.on_budget)
    if settings.objective == "time" and not found:
        raise Failure("--objective time needs a budget to use: --carbon-budget, --cost-budget or --energy-budget", 2)
    return {**found, "on_budget": order}


def split_resume_args(text: str | None, command: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments, split as a shell would. Raises Failure where they could not reach the training."""
    if text is None:
        return ()
    with refused(f"--resume-args: {text!r} cannot be split: "):
        added = tuple(shlex.split(text))
    for word, after in itertools.pairwise(command):
        if Path(word).name in early.SHELLS and after.startswith("-") and not after.startswith("--") and "c" in after:
            why = f"what is added to `{Path(word).name} {after}` does not reach the command inside it"
            raise Failure(f"--resume-args: {why}; run the training without a shell, or test CARBONTUI_RESUME there", 2)
    return added


def metrics_place(where: str | None) -> str | None:
    """Where metrics are written, as an absolute path. Raises Failure where there is no such folder."""
    if where is None:
        return None
    folder = Path(where).expanduser().absolute()
    if not folder.is_dir():
        raise Failure(f"--metrics: {folder} is not a folder; give that of node-exporter's textfile collector", 2)
    return str(folder)
