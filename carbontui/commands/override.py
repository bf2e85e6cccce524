"""Verbs that override the plan: pause, boost, cap, resume (auto), budget, forbid, allow, guess, stop."""

import re
import sys
import time
from typing import Any, Literal

import click

from carbontui import link, protocol, units
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, live_jobs, refused
from carbontui.job.files import store
from carbontui.job.life import stopping
from carbontui.job.terms import allowance
from carbontui.job.terms.budget import parse, parse_until
from carbontui.power.limit import leases
from carbontui.system import proc
from carbontui.text import figures
from carbontui.text.plan import difference
from carbontui.text.statements import rendered, words

STOP_WAIT_S = 90.0
"""Seconds until `stop` gives up waiting: INT, TERM and KILL are 30 s apart, and the account is completed after."""
STOP_ANSWER_S = 3.0
ASLEEP_S = 5.0
"""A keeper that is stopped by a signal for this long is not waited for."""


def until(for_text: str | None, until_text: str | None) -> dict[str, Any]:
    """The options --for and --until as arguments of a command. Raises Failure (2) for a time that cannot be read."""
    if for_text and until_text:
        raise Failure("--for and --until exclude each other", 2)
    if for_text:
        with refused("--for: "):
            seconds = units.parse_duration(for_text)
            if seconds <= 0:
                raise ValueError(f"{for_text!r} is not longer than zero")
            return {"for_s": seconds}
    if until_text:
        with refused("--until: "):
            parse_until(until_text, time.time())
        return {"until": until_text}
    return {}


def command(job: str | None, verb: protocol.Verb, args: dict[str, Any]) -> None:
    """Send one command; prints the answer. Raises Failure with the supervisor's reason and exit code when refused."""
    found = talk.find(job)
    for name in {"until", "budget", "hours"} & args.keys():
        # in our time zone and by the job's clock
        read = units.hours if name == "hours" else units.instant
        args[name] = read(args[name], units.from_iso(talk.live_status(found).measured_at))
    click.echo(talk.answer_text(talk.order(found, verb, args)))


_until = click.option("--until", "until_text", help='Until when: 18:00, "fri 09:00" or next (planned change).')
_for = click.option("--for", "for_text", help="How long, like 30m.")
_job = click.argument("job", required=False, shell_complete=live_jobs)


def _timed(verb: Literal["pause", "boost"], does: str) -> click.Command:
    def send(job: str | None, for_text: str | None, until_text: str | None) -> None:
        command(job, verb, until(for_text, until_text))

    return click.command(verb, help=does)(_job(_for(_until(send))))


pause = _timed("pause", "Hold the training at its next step; the model stays in memory.")
boost = _timed("boost", "Run at full speed, whatever the plan says.")


@click.command()
@click.argument("watts")
@_job
@_for
@_until
def cap(watts: str, job: str | None, for_text: str | None, until_text: str | None) -> None:
    """Cap every GPU of the job: carbontui cap 300W"""
    with refused():
        value = units.parse_watts(watts)
    command(job, "cap", {"value_w": value, **until(for_text, until_text)})


@click.command()
@_job
def resume(job: str | None) -> None:
    """Back to the plan: clear the override (auto is the same)."""
    command(job, "resume", {})


auto = resume


@click.command()
@click.argument("value")
@_job
def budget(value: str, job: str | None) -> None:
    """Change the budget of a running job: 1.8x, 18h or "fri 09:00"; 3kg, 8kWh or 20EUR."""
    if not allowance.is_amount(value):
        with refused():
            parse(value, time.time())
    command(job, "budget", {"budget": value})


@click.command()
@_job
@click.option("--accept/--refuse", "accept", default=None, help="Plan with it from now on, or stop doing so.")
def guess(job: str | None, accept: bool | None) -> None:
    """If nothing reports how many steps a training makes, the total is guessed. Plans use it once two sources agree on
    it, an epoch has confirmed it, or you accept it; --refuse lets no guess be used."""
    if accept is not None:
        command(job, "guess", {"accept": accept})
        return
    status = talk.live_status(talk.find(job))
    if (found := status.guess) is None:
        known = f"the total is known, {status.steps_total} steps" if status.steps_total else "nothing shows a total"
        raise Failure(f"no guess: {known}", 3)
    asked = "planned with" if found.agreed else "accept it with --accept"
    total = figures.total(found.steps, found.low, found.high, at_most=found.at_most)
    click.echo(f"{total}, guessed from {found.source}; {asked}")


