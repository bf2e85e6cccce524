"""What every verb that speaks to a job shares: finding it, asking its supervisor, retrying while one is respawned."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from carbontui import link, protocol
from carbontui.job import store
from carbontui.verbs.failure import Failure

RETRY_S = 15.0
T = TypeVar("T")


def find(wanted: str | None) -> store.Job:
    """The job meant; wrong or ambiguous: exit 2 with the list, none at all: exit 3."""
    try:
        return store.find(wanted)
    except store.NoSuchJob as error:
        raise Failure(str(error), 3 if str(error) == "no job is running" else 2) from None


def ask(job: store.Job, message: Any, timeout_s: float = 10.0) -> Any:
    """One request and its answer. A supervisor that is being replaced is waited for; then exit 3."""
    return _patiently(job, lambda: link.ask(job.socket, message, timeout_s))


def snap(job: store.Job) -> protocol.Snap:
    """Everything a screen would show of a live job."""
    return _patiently(job, lambda: link.snap(job.socket))


def _patiently(job: store.Job, once: Callable[[], T]) -> T:
    if job.foreign:
        raise Failure(f"job {job.id} runs on {job.host}; say this there", 3)
    due = time.monotonic() + RETRY_S
    while True:
        try:
            return once()
        except link.LinkError as error:
            fresh = store.load(job.dir) or job
            if not fresh.live:
                raise Failure(f"job {job.id} is over ({fresh.status().state})", 3) from None
            if time.monotonic() >= due:
                raise Failure(f"no supervisor of job {job.id} answers ({error})", 3) from None
        time.sleep(0.2)


def live_status(job: store.Job) -> protocol.Status:
    """Sampled now if the supervisor answers at once, else from the last snapshot."""
    if not job.foreign and job.live:
        try:
            answer = link.ask(job.socket, protocol.StatusAsk(1), 1.5)
            if isinstance(answer, protocol.StatusAnswer):
                return answer.status
        except link.LinkError:
            pass
    return job.status()


def as_json(value: Any) -> str:
    """Indented JSON of a struct or builtin."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def lease_warnings() -> list[str]:
    """Power limits that a dead job left behind on this machine, one line each.

    A job with a supervisor has none: the agent that follows a dead one takes the lease over.
    """
    from carbontui.power import leases

    guarded = {job.id for job in store.jobs() if job.alive("supervisor")}
    stale = (lease for lease in leases.stale_leases() if lease.job not in guarded)
    return [f"{lease.text}; mend: carbontui doctor --mend, or {lease.fix}" for lease in stale]
