"""Shared by every verb that talks to a job: finding it, asking its supervisor, retrying while one is respawned."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from carbontui import link, protocol, units
from carbontui.commands.support.command import Failure, refused
from carbontui.job.files import places, store
from carbontui.job.keeper import orders
from carbontui.system import streams
from carbontui.text import figures, situation
from carbontui.text.statements import read_here, rendered, words

ANSWER_S = 7.5
"""How long a supervisor has for an answer: with a second try less than twenty seconds."""
RETRY_S = 15.0
"""Seconds a verb waits for a supervisor that is being replaced; the keeper needs about six to notice and restart it."""
T = TypeVar("T")


class Unanswered(Failure):
    """No supervisor of a live job answers."""


def find(wanted: str | None) -> store.Job:
    """The job meant. Raises Failure: 3 for one that is not there, 2 with the list where one has to be named."""
    with refused("", store.NoSuchJob, code=3), refused("", store.NameOne):
        return store.find(wanted)


def live_or_last(wanted: str | None) -> store.Job:
    """The job meant, for looking: of none named the live one, else the last. Raises Failure as `find` does."""
    every = [] if wanted or os.environ.get("CARBONTUI_JOB") else [job for job in store.jobs() if not job.foreign]
    if every and not any(job.live for job in every):
        return every[0]
    return find(wanted)


def ask(job: store.Job, message: Any, kind: type[T]) -> T:
    """One request and its answer. Waits RETRY_S for a supervisor that is being replaced, then raises Failure (3)."""
    answer = _patiently(job, lambda now: link.ask(now.socket, message, ANSWER_S))
    if not isinstance(answer, kind):
        raise Failure(f"job {job.id} gave an unexpected answer", 1)
    return answer


def order(job: store.Job, verb: protocol.Verb, args: dict[str, Any] | None = None) -> protocol.Result:
    """Send a command; the supervisor's answer. Raises Failure with its reason and exit code where it is refused, and
    (3) where none answers; while the monitor process lives, which brings one, the order is then stored for it."""
    try:
        return accepted(ask(job, protocol.Cmd(1, verb, args or {}), protocol.Result))
    except Unanswered as error:
        if not leave_order(job, verb, args or {}):
            raise
        waits = words(protocol.statement("order_waits", who="supervisor"), time.time())
        raise Unanswered(f"{error.message}; {waits}", error.code) from None


def leave_order(job: store.Job, verb: protocol.Verb, args: dict[str, Any]) -> bool:
    """Store an order in orders.log for a supervisor to come; False if none will, or the disk does not take it."""
    if not (store.load(job.dir) or job).kept:
        return False
    try:
        orders.append(os.fspath(job.dir), orders.LoggedOrder(verb, args, link.whoami(), time.time(), accepted=False))
    except OSError:
        return False
    return True


def accepted(answer: protocol.Result) -> protocol.Result:
    """The answer to a command. Raises Failure for a refusal."""
    if not answer.ok:
        raise Failure(answer_text(answer) or "refused", answer.exit_code or 1)
    return answer


def answer_text(answer: protocol.Result) -> str:
    """What a supervisor has answered, in our time zone, which is named."""
    with figures.zone_named():
        return rendered(answer.said, answer.text if answer.ok else answer.error or "", time.time())


def snap(job: store.Job) -> protocol.Snap:
    """Everything a screen would show of a live job. Raises Failure (3) when no supervisor answers."""
    return _patiently(job, lambda now: link.snap(now.socket))


def away(job: store.Job) -> str:
    """Where a job is that has moved to another machine; '' for one that is here."""
    host = "" if job.exit is not None else places.read(job.dir).moved_to
    return f"job {job.id} is on {host}: carbontui attach {host}:{job.id}" if host else ""


def at_home(job: store.Job) -> None:
    """Raises Failure (3) for a job that has moved to another machine, naming it."""
    if where := away(job):
        raise Failure(where, 3)


def _patiently(job: store.Job, once: Callable[[store.Job], T]) -> T:
    if job.foreign:
        raise unknown(job)
    at_home(job)
    due = time.monotonic() + RETRY_S
    while True:
        try:
            return once(job)
        except link.LinkError as error:
            job = store.load(job.dir) or job  # its socket may be another by now
            known = job.life
            if known.state == "dead":
                over = job.status()
                why = f": {situation.reason(over)}" if over.state == "lost" else ""
                raise Failure(f"job {job.id} is over ({over.state}{why})", 3) from None
            if known.state == "unknown":
                raise unknown(job) from None
            if job.orphaned:  # nobody replaces it
                raise Failure(f"job {job.id} runs, {situation.reason(job.status())}", 3) from None
            hidden = job.unseen is not None and not job.kept
            if hidden or time.monotonic() >= due:
                where = f"; {words(job.unseen, time.time())}" if job.unseen else ""
                kind = Failure if hidden else Unanswered
                raise kind(f"no supervisor of job {job.id} answers ({error}){where}", 3) from None
        time.sleep(0.2)


def unknown(job: store.Job, code: int = 3) -> Failure:
    """That nothing is known of its life from here, and why."""
    if job.foreign:
        reach = f", like: srun --jobid=ID --overlap --nodelist={job.host} carbontui" if job.scheduler else ""
        return Failure(f"job {job.id} runs on {job.host}; run this command there{reach}", code)
    why = "" if job.unseen is None else f": {words(job.unseen, time.time())}"
    return Failure(f"whether job {job.id} lives is not known{why}", code)


def warn_lost(job: store.Job) -> None:
    """Name the command that resumes a job whose processes are gone, as after a reboot."""
    if job.restart_command and (job.dead or job.orphaned):
        click.echo(f"carbontui: {situation.reason(job.status())}", err=True)


def live_status(job: store.Job) -> protocol.Status:
    """Sampled now if the supervisor answers at once, else from the last snapshot."""
    if not job.foreign and job.live:
        with contextlib.suppress(link.LinkError):
            answer = link.ask(job.socket, protocol.StatusAsk(1), 1.5)
            if isinstance(answer, protocol.StatusAnswer):
                now = read_here(answer.status, units.from_iso(answer.status.measured_at))
                return msgspec.structs.replace(now, owner=job.owner)
    return job.status()


def as_json(value: Any) -> str:
    """Indented JSON of a struct or builtin."""
    return streams.json_for_terminals(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def lease_warnings() -> list[str]:
    """Power limits that a dead job left behind on this machine, one line each.

    A job that may have a supervisor leaves none: its next agent takes over the lease of a dead one.
    """
    from carbontui.power.limit import leases

    stale = leases.stale_leases()
    living = {job.id: job for job in store.jobs() if not job.dead} if stale else {}
    told = []
    for lease in stale:
        job = living.get(lease.job)
        if job is None:
            told.append(f"{lease.text}; to restore it: carbontui doctor --repair, or {lease.fix}")
        elif job.orphaned and not job.alive("supervisor"):
            told.append(f"{lease.text}, and trains on; to take it up: carbontui restart {job.id}, or {lease.fix}")
    return told


def low_limits(statuses: Sequence[protocol.Status]) -> list[str]:
    """Limits of these jobs' GPUs below the driver's default that no lease accounts for, as was last seen."""
    from carbontui.power.limit import leases

    boards = {gpu.uuid for status in statuses if status.state in protocol.LIVE_STATES for gpu in status.gpus}
    return [f"{low.uuid}: {low.text}" for low in leases.LeaseStore().low() if low.uuid in boards]
