"""`estimate`: runs a training for at most 90 seconds, estimates what the whole run would take, and stops it."""

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from carbontui import protocol
from carbontui.account.estimate import is_narrow
from carbontui.commands import override
from carbontui.commands.support import run_values, talk
from carbontui.commands.support.command import Count, Failure, overrides, refused
from carbontui.commands.support.trying import Held
from carbontui.job.files import store
from carbontui.job.life import launch
from carbontui.job.terms import spec as job_spec
from carbontui.system import proc, streams
from carbontui.text import account as account_words
from carbontui.text import first_run, situation

LONGEST_S = 90.0
LEAST_S = 20.0
"""Warm-up and the first power reading take about this long."""
CLOSED_S = 15.0
"""The account is complete this long after the stop."""
VARIABLE = "CARBONTUI_ESTIMATE"
"""Set to 1 in the script's environment, so that it may leave out what a trial should not do."""


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--zone", help="Grid zone, like DE.")
@click.option(
    "--grid", "grid_file", type=click.Path(exists=True, dir_okay=False), help="Recorded grid CSV for the CO2."
)
@click.option(
    "--steps", type=Count(1, 10**15), help="Optimizer steps of the whole run, if the script does not report them."
)
@click.option("--gpu-price", help="Currency per GPU hour.")
@click.option("--currency", help="ISO code of every price, like EUR.")
@overrides
@click.option("--yes", is_flag=True, help="Do not ask before the command is started.")
@click.option("--json", "as_json", is_flag=True, help="The job's status, with the estimate in it, as JSON.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def estimate(
    grid_file: str | None, steps: int | None, yes: bool, as_json: bool, command: tuple[str, ...], **given: Any
) -> None:
    """Run a training for at most 90 s, estimate what the whole run would take, and stop it: carbontui estimate --
    python train.py

    The script runs for real, with CARBONTUI_ESTIMATE=1 in its environment; files it writes are kept.
    """
    if not command:
        raise Failure("estimate needs a command: carbontui estimate -- python train.py ...", 2)
    with refused("", launch.LaunchError):
        options = options_for(command, grid_file, steps, **given)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("estimate starts the command and stops it again; without a terminal, confirm with --yes", 2)
        text = (
            f"This starts `{shlex.join(command)}`, lets it run for at most {LONGEST_S:.0f} s and stops it; files "
            "it writes are kept. Start it?"
        )
        click.confirm(streams.folded(text), abort=True)
    with refused("", launch.LaunchError):
        # only once the user has agreed, as every directory is a listed job
        claimed = launch.claim("", ("", options.name))
        status = _tried(msgspec.structs.replace(options, **claimed, created_s=time.time()))
    if as_json:
        click.echo(talk.as_json(in_full(status)))
    else:
        for line in (*trial_lines(status), *_offers(status, options)):
            click.echo(line)
    if status.estimate is None and status.per_1000_steps is None:
        raise Failure(why_none(status), 3)


def _offers(status: protocol.Status, options: job_spec.Options) -> Iterator[str]:
    """What each budget would give the whole run on this machine, where its length and zone are known."""
    from carbontui.commands.support.offers import gives, of_this_machine

    if status.estimate is None or not options.zone:
        return
    job, _ = of_this_machine(run_values.settings_for().settings)
    work_s = status.estimate.work_s
    yield from first_run.offers(options.zone, work_s, gives(job, options.zone, work_s, time.time()), known=True)


def in_full(status: protocol.Status) -> dict[str, Any]:
    """As JSON has it: `estimate` holds what a thousand steps and an hour take, also where the total is not known."""
    found: dict[str, Any] = msgspec.to_builtins(status)
    paces = {name: found.get(name) for name in ("per_1000_steps", "per_hour")}
    if status.estimate is not None or status.per_1000_steps is not None:
        found["estimate"] = (found.get("estimate") or {}) | paces
    return found


def asked(status: protocol.Status) -> str:
    """What only the user knows."""
    guess = status.guess
    if guess is None:
        return "How many steps is the whole run?"
    return f"{guess.steps:,} steps by {guess.source}: is that the whole run, or one epoch?"


