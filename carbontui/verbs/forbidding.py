"""What forbidden hours would cost, as text."""

from __future__ import annotations

from carbontui import link, protocol
from carbontui.job import store
from carbontui.text.plan import difference
from carbontui.verbs import talk
from carbontui.verbs.failure import Failure


def price(job: store.Job, hours: str) -> str:
    """'22:00 to Mon 06:00: CO2 +38 g, finish +2 h 10'. Raises Failure where the hours cannot be read."""
    snap = talk.snap(job)
    found = talk.ask(job, protocol.Preview(1, forbid=hours))
    if not isinstance(found, protocol.Previewed):
        raise Failure(f"job {job.id} gave an unexpected answer", 1)
    if found.error and found.plan is None:
        known = snap.plan is not None
        # without a plan the hours still apply; only their cost is unknown
        if known or found.error.startswith("hours "):
            raise Failure(found.error, 2)
        return f"{hours}: what it costs is not known ({found.error})"
    if not found.text:
        return f"{hours}: {link.OLDER}"
    cost = snap.status.cost
    return f"{found.text}: {difference(found, cost.currency if cost else None)}"