@click.command()
@click.argument("hours", required=False)
@_job
@click.option("--dry-run", "--preview", is_flag=True, help="Only show what it would cost.")
@click.option("--clear", is_flag=True, help="Let it run in these hours again, or in all.")
@click.pass_context
def forbid(ctx: click.Context, hours: str | None, job: str | None, dry_run: bool, clear: bool) -> None:
    """Set hours in which the training must not run: 22:00-06:00, "fri 09:00-12:00" or "daily 17:00-20:00".

    Shows what they cost in CO2, time and money, and plans around them; `forbid --clear` removes them.
    """
    if clear:
        if hours is not None and job is None and not re.search(r"\d\s*[-–/]", hours):
            hours, job = None, hours  # forbid --clear JOB
        ctx.invoke(allow, hours=hours, job=job)
        return
    if hours is None:
        raise Failure('forbid needs hours, like 22:00-06:00 or "daily 17:00-20:00"; --clear removes them', 2)
    found = talk.find(job)
    click.echo(price(found, hours))
    if not dry_run:
        command(found.id, "forbid", {"hours": hours})


@click.command(hidden=True)
@click.argument("hours", required=False)
@click.option("--job", "job", help="Which job; by default the only one.")
def allow(hours: str | None, job: str | None) -> None:
    """Let the training run in forbidden hours again: the given ones, or all of them. Like forbid --clear."""
    command(job, "allow", {} if hours is None else {"hours": hours})


@click.command()
@_job
@click.option("--now", is_flag=True, help="One second between INT, TERM and KILL instead of thirty.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def stop(job: str | None, now: bool, yes: bool) -> None:
    """End the training: INT, TERM after 30 s, KILL after 30 s more."""
    found = talk.find(job)
    talk.at_home(found)
    known = found.life.state
    if known == "dead":
        raise Failure(f"job {found.id} is over ({found.status().state})", 3)
    if known == "unknown":
        raise talk.unknown(found)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Stop {found.name} ({found.id})? What is not checkpointed is lost", abort=True)
    if order_stop(found, now=now):
        wait_gone(found)
    else:
        click.echo(f"the training of job {found.id} has ended; its monitor process and supervisor do not answer")


def order_stop(job: store.Job, *, now: bool) -> bool:
    """Stop the job through whichever of our processes is left; the training is reached whatever is dead or hangs.

    False where other processes of ours hang: they are not waited for.
    """
    try:
        answer = link.ask(job.socket, protocol.Cmd(1, "stop", {"now": now}), STOP_ANSWER_S)
    except link.LinkError:
        pass
    else:
        if isinstance(answer, protocol.Result):
            talk.accepted(answer)
        return True
    talk.leave_order(job, "stop", {"now": now})  # for a keeper that sleeps, and does not hear this either
    if stopping.by_keeper(job, now=now):
        return True
    if not stopping.by_ourselves(job, now=now) and (store.load(job.dir) or job).live:
        why = "the training's pid is not known" if job.unseen is None else words(job.unseen, time.time())
        raise Failure(f"job {job.id} cannot be stopped: no process of it answers, and {why}", 1)
    return not job.kept


def wait_gone(job: store.Job) -> None:
    """Wait until the child has ended and the account is complete; power limits are restored by then."""
    begun = time.monotonic()

    def gone() -> bool:
        fresh = store.load(job.dir)
        if fresh is None or not fresh.live:
            return True
        if time.monotonic() - begun > ASLEEP_S and proc.stopped(fresh.alive("keeper") or 0):
            raise Failure(f"job {job.id}: accepted, waiting for the monitor process, which is stopped by a signal", 1)
        return False

    if not proc.awaited(gone, STOP_WAIT_S):
        raise Failure(f"job {job.id} is still running after {STOP_WAIT_S:.0f} s", 1)
    state = (store.load(job.dir) or job).status().state
    click.echo(f"job {job.id} {state}")
    for text in talk.lease_warnings():
        click.echo(f"carbontui: {text}", err=True)

    if left := leases.left_by(job.id):
        watts = ", ".join(f"{lease.uuid} at {lease.ours_mw[-1] / 1000:.0f} W" for lease in left)
        raise Failure(f"the training has ended, but its power limit is still set: {watts}", 1)


def price(job: store.Job, hours: str) -> str:
    """'22:00 to Mon 06:00: CO2 +38 g, finish +2 h 10'. Raises Failure where the hours cannot be read."""
    snap = talk.snap(job)
    meant = units.hours(hours, units.from_iso(snap.series.now))
    found = talk.ask(job, protocol.Preview(1, forbid=meant), protocol.Previewed)
    if found.error and found.plan is None:
        # without a plan the hours still apply; only their cost is unknown
        if snap.plan is not None or found.misread:
            raise Failure(found.error, 2)
        return f"{hours}: what it costs is not known ({found.error})"
    cost = snap.status.cost
    with figures.zone_named():
        told = rendered(found.said, found.text, units.from_iso(snap.series.now))
    return f"{told}: {difference(found, cost.currency if cost else None)}"