def options_for(command: tuple[str, ...], grid_file: str | None, steps: int | None, **given: Any) -> job_spec.Options:
    common = run_values.common(run_values.settings_for(**given), command, grid_file)
    launch.executable(command)
    # a total that is not sure may be one epoch's: what a thousand steps take is told instead, and the user asked
    planned: dict[str, Any] = {"steps": steps, "cap": False, "spool": False, "estimate": True}
    name = f"estimate-{launch.job_name(command).removesuffix('.py')}.py"
    return job_spec.Options(job="", name=name, dir="", log="", socket="", created_s=0.0, **common, **planned)


def _tried(options: job_spec.Options) -> protocol.Status:
    """The last status before the command was stopped, or its final status if it ended by itself."""
    os.environ[VARIABLE] = "1"
    launch.start(options, hold=False)
    found = store.load(Path(options.dir))
    assert found is not None
    status, began, held = talk.live_status(found), time.monotonic(), Held()
    try:
        while (passed := time.monotonic() - began) < LONGEST_S:
            time.sleep(1.0)
            found = store.load(found.dir) or found
            now = talk.live_status(found)
            if now.state not in protocol.LIVE_STATES:
                # a short training has simply ended: report its last status
                return status if status.estimate is not None else now
            status = now
            streams.over_itself(progress(status, passed))
            held.observe(status)
            if passed >= LEAST_S and status.estimate is not None and is_narrow(status.estimate):
                break
    finally:
        streams.over_itself("")
        with contextlib.suppress(Failure):  # it has just ended by itself
            override.order_stop(found, now=True)
    return _final(found, status)


def _final(job: store.Job, last: protocol.Status) -> protocol.Status:
    """What the account keeps, so that `compare` and `report` tell the same; `last` where it keeps no estimate."""
    proc.awaited(lambda: (known := store.load(job.dir)) is None or not known.live, CLOSED_S)
    kept = (store.load(job.dir) or job).status()
    return kept if kept.estimate is not None else last


def progress(status: protocol.Status, passed_s: float) -> str:
    """'12 s of 90 s: step 34, 5.1 steps/s; whole work 3 h 10 at full speed (2 h 58 to 3 h 22)'."""
    line = f"{passed_s:.0f} s of {LONGEST_S:.0f} s: step {status.step:,}"
    if status.rate_steps_per_s:
        line += f", {status.rate_steps_per_s:.3g} steps/s"
    if status.estimate is not None:
        line += f"; whole work {account_words.full_speed_time(status.estimate)}"
    return line


def trial_lines(status: protocol.Status) -> list[str]:
    """The estimate in aligned rows, each with its basis."""
    found = status.estimate
    if found is None and status.per_1000_steps is None:
        return []
    rows = [] if found is None else account_words.estimate_rows(found)
    if found is None and status.per_1000_steps is not None and (hour := status.per_hour) is not None:
        rows.append(("per 1,000", f"steps: {account_words.pace_row(status.per_1000_steps)}"))
        an_hour = account_words.pace_row(msgspec.structs.replace(hour, s_lo=hour.s, s_hi=hour.s))
        rows.append(("per hour", f"{hour.steps:,.0f} steps: {an_hour}"))
        rows.append(("total", f"{asked(status)} Say --steps N (all epochs), and it tells the whole"))
    total = status.provenance.get("steps_total")
    if status.steps_total:
        whence = f", {total.source}; say --steps N where it is another" if total is not None else ""
        rows.insert(0, ("work", f"{status.steps_total:,} steps{whence}"))
    source = status.provenance.get("estimate")
    if source is not None:
        rows.append(("rests on", source.source))
    rows.append(("compare", f"carbontui compare {status.job}, carbontui report {status.job}"))
    return [f"{label:<10} {words}" for label, words in rows]


def why_none(status: protocol.Status) -> str:
    """Why there is no estimate, and what to do about it."""
    if status.state not in protocol.LIVE_STATES:
        return f"no estimate: {situation.reason(status)} after {status.step} steps; see carbontui log {status.job}"
    if not status.step:
        return "no estimate: no training step was seen; call carbontui.step() in the loop, or see carbontui hook"
    if status.steps_total is None:
        return "no estimate: too few steps were seen, and how many the whole run has is not known; add --steps N"
    return f"no estimate: only {status.step} steps were seen, too few"
