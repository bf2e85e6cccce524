"""`move`: a running job goes on on another machine, which the screen offers too; `receive` is what `move` and a keeper
run there, over ssh, for no one else."""

import functools
import json
import math
import os
import subprocess
import sys
import time
from typing import NamedTuple, TypeVar

import click

from carbontui import units
from carbontui.account.compare import better
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, any_jobs, host_of, refused, there_option
from carbontui.commands.support.run_values import here, settings_for
from carbontui.extensions.moves import lease, receiving
from carbontui.extensions.moves.moving import NotMoved, Transfer
from carbontui.job.files import store
from carbontui.job.terms import records
from carbontui.job.terms.budget import parse_until
from carbontui.reports import elsewhere
from carbontui.reports.story import NoStory
from carbontui.system import ssh
from carbontui.text import account as words
from carbontui.text import figures
from carbontui.tui.model.feed import BetterHost

T = TypeVar("T")


@click.command()
@click.argument("words", nargs=-1, metavar="[JOB] USER@HOST", shell_complete=any_jobs)
@there_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only check, and say what would be copied.")
@click.option("--when-cleaner", is_flag=True, help="Wait until that machine's grid is cleaner for the work left.")
@click.option("--by", help="With --when-cleaner: until when to wait, like 18:00; then it stays.")
@click.option("--for-good", is_flag=True, help="Never take it back, even if that machine dies.")
def move(
    words: tuple[str, ...], there: str, yes: bool, dry_run: bool, when_cleaner: bool, by: str | None, for_good: bool
) -> None:
    """Have a job go on on another machine: carbontui move JOB user@host

    Unloads it at a step, copies the working directory (but what git ignores) and its checkpoint by rsync over ssh, and
    starts it there as the same job. Until that machine has it, any failure leaves it here; if that machine dies, it
    goes on here again.
    """
    if not 1 <= len(words) <= 2:
        raise Failure("move [JOB] user@host: one job and one machine", 2)
    with refused():
        lease_s = None if for_good else lease.asked_lease_s()
    job, place = talk.find(words[0] if len(words) == 2 else None), words[-1]
    with refused():
        if ssh.place(place).job is not None:
            raise ValueError(f"{place!r} names a job; give the machine alone, like user@host")
    by_s = math.inf
    if by is not None:
        with refused("--by: "):
            at_s = parse_until(by, time.time())
            if isinstance(at_s, str) or at_s <= time.time() or not when_cleaner:
                raise ValueError(f"{by!r}: a time to come, with --when-cleaner")
            by_s = at_s
    asked = functools.partial(talk.ask, job)
    with refused("", NotMoved, code=1), host_of(place, there) as host, Transfer(job, host, lease_s, asked) as transfer:
        transfer.check()
        click.echo(transfer.said())
        if when_cleaner:
            await_cleaner(transfer, there, by_s, read_only=dry_run)
        if dry_run:
            return
        if not yes and sys.stdin.isatty():
            back = "and never comes back by itself" if for_good else "and comes back if that machine dies"
            click.confirm(f"Move {job.name} ({job.id}) to {host.name}? It is unloaded at a step, {back}", abort=True)
        transfer.prepare()
        transfer.unload()
        transfer.copy_all()
        transfer.hand_over()
        status = transfer.until_trains()
    click.echo(f"job {job.id} is {status.state} on {place}, step {status.step}: carbontui attach {place}:{job.id}")


POLL_S = 300.0
"""Between two looks at both forecasts."""
WORTH = 0.01
"""It moves only to save at least this share of the CO2 that is left."""


def await_cleaner(transfer: Transfer, there: str, by_s: float, *, read_only: bool) -> None:
    """Wait for the hour from which the work left emits less there. Raises Failure when there is none until `by_s`, or
    the job ends."""
    job, host = transfer.job, transfer.host.name
    while True:
        with refused("", NoStory, code=3):
            rest = elsewhere.of_job(job, talk.live_status(job))
        best = better(elsewhere.compared(rest, [host], there)[0], WORTH)
        now_s = time.time()
        when = "never" if best is None else "now" if best.from_s <= now_s else f"{figures.clock(best.from_s, now_s)} on"
        click.echo(f"cleaner there for the work left, with the move's cost: {when}")
        if read_only or (best is not None and best.from_s <= now_s):
            return
        time.sleep(max(0.0, min(by_s, now_s + POLL_S, math.inf if best is None else best.from_s) - now_s))
        if time.time() >= by_s:
            raise Failure(f"job {job.id} stays: {host} has not been cleaner for its work", 1)


WORTH_OFFERING = 0.05
"""A smaller saving is not offered on the screen."""


def better_host(job: store.Job, names: list[str]) -> BetterHost | None:
    """The machine on which the rest of it would emit least; None where nothing is known, or gained."""
    try:
        rest = elsewhere.of_job(job, talk.live_status(job))
    except (NoStory, ValueError):
        return None
    there = os.environ.get("CARBONTUI_THERE", "carbontui")
    here, *_ = rows = elsewhere.compared(rest, names, there, at_once=True)[0]
    best = better(rows, WORTH_OFFERING)
    if best is None:
        return None
    saves = 1.0 - (best.row.gco2_g or 0.0) / (here.row.gco2_g or 1.0)
    return BetterHost(best.row.name, words.better_host(best.row.name, best.zone, saves, best.done_s - here.done_s))


def by_verb(job: store.Job, host: str) -> tuple[bool, str]:
    """By the verb, in a session of its own: leaving the screen does not end it."""
    log = job.dir / "move.log"
    try:
        with log.open("wb") as out:
            done = subprocess.run(
                [sys.executable, "-m", "carbontui.cli", "move", job.id, host, "--yes"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, check=False,
            )  # fmt: skip
        told = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return False, f"not moved: {error}"
    last = told[-1].removeprefix("carbontui: ") if told else f"move ended with {done.returncode}"
    return done.returncode == 0, units.printable(last)


@click.command(hidden=True)
@click.argument("step", type=click.Choice(["check", "stage", "start", "hold"]))
@click.argument("job")
def receive(step: str, job: str) -> None:
    """The other end of `move` and `run --at`: JSON lines on stdin and stdout."""
    if step == "hold":
        receiving.converse(job, _receive, _say)
        return
    with refused("", (receiving.NotTaken, OSError), code=1):
        loaded = settings_for()
        own = {**here(loaded, None), "price_zone": loaded.settings.price_zone}
        if step == "check":
            _say(receiving.check(job, _receive(receiving.CheckAsk), own["zone"] or "", own["zone_why"]))
        elif step == "start":
            _say(receiving.Started(receiving.start(job, _receive(receiving.StartAsk))))
        else:
            receiving.stage(job, _receive(receiving.StageAsk), own)
            _say(receiving.Staged(ready=True))


def _receive(kind: type[T]) -> T:
    with refused("what was sent cannot be read: ", code=1):
        return records.decode(sys.stdin.buffer.readline(records.MOST_B + 1), kind)


def _say(message: NamedTuple) -> None:
    sys.stdout.buffer.write(json.dumps(message._asdict()).encode() + b"\n")
    sys.stdout.buffer.flush()
